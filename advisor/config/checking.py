"""Checks of the settings against each other and the cluster: `config check`, the doctor, every change."""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Final

from advisor.config.explaining import did_you_mean
from advisor.config.loading import LoadedSettings, Source
from advisor.config.redacting import has_password
from advisor.config.reference import toml_text, values_of
from advisor.decide.submission.policy import READ_BY, fixed
from advisor.decide.submission.rules import comment_words

SOCKET_PATH_LIMIT: Final = 107
"""Longest path of a Unix socket on Linux, in bytes (``sun_path`` without its closing NUL)."""


class Severity(enum.StrEnum):
    """How bad a finding is."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One setting that is wrong or suspicious.

    Attributes:
        severity: An error makes ``advisor config check`` end with exit code 2.
        key: ``section.name``.
        where: File and line, variable or option that the value comes from.
        what, mend: What is wrong, and what to do.
    """

    severity: Severity
    key: str
    where: str
    what: str
    mend: str


def check(loaded: LoadedSettings, cluster_partitions: Collection[str] | None) -> list[Finding]:
    """Look for settings that contradict each other or the cluster.

    Args:
        cluster_partitions: Names of Slurm's partitions; None if they are unknown, and then they are not
            checked.

    Returns:
        Errors first.
    """
    found = [
        *_partitions(loaded, cluster_partitions),
        *_paths(loaded),
        *_polls(loaded),
        *_rules(loaded),
        *_burst(loaded),
        *_web(loaded),
        *_policy(loaded),
    ]
    return sorted(found, key=lambda finding: finding.severity is not Severity.ERROR)


def _finding(loaded: LoadedSettings, key: str, what: str, mend: str, *, warn: bool = False) -> Finding:
    severity = Severity.WARNING if warn else Severity.ERROR
    return Finding(severity=severity, key=key, where=str(loaded.origins[key]), what=what, mend=mend)


def _partitions(loaded: LoadedSettings, existing: Collection[str] | None) -> Iterator[Finding]:
    cluster = loaded.settings.cluster
    named = [("cluster.on_premise_partitions", name) for name in cluster.on_premise_partitions]
    named.append(("cluster.burst_partition", cluster.burst_partition))
    for key, name in named if existing is not None else ():
        if name not in (existing or ()):
            yield _finding(
                loaded,
                key,
                f"the cluster has no partition {name!r}",
                _did_you_mean_partition(name, existing or ()),
                # a cluster without a cloud partition may begin in shadow mode, where no job moves
                warn=key == "cluster.burst_partition"
                and loaded.origins[key].source is Source.DEFAULT
                and not cluster.moves_jobs,
            )
    for name in cluster.modes:
        if name not in cluster.on_premise_partitions:
            yield _finding(
                loaded,
                "cluster.modes",
                f"{name!r} is not in on_premise_partitions, so its mode has no effect",
                _did_you_mean_partition(name, cluster.on_premise_partitions),
            )


def _did_you_mean_partition(name: str, existing: Collection[str]) -> str:
    """Name the nearest partition, else all of them."""
    near = did_you_mean(name, existing)
    return near if near.startswith("Did") else f"It has: {', '.join(sorted(existing)) or 'none'}"


def _paths(loaded: LoadedSettings) -> Iterator[Finding]:
    paths = loaded.settings.paths
    for name in ("state", "run", "slurm_conf", "slurm_bin"):
        if not getattr(paths, name).is_absolute():
            yield _finding(
                loaded,
                f"paths.{name}",
                f"{getattr(paths, name)} is not an absolute path",
                "Write the whole path: services start in / and commands in any folder",
            )
    if has_password(paths.database_url):
        yield _finding(
            loaded,
            "paths.database_url",
            "it contains a password, and every user may read the settings",
            "Leave it out: PostgreSQL reads it from .pgpass of the service's user, or needs none (peer)",
            warn=True,
        )
    for socket in (paths.submit_socket, paths.control_socket):
        length = len(str(socket).encode())
        if length > SOCKET_PATH_LIMIT:
            yield _finding(
                loaded,
                "paths.run",
                f"the socket path {socket} has {length} bytes; Linux allows {SOCKET_PATH_LIMIT}",
                "Choose a shorter folder, such as /run/advisor",
            )


