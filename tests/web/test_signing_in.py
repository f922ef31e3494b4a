"""Who may see what: links, the proxy's header, roles, forms and cookies."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from advisor.model.settings_service import WebSettings
from advisor.web.gate import COOKIE, Gate
from advisor.web.links import Links
from advisor.web.persons import Person, Role, role_of
from tests.commands import app
from tests.web.conftest import ADDRESS, ADMIN, Ask

ANN = Person("ann", Role.USER)


def stranger(client: TestClient) -> TestClient:
    """A browser that has no cookie, at the same site."""
    return TestClient(client.app, base_url=ADDRESS, follow_redirects=False)


def as_person(client: TestClient, person: Person) -> TestClient:
    asking = stranger(client)
    asking.cookies.set(COOKIE, client.site.gate.open(person))
    return asking


def printed_link(config: Path, *options: str) -> str:
    done = CliRunner().invoke(app, ["web", "link", "--config", str(config), *options])
    assert done.exit_code == 0, done.output
    return done.stdout.strip()


@pytest.mark.parametrize(
    "path", ["/", "/decisions", "/jobs/11", "/ledger", "/portfolio", "/whatif", "/jobs?job=11"]
)
def test_who_has_not_signed_in_sees_nothing(client: TestClient, path: str) -> None:
    answer = stranger(client).get(path)
    assert answer.status_code == 401
    assert "advisor web link" in answer.text
    assert "advice-11" not in answer.text
    assert stranger(client).get(path, headers={"accept": "application/json"}).status_code == 401
    assert stranger(client).get("/static/style.css").status_code == 200


def test_who_asks_for_a_link_is_told_that_nothing_listens(config: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as pages:
        text = f"{config.read_text()}\n[web]\nport = {pages.getsockname()[1]}\n"
        config.write_text(text)
        assert CliRunner().invoke(app, ["web", "link", "--config", str(config)]).stderr == ""
    told = CliRunner().invoke(app, ["web", "link", "--config", str(config)])
    assert "systemctl enable --now advisor-web" in told.stderr
    assert told.stdout.startswith("http://")
    assert told.stdout.count("\n") == 1


def test_a_link_lets_one_person_in_once(client: TestClient, config: Path) -> None:
    asking, link = stranger(client), printed_link(config, "--user", "kim", "--role", "operator")
    path = link.removeprefix(ADDRESS)
    token = path.partition("link=")[2]
    folder = config.parent / "state" / "web" / "links"
    assert [token in file.name or token in file.read_text() for file in folder.iterdir()] == [False]
    assert asking.get(path).status_code == 200, "a look at the page"
    assert asking.get("/ledger").status_code == 401, "does not use it up, and lets nobody in"
    entered = asking.post("/signin", data={"link": token})
    assert (entered.status_code, entered.headers["location"]) == (303, "/")
    cookie = entered.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "secure" not in cookie
    page = asking.get("/ledger")
    assert page.status_code == 200
    assert "kim, operator" in page.text
    again = stranger(client).post("/signin", data={"link": token})
    assert again.status_code == 403
    assert "used before" in again.text
    assert list(folder.iterdir()) == []


def test_over_tls_the_cookie_stays_there(client: TestClient, config: Path) -> None:
    token = printed_link(config).partition("link=")[2]
    origin = ADDRESS.replace("http:", "https:")
    entered = stranger(client).post("/signin", data={"link": token}, headers={"origin": origin})
    assert "secure" in entered.headers["set-cookie"].lower()


@pytest.mark.parametrize("token", ["", "guessed", "../links/x", "x" * 300, "\u00e9", "."])
def test_a_bad_token_is_refused(client: TestClient, config: Path, token: str) -> None:
    printed_link(config)
    answer = stranger(client).post("/signin", data={"link": token})
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


def test_a_link_that_is_too_old_is_refused_and_removed(tmp_path: Path) -> None:
    links = Links(tmp_path)
    tokens = [links.make(ADMIN, until=100.0) for _ in range(3)]
    assert links.use(tokens[0], now=100.0) is None
    assert list((tmp_path / "web" / "links").iterdir()) == [], "all that are too old"
    assert links.use(links.make(ADMIN, until=100.0), now=99.0) == ADMIN


@pytest.mark.parametrize("wrong", [("--role", "root"), ("--user", ""), ("--user", "a\nb")])
def test_a_link_for_nobody_is_not_made(config: Path, wrong: tuple[str, str]) -> None:
    done = CliRunner().invoke(app, ["web", "link", "--config", str(config), *wrong])
    assert done.exit_code != 0
    assert not (config.parent / "state" / "web").exists()


def test_the_link_leads_to_the_proxys_name(empty: Path) -> None:
    empty.write_text(empty.read_text() + '[web]\nhosts = ["hpc.example.org"]\npath = "/burst"\n')
    assert printed_link(empty).startswith("https://hpc.example.org/burst/signin?link=")


def test_a_session_ends(client: TestClient) -> None:
    asking = as_person(client, ADMIN)
    token = re.search(r'name="token" value="([^"]+)"', asking.get("/ledger").text)
    assert token is not None
    kept = asking.cookies.get(COOKIE)
    assert asking.post("/signout", data={"token": token[1]}).status_code == 303
    asking.cookies.set(COOKIE, str(kept))
    assert asking.get("/ledger").status_code == 401, "the server has forgotten it"


def test_a_session_does_not_outlive_its_time() -> None:
    now = [0.0]
    gate = Gate(WebSettings, lambda: now[0])
    cookie = gate.open(ADMIN)
    request: Any = type("Asked", (), {"cookies": {COOKIE: cookie}})
    assert gate._by_cookie(request) == ADMIN
    now[0] = 12 * 3600.0
    assert gate._by_cookie(request) is None


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/jobs/12", 200),
        ("/jobs/13", 200),
        ("/jobs/11", 403),
        ("/jobs/7", 403),
        ("/jobs/99", 403),
        ("/decisions", 200),
        ("/", 303),
        ("/ledger", 403),
        ("/nodes", 403),
        ("/money", 403),
        ("/accuracy", 403),
        ("/tune", 403),
        ("/portfolio", 403),
        ("/whatif", 403),
        ("/whatif/none", 403),
        ("/jobsx", 404),
    ],
)
def test_a_user_sees_jobs_of_their_own_only(client: TestClient, path: str, status: int) -> None:
    asking = as_person(client, ANN)
    assert asking.get(path).status_code == status
    assert asking.get(path, headers={"accept": "application/json"}).status_code == status


@pytest.mark.parametrize("name", [" ", " ann"])
def test_a_name_with_blanks_is_no_other_name(client: TestClient, name: str) -> None:
    found = as_person(client, Person(name, Role.USER)).get("/decisions?since=7d&format=json").json()
    assert (found["total"], found["decisions"]) == (0, [])


def test_a_user_who_asks_for_anothers_decisions_gets_their_own(client: TestClient) -> None:
    page = as_person(client, ANN).get("/decisions", params={"user": "bob", "format": "json"}).json()
    assert {row["user"] for row in page["decisions"]} == {"ann"}
    text = as_person(client, ANN).get("/decisions").text
    assert 'href="/ledger"' not in text, "no link to what is refused"


def test_an_operator_asks_what_ifs_and_applies_nothing() -> None:
    operator = Person("kim", Role.OPERATOR)
    assert operator.may("GET", "/tune")
    assert operator.may("POST", "/whatif")
    assert not operator.may("POST", "/tune/apply")
    assert not operator.may("POST", "/anything")
    assert not ANN.may("POST", "/whatif")
    assert Person("root", Role.ADMIN).may("POST", "/tune/apply")


def test_a_form_of_another_person_is_refused(client: TestClient) -> None:
    theirs = client.site.gate.form_token(Person("kim", Role.OPERATOR))
    assert client.post("/signout", data={"token": theirs}).status_code == 403
    assert client.get("/ledger").status_code == 200


PROXY = '[web]\nuser_header = "X-Remote-User"\nadmins = ["root"]\noperators = ["kim"]\n'


def asked_from(client: TestClient, peer: Any, server: Any, **headers: str) -> int:
    """Status of an answer to a request by a connection from ``peer`` to ``server``, as uvicorn tells them."""

    async def told(scope: Any, receive: Any, send: Any) -> None:
        await client.app({**scope, "client": peer, "server": server}, receive, send)

    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return TestClient(told, base_url=ADDRESS).get("/ledger", headers=given).status_code


def test_the_proxys_word_is_taken_from_the_proxy_alone(empty: Path, config: Path, ask_site: Ask) -> None:
    config.write_text(config.read_text() + PROXY + 'proxy_addresses = ["192.0.2.0/28", "2001:db8::1"]\n')
    client = ask_site(config)
    tcp, unix = ("127.0.0.1", 9420), ("/run/advisor-web.sock", None)
    assert asked_from(client, None, unix, x_remote_user="kim") == 200
    assert asked_from(client, ("192.0.2.7", 1), tcp, x_remote_user="kim") == 200
    assert asked_from(client, ("2001:db8::1", 1), tcp, x_remote_user="root") == 200
    for peer in (("192.0.2.17", 1), ("127.0.0.1", 1), ("nonsense", 1), None):
        assert asked_from(client, peer, tcp, x_remote_user="root") == 401, "whoever says so"
    for name in ("", "a b", "x" * 81, "<b>"):
        assert asked_from(client, None, unix, x_remote_user=name) == 401, name
    assert asked_from(client, None, unix, x_remote_user="ann") == 403, "a user, signed in, not allowed"
    assert asked_from(client, None, unix, remote_user="root") == 401


def test_two_names_are_none(config: Path, ask_site: Ask) -> None:
    config.write_text(config.read_text() + PROXY + 'proxy_addresses = ["192.0.2.1"]\n')
    client = ask_site(config)
    asking = TestClient(client.app, base_url=ADDRESS, client=("192.0.2.1", 1))
    twice = [("x-remote-user", "root"), ("x-remote-user", "kim")]
    assert asking.get("/ledger", headers=twice[:1]).status_code == 200
    assert asking.get("/ledger", headers=twice).status_code == 401


def test_without_the_setting_no_header_is_believed(client: TestClient) -> None:
    assert asked_from(client, None, ("/run/x", None), x_remote_user="root") == 401


def test_a_host_header_does_not_make_an_address_an_open_one(client: TestClient) -> None:
    for host in ("127.0.0.1/static/?", "127.0.0.1/signin?", "127.0.0.1/static/#"):
        answer = stranger(client).get("/ledger", headers={"host": host})
        assert answer.status_code in {401, 421}, host


def test_roles_are_those_of_the_settings() -> None:
    web = WebSettings(admins=("root",), operators=("kim", "root"))
    assert [role_of(name, web) for name in ("root", "kim", "ann", "")] == [
        Role.ADMIN,
        Role.OPERATOR,
        Role.USER,
        Role.USER,
    ]


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="proxy_addresses"):
        WebSettings(proxy_addresses=("proxy.example.org",))
