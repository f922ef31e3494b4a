"""Check EC2: credentials, permissions, image, names and clock; nothing is launched."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, Final

from advisor.ec2.clients import REFUSED_CREDENTIALS, client
from advisor.ec2.errors import answer_or_failure
from advisor.ec2.paid import paid_book
from advisor.ec2.pools import instance_types
from advisor.ec2.prices import Prices
from advisor.ec2.reading_account import AccountCache
from advisor.ec2.tags import CLUSTER_TAG
from advisor.model.errors import AdvisorError
from advisor.model.settings import Settings
from advisor.service.admin.doctor import Diagnosis, error, guarded, ok, warning

_SKEW_SECONDS: Final = 60.0
"""EC2 refuses requests whose time is five minutes off; this warns earlier."""


def examine_cloud(settings: Settings) -> Iterator[Diagnosis]:
    """Check whether this host can read EC2."""
    if not settings.ec2.image_id:
        why = "ec2.image_id is empty: no cloud node is started"
        yield from guarded("ec2", [warning(why, "Set it to the nodes' AMI")])
        return
    yield from guarded("ec2", _reach(settings))
    yield from guarded("ec2", _may_list(settings))
    yield from guarded("ec2", _names(settings))
    yield from guarded("paid capacity", _account(settings))


def _reach(settings: Settings) -> Iterator[Diagnosis]:
    ec2 = client("ec2", settings.ec2)
    stamps: list[str] = []

    def note_time(http_response: Any, **_: Any) -> None:
        """A refusal has EC2's time as well, and a wrong clock is a reason for one."""
        stamps.extend(filter(None, [http_response.headers.get("date")]))

    ec2.meta.events.register("after-call", note_time)
    answer, failure = answer_or_failure(lambda: ec2.describe_images(ImageIds=[settings.ec2.image_id]))
    if failure is not None:
        mend = "Give this host an instance profile or other credentials that botocore finds; check ec2.region"
        if failure.code.startswith("InvalidAMIID"):
            mend = "Correct ec2.image_id or ec2.region"
        yield error(f"{failure.code}: {failure.message}", mend)
    elif not answer.get("Images"):
        yield error(f"there is no image {settings.ec2.image_id}", "Correct ec2.image_id or ec2.region")
    else:
        yield ok(f"reached in {settings.ec2.region}; image {settings.ec2.image_id} exists")
    yield from guarded("clock", map(_clock, stamps[-1:]))


def _clock(stamp: str) -> Diagnosis:
    skew = time.time() - parsedate_to_datetime(stamp).timestamp()
    if abs(skew) > _SKEW_SECONDS:
        what = f"this host's clock differs by {skew:+.0f} s from EC2's"
        return error(what, "Run chrony or ntpd here")
    return ok(f"within {abs(skew) + 1:.0f} s of EC2's")


def _may_list(settings: Settings) -> Iterator[Diagnosis]:
    """Check the call without which no node is launched or ended; only that it is allowed."""
    ours = [{"Name": f"tag:{CLUSTER_TAG}", "Values": [settings.cluster.name]}]
    call = partial(client("ec2", settings.ec2).describe_instances, Filters=ours, MaxResults=5)
    _, failure = answer_or_failure(call)
    if failure is None:
        yield ok("instances can be listed")
    else:
        what = (
            f"instances cannot be listed, so no node is launched or ended ({failure.code}: {failure.message})"
        )
        is_refused = failure.code in REFUSED_CREDENTIALS
        mend = "Renew the credentials" if is_refused else "Give the policy of docs/iam.md to this host's role"
        yield error(what, mend)


def _names(settings: Settings) -> Iterator[Diagnosis]:
    """Check that EC2 knows what launches name; whether it may be asked at all is said by the checks above."""
    ec2, types = client("ec2", settings.ec2), list(instance_types(settings.ec2))
    asked = {"ec2.instance_type or ec2.classes": partial(ec2.describe_instance_types, InstanceTypes=types)}
    if settings.ec2.subnet_ids:
        subnets = list(settings.ec2.subnet_ids)
        asked["ec2.subnet_ids"] = partial(ec2.describe_subnets, SubnetIds=subnets)
    for key, call in asked.items():
        _, failure = answer_or_failure(call)
        if failure is not None and failure.code.startswith("Invalid"):
            mend = f"Correct {key}, or ec2.region"
            yield error(f"no node can be launched ({failure.code}: {failure.message})", mend)


def _account(settings: Settings) -> Iterator[Diagnosis]:
    """Check which capacity is paid for and which quotas the account has, as far as they can be read."""
    cache = AccountCache(settings.ec2, settings.cluster.name)
    sources = {
        "capacity reservations": cache.refresh_reservations,
        "reserved instances": cache.refresh_reserved,
        "Savings Plans": cache.refresh_plans,
        "quotas": cache.refresh_quotas,
    }
    unread = []
    for name, refresh in sources.items():
        try:
            refresh()
        except AdvisorError as problem:
            unread.append(name)
            mend = "Give the policy of docs/iam.md to this host: what cannot be read counts as not there"
            yield warning(f"{name}: {problem}", mend)
    if unread:
        return  # what is known is not all of it
    prices = Prices.of_settings(settings.ec2)
    rows = paid_book(cache.account, settings, prices, (), frozenset()).rows
    kinds = Counter(row.kind.value for row in rows)
    bought = ", ".join(f"{number} x {kind}" for kind, number in sorted(kinds.items()))
    quotas = ", ".join(f"{code} {vcpus:.0f} vCPUs" for code, vcpus in sorted(cache.account.quotas.items()))
    yield ok(f"{bought or 'nothing is paid for'}; quotas: {quotas or 'not known'}")
