"""The process: ready when warm, clean when stopped, unharmed by a kill, clear when misconfigured."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from advisor.model.errors import BadInput
from advisor.model.settings import Settings
from advisor.service.exchange import snapshot
from advisor.service.exchange.spool import complete_files
from advisor.service.running.notify import Notifier
from advisor.service.submit.serve import Service
from tests.history.conftest import as_nobody
from tests.service.processes import ServeProcess, run_and_fail
from tests.service.site import make_settings, make_snapshot


@pytest.fixture
def serving() -> Iterator[Callable[..., ServeProcess]]:
    with ExitStack() as processes:
        yield lambda *arguments, **options: processes.enter_context(ServeProcess(*arguments, **options))


def advised(settings: Settings) -> int:
    return sum(len(file.records) for file in complete_files(settings.paths.spool))


def test_ready_answers_reloads_and_stops_cleanly(
    tmp_path: Path, serving: Callable[..., ServeProcess]
) -> None:
    import time

    settings = make_settings(tmp_path)
    snapshot.write(settings.paths.snapshot, make_snapshot(now=time.time()))
    config = tmp_path / "advisor.toml"
    config.write_text('[rules]\nopt_out_comment = "no-burst"\n')
    process = serving(settings, config=config)
    assert process.start().startswith("READY=1\n")
    with process.client() as client:
        assert client.ping().snapshot_usable, "what there is, is read before READY"
        assert client.advise(comment="stay-here").reason == "turnaround.wait_unknown"
        config.write_text('[rules]\nopt_out_comment = "stay-here"\n')
        process.signal(signal.SIGHUP)
        pause = threading.Event()
        while client.advise(comment="stay-here", dry=True).reason != "rule.opt_out_comment":
            pause.wait(0.02)
        config.write_text("[rules]\nopt_out = 1\n")
        process.signal(signal.SIGHUP)
        assert client.advise(comment="stay-here").reason == "rule.opt_out_comment", "bad: the old ones stay"
    assert process.stop() == 0
    assert "settings.not_reloaded" in process.output
    assert not settings.paths.submit_socket.exists()
    assert advised(settings) == 2


def test_a_kill_leaves_nothing_that_hinders_the_next_start(
    tmp_path: Path, serving: Callable[..., ServeProcess]
) -> None:
    settings = make_settings(tmp_path)
    process = serving(settings)
    process.start()
    process.kill()
    assert settings.paths.submit_socket.exists()
    process.start()
    with process.client() as client:
        assert client.ping().pid
    second = run_and_fail(process._environment)
    assert second.returncode == 2
    assert "another process listens on this socket" in second.stderr
    assert process.stop() == 0


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"ADVISOR_PATHS__RUN": "x" * 120}, "path too long"),
        ({"ADVISOR_PATHS__RUN": "none/here"}, "No such file or directory"),
        ({"ADVISOR_SUBMIT__SOCKET_GROUP": "no-such-group"}, "no such group: 'no-such-group'"),
        ({"ADVISOR_PATHS__STATE": "file"}, "spool folder cannot be used"),
    ],
)
def test_bad_settings_exit_with_2_and_a_clear_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: dict[str, str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    settings = make_settings(tmp_path)
    done = run_and_fail({**ServeProcess(settings)._environment, **wrong})
    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())
    assert done.stdout == ""
    assert not settings.paths.submit_socket.exists()


def test_no_permission_is_a_clear_message(open_folder: Path) -> None:
    settings = make_settings(open_folder)
    settings.paths.run.chmod(0o555)
    settings.paths.state.chmod(0o555)
    service = Service(settings, load_model=lambda _version: None, notifier=Notifier(None))
    with as_nobody(), pytest.raises(BadInput) as caught:
        service.start()
    assert caught.value.code == "socket.cannot_bind"
    settings.paths.run.chmod(0o777)
    with as_nobody(), pytest.raises(BadInput) as caught:
        service.start()
    assert caught.value.code == "spool.folder"
    assert list(settings.paths.run.iterdir()) == []


def test_a_stuck_answer_is_not_called_alive(tmp_path: Path) -> None:
    service = Service(make_settings(tmp_path), load_model=lambda _version: None, notifier=Notifier(None))
    assert service.is_answering(timeout=0.01)
    with service.answerer.lock:
        assert not service.is_answering(timeout=0.01)
