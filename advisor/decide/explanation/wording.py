"""Sentences for people, made from an advice: ``sbatch``'s line, ``advisor why``, a job's page.

Text that a user typed is cut and stripped of control characters before it is shown; every number has its
unit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Final

from advisor.decide.explanation.admin_comment import RecordedAdvice
from advisor.decide.explanation.display import clean, duration, quantity
from advisor.decide.explanation.phrases import HEADINGS, NAMES, PHRASES, PHRASES_WITH, UNITS, UNKNOWN_PHRASE
from advisor.decide.explanation.reasons import Reason
from advisor.decide.explanation.reply_texts import MESSAGE_LIMIT, hedge_sentence, price_sentence
from advisor.model.advice import (
    Advice,
    Answer,
    Mode,
    Placement,
    Quantity,
    Question,
    TimeLimit,
    Verdict,
)
from advisor.model.checkpoint_word import HOW_TO_WRITE, checkpoint_of
from advisor.model.job import Job
from advisor.model.settings import ClusterSettings

_DEVIATION: Final = re.compile(r" \((?:±|by |of )?\{\w+\}\)")
_PLACE: Final = re.compile(r"\{\w+\}")
_WHY_IN_CLOUD: Final = (Question.FASTER, Question.WORTH_PAYING)
_LEFT_IN_BURST: Final = "Left in the burst partition, as the user asked."
_WHY_MOVED: Final = (
    "It would wait {predicted_wait} (±{wait_deviation}) here; done {predicted_saving} sooner there."
)


def sentence(answer: Answer) -> str:
    """One answer as one sentence; a reason of a newer release is shown as its code."""
    numbers = {name: quantity(value) for name, value in answer.numbers}
    return _in_words(answer.reason, numbers, answer.detail)


def why_answer(advice: Advice) -> Answer:
    """The answer that explains a job's place: that to question 2 or 3, or the one that kept the job.

    The answer to question 4 says in which capacity a job moves, and not why.
    """
    if advice.placement == Placement.BURST:
        for answer in advice.answers:
            if answer.question in _WHY_IN_CLOUD and answer.verdict is Verdict.YES:
                return answer
    return advice.decisive


def why_sentence(advice: Advice, tasks: int = 1) -> str:
    """The answer of :func:`why_answer` as one sentence, short enough for a line of a list.

    ``tasks``: Those of a job array, whose cost is that of all of them.
    """
    answer = why_answer(advice)
    if answer.reason == Reason.SAVES_TIME:
        return price_sentence(advice.values(), tasks)
    if answer.reason != Reason.CLOUD_FASTER:
        return sentence(answer)
    return _WHY_MOVED.format_map(_Words({name: quantity(value) for name, value in answer.numbers}))


def _in_words(reason: str, numbers: Mapping[str, str], detail: str) -> str:
    variants = PHRASES_WITH.get(reason, {})
    phrase = next((variants[name] for name in variants if name in numbers), None)
    phrase = phrase or PHRASES.get(reason, UNKNOWN_PHRASE)
    return phrase.format_map(_Words(numbers, reason=clean(reason), detail=clean(detail) or "not named"))


class _Words(dict[str, str]):
    """The words of a phrase; a number that the answer does not have is ``unknown``."""

    def __init__(self, numbers: Mapping[str, str], **words: str) -> None:
        super().__init__(numbers, **words)

    def __missing__(self, key: str) -> str:
        return "unknown"


def would_message(advice: Advice, job: Job, cluster: ClusterSettings) -> str | None:
    """The line for a job that would be moved, had its user or the site allowed it; None for all others."""
    if advice.placement is not Placement.BURST or advice.decisive.reason == Reason.EXPLICIT_BURST:
        return None
    is_opt_in = cluster.mode_of(job.queue) is Mode.OPT_IN
    how = (
        f"--comment={clean(cluster.opt_in_comment)}" if is_opt_in else f"-p {clean(cluster.burst_partition)}"
    )
    said = why_sentence(advice, job.array_tasks).removesuffix(".")
    return clean(f"Burst Advisor: stays here. {said}. To go there: {how}", MESSAGE_LIMIT)


def with_unread_data(line: str | None, advice: Advice) -> str | None:
    """The line of ``sbatch``, which also says where a job stays because its data has no known size."""
    if advice.decisive.reason != Reason.DATA_UNKNOWN:
        return line
    said = sentence(advice.decisive)
    if line and said in line:
        return line
    return clean(f"{line or 'Burst Advisor: stays here'}. {said}", MESSAGE_LIMIT)


def with_unread_checkpoint(line: str | None, comment: str | None) -> str | None:
    """The line of ``sbatch``, which also says where a comment's ``checkpoint=`` is no time."""
    said = checkpoint_of(comment)
    if said is None or not math.isnan(said):
        return line
    wrong = f"the comment's checkpoint= is no time: write {HOW_TO_WRITE}"
    if not line:
        return f"Burst Advisor: {wrong}"
    return f"{clean(line, MESSAGE_LIMIT - len(wrong) - 2)}; {wrong}"  # it is not to be what is cut


