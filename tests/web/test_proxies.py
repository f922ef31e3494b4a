"""The documented examples for nginx and Apache, run by the real programs before the real pages."""

from __future__ import annotations

import base64
import http.client
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.web.conftest import COMMAND

pytestmark = pytest.mark.slow

PAGE = Path(__file__).resolve().parents[2] / "docs" / "pages.md"
NGINX = """
daemon off; pid {folder}/nginx.pid; error_log stderr; {user}
events {{}}
http {{
  access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{ listen 127.0.0.1:{port}; {example} }}
}}
"""
APACHE = """
ServerRoot {folder}
ServerName localhost
PidFile {folder}/apache.pid
Listen 127.0.0.1:{port}
ErrorLog /dev/stderr
DefaultRuntimeDir {folder}
Mutex file:{folder} default
{user}
{modules}
{example}
"""
MODULES = [
    "mpm_event",
    "authn_core",
    "authn_file",
    "authz_core",
    "authz_user",
    "auth_basic",
    "headers",
    "proxy",
    "proxy_http",
]


def example_of(language: str, folder: Path, door: Path) -> str:
    """An example of the page, with this test's files in place of the site's."""
    found = re.search(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    text = re.sub(r"/etc/\w+/burst-users", str(folder / "users"), found[1])
    assert "/run/advisor-web.sock" in text
    return text.replace("/run/advisor-web.sock", str(door))


@pytest.fixture
def folder() -> Iterator[Path]:
    """One into which the proxies' own user can look, unlike pytest's."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.fixture
def door(config: Path, folder: Path) -> Iterator[Path]:
    """The pages behind a Unix socket that was opened for them, as systemd does it."""
    config.write_text(
        config.read_text() + '[web]\nport = 0\nhosts = ["hpc.example.org"]\npath = "/burst"\n'
        'user_header = "X-Remote-User"\nadmins = ["root"]\n'
    )
    path = folder / "web.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(path))
        path.chmod(0o666)
        listening.listen()
        number = listening.fileno()
        passed = f'exec 3<&{number}; export LISTEN_PID=$$ LISTEN_FDS=1; exec "$@"'
        process = subprocess.Popen(
            ["/bin/bash", "-c", passed, "pages", *COMMAND, "web", "--config", str(config)],
            pass_fds=(number,),
            stderr=subprocess.DEVNULL,
        )
        yield path
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        return int(holder.getsockname()[1])


def asked(port: int, path: str, user: str, **headers: str) -> tuple[int, str]:
    """Status and text, once the proxy and the pages behind it answer."""
    end = time.monotonic() + 200.0
    given = {"Host": "hpc.example.org", **{name.replace("_", "-"): text for name, text in headers.items()}}
    if user:
        given["Authorization"] = "Basic " + base64.b64encode(f"{user}:secret".encode()).decode()
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=200)
        try:
            connection.request("GET", path, headers=given)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except OSError:
            assert time.monotonic() < end
            time.sleep(0.05)
        finally:
            connection.close()


@pytest.mark.parametrize("proxy", ["nginx", "apache"])
def test_the_documented_proxy_names_the_user_whom_it_has_let_in(proxy: str, door: Path, folder: Path) -> None:
    port = free_port()
    (folder / "users").write_text("".join(f"{name}:{{PLAIN}}secret\n" for name in ("root", "ann")))
    if proxy == "apache":  # it knows no plain passwords
        hashed = "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ="
        (folder / "users").write_text("".join(f"{name}:{hashed}\n" for name in ("root", "ann")))
    user = (
        {"nginx": "user root;", "apache": "User www-data\nGroup www-data"}[proxy] if not os.geteuid() else ""
    )
    modules = "\n".join(
        f"LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so" for name in MODULES
    )
    text = {"nginx": NGINX, "apache": APACHE}[proxy].format(
        folder=folder, port=port, user=user, modules=modules, example=example_of(proxy, folder, door)
    )
    settings = folder / "proxy.conf"
    settings.write_text(text)
    command = {
        "nginx": ["/usr/sbin/nginx", "-c", str(settings), "-p", str(folder)],
        "apache": ["/usr/sbin/apache2", "-f", str(settings), "-D", "FOREGROUND"],
    }[proxy]
    process = subprocess.Popen(command)
    try:
        assert asked(port, "/burst/ledger", "")[0] == 401
        status, page = asked(port, "/burst/jobs/11", "root")
        assert (status, "root, admin" in page) == (200, True), page
        assert 'href="/burst/decisions"' in page
        assert asked(port, "/burst/jobs/12", "ann")[0] == 200
        assert asked(port, "/burst/jobs/11", "ann")[0] == 403, "another user's job"
        assert asked(port, "/burst/jobs/11", "ann", X_Remote_User="root")[0] == 403, "the browser's own word"
    finally:
        process.terminate()
        process.wait(60)
