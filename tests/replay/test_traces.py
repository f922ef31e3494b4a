"""Fetching logs, from a server on the loopback that behaves well and badly."""

from __future__ import annotations

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from typer.testing import CliRunner

from advisor.cli.traces import group as command
from advisor.model.errors import BadInput, RetryLater, UseFallback
from advisor.replay.traces import (
    ACKNOWLEDGEMENT,
    ARCHIVE_URL,
    CATALOGUE,
    Trace,
    find_trace,
    get,
    is_good,
    named,
)

BODY = bytes(range(256)) * 1024
TRACE = Trace(
    name="tiny",
    path="l_tiny/Tiny-1.swf.gz",
    sha256=hashlib.sha256(BODY).hexdigest(),
    size_bytes=len(BODY),
    jobs=1,
    processors=1,
    contributors="nobody",
)


class Archive:
    """What the server does next, and what it was asked."""

    def __init__(self):
        self.body = BODY
        self.status = 200
        self.send_at_most = None
        self.knows_ranges = True
        self.asked = []


@pytest.fixture
def archive():
    state = Archive()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            state.asked.append((self.path, self.headers.get("Range")))
            if state.status != 200:
                self.send_error(state.status)
                return
            wanted = self.headers.get("Range")
            start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and state.knows_ranges else 0
            self.send_response(206 if start else 200)
            body = state.body[start:]
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: state.send_at_most])

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_port}/workload/"
    yield state
    server.shutdown()
    thread.join()
    server.server_close()


def test_fetches_whole_and_checked(archive, tmp_path):
    seen = []
    path = get(TRACE, tmp_path / "new", archive_url=archive.url, progress=lambda *now: seen.append(now))
    assert path.read_bytes() == BODY
    assert archive.asked == [("/workload/l_tiny/Tiny-1.swf.gz", None)]
    assert seen[-1] == (len(BODY), len(BODY))
    assert [file.name for file in path.parent.iterdir()] == [TRACE.file_name]


def test_good_file_is_not_fetched_again(archive, tmp_path):
    get(TRACE, tmp_path, archive_url=archive.url)
    get(TRACE, tmp_path, archive_url=archive.url)
    assert len(archive.asked) == 1


def test_another_file_of_that_name_is_left_alone(archive, tmp_path):
    mine = tmp_path / TRACE.file_name
    mine.write_bytes(b"mine")
    with pytest.raises(BadInput, match="another file"):
        get(TRACE, tmp_path, archive_url=archive.url)
    assert mine.read_bytes() == b"mine"
    assert archive.asked == []


def test_broken_transfer_goes_on_where_it_stopped(archive, tmp_path):
    archive.send_at_most = 100_000
    with pytest.raises(RetryLater, match="100,000 of 262,144 bytes"):
        get(TRACE, tmp_path, archive_url=archive.url)
    assert not (tmp_path / TRACE.file_name).exists()
    archive.send_at_most = None
    assert get(TRACE, tmp_path, archive_url=archive.url).read_bytes() == BODY
    assert [wanted for _, wanted in archive.asked] == [None, "bytes=100000-"]


def test_server_without_ranges_is_asked_for_everything(archive, tmp_path):
    archive.send_at_most = 100_000
    with pytest.raises(RetryLater):
        get(TRACE, tmp_path, archive_url=archive.url)
    archive.send_at_most, archive.knows_ranges = None, False
    assert get(TRACE, tmp_path, archive_url=archive.url).read_bytes() == BODY


@pytest.mark.parametrize("body", [BODY[:-1] + b"x", BODY + b"more"], ids=["changed", "longer"])
def test_wrong_checksum_leaves_nothing(archive, tmp_path, body):
    archive.body = body
    with pytest.raises(UseFallback, match="checksum"):
        get(TRACE, tmp_path, archive_url=archive.url)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("status", "error"), [(404, UseFallback), (503, RetryLater), (429, RetryLater)])
def test_refusals(archive, tmp_path, status, error):
    archive.status = status
    with pytest.raises(error, match=str(status)):
        get(TRACE, tmp_path, archive_url=archive.url)
    assert not (tmp_path / TRACE.file_name).exists()


def test_no_server(tmp_path):
    with pytest.raises(RetryLater):
        get(TRACE, tmp_path, archive_url="http://127.0.0.1:9")


def test_no_web_address(tmp_path):
    with pytest.raises(BadInput, match="web address"):
        get(TRACE, tmp_path, archive_url=tmp_path.as_uri())


def test_folder_that_is_a_file(archive, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="cannot be written"):
        get(TRACE, tmp_path / "file", archive_url=archive.url)


def test_catalogue():
    assert named("HPC2N").processors == 240
    assert all(len(trace.sha256) == 64 for trace in CATALOGUE.values())
    assert ARCHIVE_URL.startswith("https://")
    with pytest.raises(BadInput, match="hpc2n"):
        named("nothing")


@pytest.mark.traces
def test_catalogue_describes_the_real_logs(traces):
    here = [trace for trace in CATALOGUE.values() if (traces / trace.file_name).exists()]
    assert here
    for trace in here:
        assert is_good(traces / trace.file_name, trace), trace.name
        assert (traces / trace.file_name).stat().st_size == trace.size_bytes


def test_a_log_that_may_not_be_looked_at_is_bad_input():
    with pytest.raises(BadInput, match=r"cannot look at x.*File name too long"):
        find_trace("x" * 300)


def test_list_and_get_on_the_command_line(archive, tmp_path, monkeypatch):
    monkeypatch.setitem(CATALOGUE, "tiny", TRACE)
    where = ["--folder", str(tmp_path), "--format", "json"]
    got = CliRunner().invoke(command, ["get", "tiny", *where], env={"ADVISOR_ARCHIVE_URL": archive.url})
    assert json.loads(got.stdout)["path"] == str(tmp_path / TRACE.file_name)
    assert json.loads(got.stdout)["acknowledgement"] == ACKNOWLEDGEMENT
    listed = json.loads(CliRunner().invoke(command, ["list", *where]).stdout)
    assert [row["name"] for row in listed["traces"] if row["is_here"]] == ["tiny"]
    assert "Feitelson" in CliRunner().invoke(command, ["list", "--folder", str(tmp_path)]).stdout