def explanation(advice: Advice) -> str:
    """Everything about an advice, one line an answer and one a number: what ``advisor why`` prints."""
    lines = [headline(advice)]
    for answer in advice.answers:
        verdict = answer.verdict.value.upper()
        lines += [
            "",
            f"{HEADINGS[answer.question]} {verdict}",
            f"  {sentence(answer)} [{clean(answer.reason)}]",
            *_number_lines((name, quantity(value)) for name, value in answer.numbers),
        ]
    return "\n".join([*lines, *_last_lines(advice)])


def _number_lines(shown: Iterable[tuple[str, str]]) -> list[str]:
    """Numbers in words, each on a line with its name."""
    rows = [(clean(NAMES.get(name, name)), value) for name, value in shown]
    width = max((len(name) for name, _ in rows), default=0)
    return [f"    {name:<{width}}  {value}" for name, value in rows]


def _last_lines(said: Advice | RecordedAdvice) -> list[str]:
    """What an explanation says after the answers."""
    lines = ["", time_limit_sentence(said.time_limit)] if said.time_limit else []
    lines += ["", f"{hedge_sentence(said.hedge)}."] if said.hedge else []
    return [*lines, "", f"Size class: {clean(said.size)}. Advice {clean(said.advice_id)}."]


def time_limit_sentence(limit: TimeLimit) -> str:
    """The sentence about the raised time limit of a moved job."""
    return (
        f"Time limit raised from {duration(limit.asked_seconds)} to {duration(limit.given_seconds)} (at most "
        "the partition's MaxTime): the cloud is slower."
    )


def headline(advice: Advice) -> str:
    """The decision, in one sentence."""
    if any(answer.reason == Reason.EXPLICIT_BURST for answer in advice.answers):
        return _left_in_burst(advice.capacity)
    return _headline(advice.placement, advice.capacity, advice.mode)


def _left_in_burst(capacity: str | None) -> str:
    bought = f" A node that is launched for it is {capacity} capacity." if capacity else ""
    return _LEFT_IN_BURST + bought


def _headline(placement: str, capacity: str | None, mode: str) -> str:
    where = "the cloud" if placement == Placement.BURST else "the on-premise cluster"
    on = f" on {capacity} capacity" if capacity else ""
    if mode == Mode.SHADOW:
        return f"Would start in {where}{on} (shadow mode: nothing was changed)."
    return f"Starts in {where}{on}."


def recorded_sentence(recorded: RecordedAdvice) -> str:
    """The decisive reason of an AdminComment as one sentence, for people."""
    return _in_words(recorded.reason, _shown(recorded), recorded.detail)


def _shown(recorded: RecordedAdvice) -> dict[str, str]:
    return {name: quantity(Quantity(value, UNITS.get(name, "s"))) for name, value in recorded.numbers.items()}


def recorded_why(recorded: RecordedAdvice, tasks: int = 1) -> str:
    """The sentence of :func:`why_sentence`, from an AdminComment: it has the numbers of all answers."""
    moved = recorded.placement == Placement.BURST and recorded.hedge is None
    if recorded.placement == Placement.BURST and "start_there" in recorded.numbers:
        return price_sentence(recorded.numbers, tasks)
    if not moved or not {"predicted_wait", "predicted_saving"} <= recorded.numbers.keys():
        return recorded_sentence(recorded)
    return _WHY_MOVED.format_map(_Words(_shown(recorded)))


def recorded_headline(recorded: RecordedAdvice) -> str:
    """The decision of an AdminComment, in one sentence."""
    if recorded.reason == Reason.EXPLICIT_BURST:
        return _left_in_burst(clean(recorded.capacity) if recorded.capacity else None)
    capacity = clean(recorded.capacity) if recorded.capacity else None
    return _headline(recorded.placement, capacity, recorded.mode)


def recorded_explanation(recorded: RecordedAdvice) -> str:
    """Everything that an AdminComment says; ``advisor why`` prints it if the ledger has no record."""
    said = recorded_why(recorded) if "start_there" in recorded.numbers else recorded_sentence(recorded)
    lines = [recorded_headline(recorded), "", f"  {said} [{clean(recorded.reason)}]"]
    return "\n".join([*lines, *_number_lines(_shown(recorded).items()), *_last_lines(recorded)])


def in_general(reason: str) -> str:
    """Sentence of a reason without any job's numbers and names, for lists that count reasons."""
    phrase = PHRASES.get(reason, UNKNOWN_PHRASE.replace("{reason}", reason))
    return _PLACE.sub("...", _DEVIATION.sub("", phrase)).replace("....", "...")
