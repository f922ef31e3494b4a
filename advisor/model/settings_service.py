"""Settings of the services: the submit path, the loops of `advisor control`, and the pages for admins."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import Annotated

from pydantic import AfterValidator

from advisor.model.settings_section import Section, setting


def _network(text: str) -> str:
    ip_network(text)
    return text


Network = Annotated[str, AfterValidator(_network)]
"""An IP address, or a network such as 192.0.2.0/28."""


class SubmitSettings(Section):
    """The path inside sbatch: the hook in slurmctld and `advisor serve`, which answers it."""

    budget_seconds: float = setting(
        0.05,
        "The longest time that the hook waits for an answer. slurmctld holds locks meanwhile. The hook "
        "reads its own copy; after a change: `advisor config hook > /etc/slurm/advisor_hook.conf && touch "
        "/etc/slurm/job_submit.lua`.",
        why="An answer takes well under 1 ms, so 50 ms leaves room for a busy host, and users do not notice "
        "it.",
        unit="s",
        ge=0.001,
        le=0.5,
        expert=True,
    )
    breaker_failures: int = setting(
        2,
        "After this many failures in a row the hook waits for no answer, and jobs are accepted as submitted, "
        "until the server has answered a question that is left with it (`breaker_seconds`). It is in the "
        "hook's own copy, like `budget_seconds`.",
        why="One failure can be chance. Each further one delays all submissions by `budget_seconds`, since "
        "slurmctld runs one hook at a time.",
        ge=1,
        le=1000,
        expert=True,
    )
    breaker_seconds: float = setting(
        10.0,
        "How often the hook leaves a question with a server that has not answered, without waiting. It is in "
        "the hook's own copy, like `budget_seconds`.",
        why="A restart of `advisor serve` takes a few seconds; a longer pause leaves jobs without advice. No "
        "submission is delayed by it.",
        unit="s",
        ge=0.1,
        le=3600.0,
        expert=True,
    )
    tell_user: bool = setting(
        True,
        "Print one line on the user's terminal when the advisor moves the job, in the modes `advise` and "
        "`opt-in` also when it would, and about what the job's comment asks for (`by=`, `data=`).",
        why="A user who sees another partition than the one they expected should learn the reason at once.",
        expert=True,
    )
    allowed_uids: tuple[int, ...] = setting(
        (),
        "User ids that may ask for advice besides root, SlurmUser and the user of the server. They may also "
        "ask `advisor control` to start and end nodes, as slurmctld's programs do.",
        why="Only slurmctld needs to ask.",
        expert=True,
    )
    every_user: bool = setting(
        False,
        "Whether each user may ask about a job of their own, as LSF's esub does (docs/lsf.md). The submit "
        "socket then has mode 0666. A user may ask nothing else, and nothing about another user's job.",
        why="Under Slurm only slurmctld asks.",
        expert=True,
    )
    socket_group: str = setting(
        "",
        "The group that owns the sockets of `advisor serve` and `advisor control`. Empty means the group of "
        "each server.",
        why="The installed units run the server in slurmctld's group already.",
        expert=True,
    )
    snapshot_max_age_seconds: float = setting(
        60.0,
        "The greatest age of a usable snapshot of the cluster. With an older one every job stays on-premise.",
        why="Twelve polls may fail at the default of `loops.snapshot_seconds`; a queue that is a "
        "minute old still predicts waits of many minutes.",
        unit="s",
        gt=0.0,
        le=3600.0,
        expert=True,
    )


class LoopSettings(Section):
    """Periods of the loops of `advisor control`, and where it serves /metrics."""

    snapshot_seconds: float = setting(
        5.0,
        "The period of the poll of squeue and sinfo; all loops share the result. It must be less than "
        "`submit.snapshot_max_age_seconds`, better a few times less, or no job moves between two polls.",
        why="One squeue and one sinfo every five seconds are little load for slurmctld; clusters with "
        "50,000 queued jobs may need a longer period.",
        unit="s",
        gt=0.0,
        expert=True,
    )
    watch_seconds: float = setting(
        15.0,
        "The period in which hedged jobs, and jobs put first as small, are examined. While a job is hedged "
        "it is at most `snapshot_seconds`.",
        why="These jobs run for minutes at least, so that a quarter of a minute changes little.",
        unit="s",
        gt=0.0,
        expert=True,
    )
    learn_seconds: float = setting(
        15.0,
        "The period in which finished jobs are read from the accounting, stored and learned from.",
        why="A forecast changes little within a quarter of a minute, and each round costs slurmdbd one "
        "query.",
        unit="s",
        gt=0.0,
        expert=True,
    )
    reconcile_seconds: float = setting(
        15.0,
        "The period in which Slurm's nodes are compared with EC2's instances.",
        why="It finds lost instances within a fraction of EC2's minimum charge of 60 s and stays far below "
        "EC2's limit of describe requests.",
        unit="s",
        gt=0.0,
        expert=True,
    )
    match_seconds: float = setting(
        20.0,
        "The period in which cloud nodes are ranked by their expected life, so that long jobs prefer those "
        "that are likely to last (`matching.enabled`).",
        why="A node that has become free is ranked long before a new one could be up.",
        unit="s",
        gt=0.0,
        expert=True,
    )
    acquire_seconds: float = setting(
        3600.0,
        "The period in which idle nodes that are kept up (`acquirer.kept_nodes`) are exchanged for ones that "
        "are likely to last longer. The burst partition's SuspendTime must be at least twice as long.",
        why="In simulations half an hour to two hours gave the same result.",
        unit="s",
        gt=0.0,
        expert=True,
    )
    orphan_grace_seconds: float = setting(
        120.0,
        "The time for which an instance that belongs to no node of Slurm is left running.",
        why="A launch or a node's registration that is under way explains such an instance for a minute or "
        "so; each orphan costs two minutes more.",
        unit="s",
        gt=0.0,
        expert=True,
    )
    ledger_days: float = setting(
        400.0,
        "Advice leaves the ledger after so many days.",
        why="A month can be compared with that of the year before. 20,000 submissions a day take about 80 MB "
        "of the database a day.",
        unit="days",
        ge=30.0,
        expert=True,
    )
    metrics_address: str = setting(
        "127.0.0.1",
        "The address on which /metrics is served.",
        why="The page has no login, so only the controller itself can read it.",
        expert=True,
    )
    metrics_port: int = setting(
        9419,
        "The port of /metrics; 0 switches it off.",
        why="It lies in the range from 9100 on that Prometheus exporters use.",
        ge=0,
        le=65535,
        expert=True,
    )


class WebSettings(Section):
    """Pages (`advisor web`): who may see them, and where they are."""

    address: str = setting(
        "127.0.0.1",
        "The address on which the pages are served. A person who opens one has to sign in.",
        why="Other machines reach the pages through the site's own proxy, which has TLS.",
        min_length=1,
        expert=True,
    )
    port: int = setting(
        9420,
        "The port of the pages; 0 takes any free port.",
        why="It is the port after that of /metrics.",
        ge=0,
        le=65535,
        expert=True,
    )
    hosts: tuple[str, ...] = setting(
        (),
        "The host names, without port, by which the site's proxy asks for the pages. Requests for names "
        "other than these and this machine's own are refused, so that a foreign page cannot read them "
        "through an admin's browser.",
        why="Without a proxy no other name is needed.",
        expert=True,
    )
    path: str = setting(
        "",
        "The path under which the proxy serves the pages and which it takes off, such as `/advisor`.",
        why="Without a proxy the pages are at the root.",
        form="a path such as /advisor, of letters, digits and . _ ~ -",
        pattern=r"^(/[A-Za-z0-9._~-]+)*$",
        max_length=200,
        expert=True,
    )
    user_header: str = setting(
        "",
        "The header in which the site's proxy names the user that it has let in, such as `X-Remote-User`. "
        "It is believed only in requests that come from `proxy_addresses`, or through the Unix socket of "
        "advisor-web.socket. Empty: only links of `advisor web link` let people in.",
        why="Only the site knows whether its proxy sets one.",
        form="the name of a header, of letters, digits and -",
        pattern=r"^[A-Za-z0-9-]*$",
        max_length=80,
        expert=True,
    )
    proxy_addresses: tuple[Network, ...] = setting(
        (),
        "The addresses or networks of proxies whose `user_header` is believed. Every process that can "
        "connect from there can name any user; on a host with users the Unix socket is safer.",
        why="A proxy on the same host uses the Unix socket.",
        expert=True,
    )
    admins: tuple[str, ...] = setting(
        (),
        "The users, as `user_header` names them, who see everything and may change settings (page *Tune*).",
        why="Only the site knows them. All others see their own jobs only.",
        expert=True,
    )
    operators: tuple[str, ...] = setting(
        (),
        "The users, as `user_header` names them, who see everything and may ask what-ifs.",
        why="Only the site knows them.",
        expert=True,
    )

    @property
    def is_for_this_machine_alone(self) -> bool:
        """Whether no other machine can reach the address."""
        try:
            return ip_address(self.address).is_loopback
        except ValueError:
            return self.address.lower() == "localhost"
