"""Clients of AWS: what becomes of credentials that are changed while a process runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.ec2.clients import client
from advisor.ec2.errors import ask
from advisor.model.errors import TellAdmin
from advisor.model.settings_cloud import Ec2Settings
from advisor.testing.ec2 import Ec2Emulator

pytestmark = pytest.mark.ec2


def test_keys_that_were_renewed_in_their_file_are_used_once_the_old_ones_are_refused(
    emulator: Ec2Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "credentials"
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))

    def renew(key: str) -> None:
        file.write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = made-up\n")

    renew("OLD")
    signed_by: list[str] = []
    ec2 = client("ec2", emulator.settings())

    def list_instances() -> None:
        ask(ec2.describe_instances)
        signed_by.append(ec2._client._request_signer._credentials.access_key)

    list_instances()
    renew("NEW")
    list_instances()
    emulator.faults([{"error": {"code": "RequestExpired"}, "times": 1}])
    with pytest.raises(TellAdmin, match="RequestExpired"):
        list_instances()
    list_instances()
    assert signed_by == ["OLD", "OLD", "NEW"]


def test_the_endpoint_of_one_service_is_of_that_service_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/iam.md names them for VPC endpoints, and the hosts that a firewall has to let through."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "made-up")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL_EC2", "https://vpce-1.example")
    hosts = {
        service: client(service, Ec2Settings(region="eu-central-1")).meta.endpoint_url
        for service in ("ec2", "sqs", "savingsplans", "service-quotas")
    }
    assert hosts.pop("ec2") == "https://vpce-1.example"
    page = (Path(__file__).parents[2] / "docs" / "iam.md").read_text(encoding="utf-8")
    for host in hosts.values():
        assert host.removeprefix("https://").replace("eu-central-1", "REGION") in page
