"""``advisor advise``: the decision about a submission, without submitting it."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from advisor.cli.context import ConfigOption, settings_of
from advisor.cli.output import Format, FormatOption, emit, stderr
from advisor.decide.explanation.admin_comment import RecordedAdvice, parse_admin_comment
from advisor.decide.explanation.display import duration, quantity
from advisor.decide.explanation.phrases import NAMES, UNITS
from advisor.model.advice import Quantity
from advisor.model.errors import BadInput
from advisor.model.job_words import count_array_tasks
from advisor.slurm.batch_script import (
    SubmittedOptions,
    merged,
    options_like,
    read_environment,
    read_options,
    read_script,
)

_HETEROGENEOUS: Final = "It is a heterogeneous job, whose parts stay together."

if TYPE_CHECKING:
    from advisor.service.exchange.protocol import AdviseReply

_LIMIT_BYTES = 4_000_000


def register(app: typer.Typer) -> None:
    """Add ``advisor advise``."""
    app.command("advise", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(advise)


def advise(
    context: typer.Context,
    *,
    script: Annotated[
        Path | None, typer.Option("--script", help="Batch script; its #SBATCH lines are read.")
    ] = None,
    user: Annotated[str | None, typer.Option("--user", help="The job's user; you by default.")] = None,
    config: ConfigOption = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Ask the running submit server what it would decide about a job now; nothing is submitted.

    Takes sbatch's options, such as --time=2:00:00 --ntasks=16 --comment=..., with or without a script, and
    without --user the variables of your environment that sbatch takes, such as SBATCH_PARTITION.
    """
    from advisor.service.exchange.client import SubmitClient

    options = _options(script, context.args, os.environ if user is None else {})
    identity = _identity(user)
    for warning in _warnings(options, identity):
        _warn(warning)
    fields = options.fields | identity
    with SubmitClient(settings_of(config).paths.submit_socket) as client:
        reply = client.advise(dry=True, **fields)
    result = _result(reply, options, fields)
    emit(result, output, lambda console: _draw(console, result))


def _options(script: Path | None, arguments: list[str], environment: Mapping[str, str]) -> SubmittedOptions:
    if script is None and not arguments:
        raise BadInput(
            "no job is described",
            where="advisor advise",
            mend="Give --script FILE, or options of sbatch such as --time=60 --ntasks=4",
        )
    found = SubmittedOptions() if script is None else read_script(_text_of(script), where=str(script))
    found = merged(found, read_environment(environment))
    return merged(found, read_options(arguments, where="command line"))


def _warnings(options: SubmittedOptions, identity: dict[str, Any]) -> Iterator[str]:
    """Reasons why the answer may be about another job than the user meant."""
    for name in options.unknown:
        if not name.startswith("-"):
            yield f"{name} is ignored: give a script as --script {name}"
        elif like := options_like(name.lstrip("-")):
            yield f"sbatch has no option {name}; it is ignored. Did you mean --{like}?"
        else:
            yield f"sbatch has no option {name}; it is ignored"
    if identity["uid"] is None:
        yield f"this host has no user {identity['user']}: rules about groups may give another result"


def _warn(text: str) -> None:
    stderr.print(f"warning: {text}", style="yellow", markup=False, highlight=False, soft_wrap=True)


def _text_of(script: Path) -> str:
    try:
        with script.open("rb") as file:
            return file.read(_LIMIT_BYTES).decode("utf-8", "replace")
    except OSError as error:
        raise BadInput(
            f"cannot be read ({error.strerror})", where=str(script), mend="Check the path and its permissions"
        ) from None


def _identity(user: str | None) -> dict[str, Any]:
    try:
        entry = pwd.getpwuid(os.getuid()) if user is None else pwd.getpwnam(user)
    except KeyError:
        return {"user": user, "uid": None if user else os.getuid()}
    return {"user": entry.pw_name, "uid": entry.pw_uid, "gid": entry.pw_gid}


def _result(reply: AdviseReply, options: SubmittedOptions, fields: dict[str, Any]) -> dict[str, Any]:
    from advisor.decide.explanation.wording import recorded_sentence, recorded_why

    recorded = parse_admin_comment(reply.admin_comment)
    tasks = count_array_tasks(fields.get("array", ""))
    result: dict[str, Any] = {
        "advice_id": reply.id,
        "placement": reply.placement,
        "mode": reply.mode,
        "partition": reply.partition,
        "reason": reply.reason,
        "message": reply.message,
        "time_limit_minutes": reply.time_limit,
        "submission": fields,
        "options_not_looked_at": options.ignored,
        "options_unknown": options.unknown,
        **_recorded(recorded),
        "sentence": recorded_sentence(recorded) if recorded else "",
        "why": recorded_why(recorded, tasks) if recorded else "",
    }
    if options.heterogeneous:  # the hook does not ask about such jobs
        result |= {
            "placement": "on-premise",
            "partition": None,
            "message": None,
            "time_limit_minutes": None,
            "capacity": None,
            "reason": "rule.heterogeneous",
            "sentence": _HETEROGENEOUS,
            "why": _HETEROGENEOUS,
        }
    return result


def _recorded(recorded: RecordedAdvice | None) -> dict[str, Any]:
    if recorded is None:
        return {"capacity": None, "size": "unknown", "numbers": {}}
    return {"capacity": recorded.capacity, "size": recorded.size, "numbers": recorded.numbers}


def _draw(console: Console, result: dict[str, Any]) -> None:
    where = "in the cloud" if result["placement"] == "burst" else "on-premise"
    capacity = f" on {result['capacity']} capacity" if result["capacity"] else ""
    shadow = " (shadow mode: nothing would be changed)" if result["mode"] == "shadow" else ""
    console.print(Text(f"Would start {where}{capacity}{shadow}.", "bold"))
    if result["why"] != result["sentence"]:
        console.print(Text(result["why"]))
    console.print(Text(f"{result['sentence']} [{result['reason']}]"))
    for name, value in result["numbers"].items():
        shown = quantity(Quantity(value, UNITS.get(name, "s")))
        console.print(Text(f"  {NAMES.get(name, name):<38} {shown}"))
    if result["time_limit_minutes"]:
        limit = duration(60.0 * result["time_limit_minutes"])
        console.print(Text(f"Its time limit would become {limit}: the cloud is slower."))
    console.print(Text(f"Size class: {result['size']}."))
    if result["message"]:
        console.print(Text(f"sbatch would print: {result['message']}"))
    if result["options_not_looked_at"]:
        names = ", ".join(result["options_not_looked_at"])
        console.print(Text(f"Options without influence: {names}", "dim"))