def _polls(loaded: LoadedSettings) -> Iterator[Finding]:
    period = loaded.settings.loops.snapshot_seconds
    oldest = loaded.settings.submit.snapshot_max_age_seconds
    if period >= oldest:
        yield _finding(
            loaded,
            "loops.snapshot_seconds",
            f"Slurm is polled every {period:g} s, and a snapshot is used for {oldest:g} s "
            "(submit.snapshot_max_age_seconds): no job would move between the two",
            "Poll at least twice as often, or raise submit.snapshot_max_age_seconds",
        )


def _rules(loaded: LoadedSettings) -> Iterator[Finding]:
    settings, rules = loaded.settings, loaded.settings.rules
    for kind in ("users", "accounts"):
        both = set(getattr(rules, f"allow_{kind}")) & set(getattr(rules, f"deny_{kind}"))
        if both:
            yield _finding(
                loaded,
                f"rules.deny_{kind}",
                f"{', '.join(sorted(both))}: both allowed and denied",
                "Deny wins: delete the name from one of the lists",
                warn=True,
            )
    for key, word in (
        ("rules.opt_out_comment", rules.opt_out_comment),
        ("hedge.opt_out_comment", settings.hedge.opt_out_comment),
        ("cluster.opt_in_comment", settings.cluster.opt_in_comment),
    ):
        if word and comment_words(word) != {word.casefold()}:
            yield _finding(
                loaded,
                key,
                f"{word!r} is not one word, so no job's comment can match it",
                "Choose one word, without a space, comma, semicolon or colon",
            )


def _burst(loaded: LoadedSettings) -> Iterator[Finding]:
    settings = loaded.settings
    if settings.cluster.moves_jobs and not settings.ec2.image_id:
        yield _finding(
            loaded,
            "ec2.image_id",
            "mode `act` moves jobs, but no image is set from which their nodes can boot",
            "Set the AMI of the compute nodes, unless another ResumeProgram starts them",
            warn=True,
        )
    if settings.submit.budget_seconds > 0.1:
        yield _finding(
            loaded,
            "submit.budget_seconds",
            f"slurmctld holds its locks for up to {settings.submit.budget_seconds} s when the advisor hangs",
            "Set 0.05, in which the advisor answers many times over",
            warn=True,
        )


def _web(loaded: LoadedSettings) -> Iterator[Finding]:
    web = loaded.settings.web
    if any(ip_network(network).is_loopback for network in web.proxy_addresses):
        yield _finding(
            loaded,
            "web.proxy_addresses",
            "every process on this host can connect from there and claim to be any user",
            "Let the proxy use the Unix socket of advisor-web.socket, unless no user can log in here",
            warn=True,
        )
    if not web.is_for_this_machine_alone:
        yield _finding(
            loaded,
            "web.address",
            f"other machines can reach {web.address}, and what they send and see there is not encrypted",
            "Set 127.0.0.1, and let the site's proxy with TLS forward to the pages",
            warn=True,
        )


def _policy(loaded: LoadedSettings) -> Iterator[Finding]:
    """Findings about settings that the policy in force ignores or replaces."""
    policy, instead = loaded.settings.cluster.policy, fixed(loaded.settings)
    values = values_of(loaded.settings)
    for key, origin in loaded.origins.items():
        if origin.source == "default" or (key in instead and values[key] == instead[key]):
            continue
        if key in instead:
            what = f'the policy "{policy}" sets it to {toml_text(instead[key])}, and that holds instead'
        elif READ_BY.get(key, policy) != policy:
            what = f'the policy "{policy}" ignores it: only "{READ_BY[key]}" reads it'
        else:
            continue
        yield _finding(loaded, key, what, "Delete it, or choose another cluster.policy", warn=True)
