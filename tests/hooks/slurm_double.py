"""A test double of what slurmctld gives job_submit.lua, for any Lua that lupa brings (5.1 to 5.4).

It refuses what slurmctld 22.05 does not know: reading or setting an unknown field, setting a read-only one, a
value of the wrong type. A refusal inside the hook would be swallowed by the hook's own pcall, so refusals are
collected in ``violations`` and the tests look at them.
"""

from __future__ import annotations

import importlib
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HOOK = Path(__file__).resolve().parent.parent.parent / "slurm_hooks" / "job_submit.lua"
LUA_VERSIONS = ("lua51", "lua52", "lua53", "lua54")

NO_VAL = 4294967294.0
NO_VAL16 = 65534.0
NO_VAL64 = 18446744073709551614.0
INFINITE = 4294967295.0
NICE_OFFSET = 2147483648.0


def _read_fields() -> dict[str, list[str]]:
    text = (Path(__file__).parent / "slurm_fields.txt").read_text()
    parts = re.split(r"^\[(\w+)\]$", text, flags=re.MULTILINE)[1:]
    return {name: words.split() for name, words in zip(parts[::2], parts[1::2], strict=True)}


FIELDS = _read_fields()

PLAIN_JOB: dict[str, Any] = {
    "user_id": 1000.0,
    "user_name": "alice",
    "group_id": 1000.0,
    "het_job_offset": NO_VAL,
    "script": "#!/bin/sh\ntrue\n",
    "name": "wrap",
    "min_cpus": 1.0,
    "min_nodes": NO_VAL,
    "num_tasks": NO_VAL,
    "cpus_per_task": NO_VAL16,
    "ntasks_per_node": NO_VAL16,
    "requeue": NO_VAL16,
    "time_limit": NO_VAL,
    "nice": NO_VAL,
    "priority": NO_VAL,
    "site_factor": NO_VAL,
}
PARTITIONS: dict[str, dict[str, Any]] = {
    "onprem": {
        "flag_default": 1.0, "max_time": INFINITE, "default_time": 60.0, "max_nodes": INFINITE,
        "total_nodes": 2.0, "total_cpus": 8.0, "state_up": 3.0,
    },
    "burst": {
        "flag_default": 0.0, "max_time": 1440.0, "default_time": 60.0, "max_nodes": 3.0,
        "total_nodes": 3.0, "total_cpus": 12.0, "state_up": 3.0,
        "max_mem_per_node": 0.0,  # so slurmctld shows MaxMemPerNode=UNLIMITED
    },
}  # fmt: skip

_PRELUDE = """
local readable, settable, partition_fields, violate = ...
local job_values, changes
function make_job(values)
  job_values, changes = values, {}
  return setmetatable({}, {
    __index = function(_, name)
      if not readable[name] then violate("read of job_desc." .. tostring(name)) end
      return job_values[name]
    end,
    __newindex = function(_, name, value)
      local kind = settable[name]
      if kind ~= type(value) then
        violate("job_desc." .. tostring(name) .. " set to " .. tostring(value))
        error("refused")
      end
      changes[#changes + 1] = {name, value}
      job_values[name] = value
    end,
  }), changes
end
function make_partition(values, record)
  return setmetatable({}, {_part_rec_ptr = record, __index = function(_, name)
    if not partition_fields[name] then violate("read of partition." .. tostring(name)) end
    return values[name]
  end})
end
"""


class Network:
    """Stands in for lua-socket, clock included: nothing here sleeps, every wait moves the clock.

    ``answer(request_line) -> bytes`` scripts the server; what it returns beyond the first chunk arrives
    ``pause`` seconds after the one before. ``refuse`` makes connect fail with that text.
    """

    def __init__(self, answer: Callable[[bytes], Any]) -> None:
        self.answer = answer
        self.now = 1.8e9
        self.refuse: str | None = None
        self.silent = False
        self.requests: list[bytes] = []
        self.connects = 0
        self.open = 0
        self.hang_up_kept = False

    def unix_stream(self) -> Connection:
        return Connection(self)


@dataclass
class Connection:
    """One lua-socket object: total timeouts only, as the hook uses them."""

    network: Network
    timeout: float = 1e9
    pending: list[tuple[float, bytes]] = field(default_factory=list)
    buffer: bytes = b""
    closed_by_peer: bool = False

    def settimeout(self, seconds: float, mode: str) -> float:
        assert mode == "t", "only a total timeout bounds a call"
        self.timeout = seconds
        return 1.0

    def connect(self, _path: str) -> Any:
        self.network.connects += 1
        if self.network.refuse:
            return None, self.network.refuse
        self.network.open += 1
        return 1.0

    def send(self, line: str) -> Any:
        if self.closed_by_peer:
            return None, "closed", 0.0
        self.network.requests.append(line.encode("latin-1"))
        if not self.network.silent:
            at = self.network.now
            answer = self.network.answer(line.encode("latin-1"))
            for pause, chunk in answer if isinstance(answer, list) else [(0.0, answer)]:
                at += pause
                self.pending.append((at, chunk))
        return float(len(line))

    def receive(self, count: float) -> Any:
        deadline = self.network.now + max(0.0, self.timeout)
        while len(self.buffer) < count:
            if not self.pending or self.pending[0][0] > deadline:
                self.network.now = deadline
                partial, self.buffer = self.buffer, b""
                return None, "timeout", partial.decode("latin-1")
            at, chunk = self.pending.pop(0)
            self.network.now = max(self.network.now, at)
            if chunk == b"":  # the peer hangs up
                self.closed_by_peer = True
                partial, self.buffer = self.buffer, b""
                return None, "closed", partial.decode("latin-1")
            self.buffer += chunk
        taken, self.buffer = self.buffer[: int(count)], self.buffer[int(count) :]
        return taken.decode("latin-1")

    def close(self) -> float:
        self.network.open -= 1
        return 1.0


@dataclass
class Submitted:
    """What one call did."""

    code: Any
    changes: dict[str, Any]
    order: list[str]
    messages: list[str]
    seconds: float


class SlurmDouble:
    """One Lua state with the hook loaded, as slurmctld keeps it."""

    def __init__(
        self,
        lua: str,
        network: Network,
        folder: Path,
        conf: str | None = None,
        *,
        with_socket: bool = True,
        script: str | None = None,
    ) -> None:
        self.network = network
        self.generation = 0  # of slurmctld's configuration: its records are made anew with each
        self.violations: list[str] = []
        self.logs: list[str] = []
        self.messages: list[str] = []
        self.connections: list[Connection] = []
        path = folder / "job_submit.lua"
        for name in ("job_submit.lua", "advisor_submit.lua"):
            shutil.copy(HOOK.with_name(name), folder / name)
        if script is not None:
            path.write_text(script)
        if conf is not None:
            (folder / "advisor_hook.conf").write_text(conf)
        self.runtime = importlib.import_module(f"lupa.{lua}").LuaRuntime(
            encoding="latin-1", unpack_returned_tuples=True, register_eval=False
        )
        names = self.runtime.globals()
        settable = dict.fromkeys(FIELDS["text"], "string") | dict.fromkeys(FIELDS["numbers"], "number")
        readable = dict.fromkeys([*settable, *FIELDS["read_only"]], True)
        self._lua("local source = ... ; return assert((loadstring or load)(source))", _PRELUDE)(
            self._table(readable),
            self._table(settable),
            self._table(dict.fromkeys(FIELDS["partition_fields"], True)),
            self.violations.append,
        )
        names["slurm"] = self._slurm()
        if with_socket:
            self._provide_socket()
        self.loaded_code = names["dofile"](str(path))

    def _lua(self, code: str, *arguments: Any) -> Any:
        return self.runtime.execute(code, *arguments)

    def _table(self, values: Mapping[str, Any]) -> Any:
        return self.runtime.table_from(values)

    def _slurm(self) -> Any:
        def log(pattern: str, *arguments: Any) -> None:
            self.logs.append(pattern % arguments)

        def tell(pattern: str, *arguments: Any) -> None:
            assert pattern == "%s", "log_user takes a format: text from outside never is one"
            self.messages.append(pattern % arguments)

        return self._table(
            {
                "SUCCESS": 0.0, "ERROR": -1.0, "NO_VAL": NO_VAL, "NO_VAL16": NO_VAL16, "NO_VAL64": NO_VAL64,
                "INFINITE": INFINITE, "NICE_OFFSET": NICE_OFFSET, "SPREAD_JOB": 256.0,
                "log_info": log, "log_error": log, "log_debug": log, "log_user": tell,
            }
        )  # fmt: skip

    def _provide_socket(self) -> None:
        def stream() -> Any:
            connection = self.network.unix_stream()
            self.connections.append(connection)
            return self._table(
                {
                    "settimeout": lambda _self, seconds, mode: connection.settimeout(seconds, mode),
                    "connect": lambda _self, path: connection.connect(path),
                    "send": lambda _self, line: connection.send(line),
                    "receive": lambda _self, count: connection.receive(count),
                    "close": lambda _self: connection.close(),
                }
            )

        self._lua(
            """local gettime, stream = ...
            package.preload["socket"] = function() return {gettime = gettime} end
            package.preload["socket.unix"] = function() return {stream = stream} end""",
            lambda: self.network.now,
            stream,
        )

    def submit(self, job: Mapping[str, Any], partitions: Mapping[str, Any] = PARTITIONS) -> Submitted:
        """One submission through the hook."""
        names = self.runtime.globals()
        values = {name: value for name, value in {**PLAIN_JOB, **job}.items() if value is not None}
        job_desc, changes = names["make_job"](self._table(values))
        part_list = self._table(
            {
                name: names["make_partition"](self._table(fields), f"{name} {self.generation}")
                for name, fields in partitions.items()
            }
        )
        before, heard = self.network.now, len(self.messages)
        code = names["slurm_job_submit"](job_desc, part_list, 1000.0)
        pairs = [(change[1], change[2]) for change in changes.values()]
        return Submitted(
            code, dict(pairs), [name for name, _ in pairs], self.messages[heard:], self.network.now - before
        )

    def modify(self, job: Mapping[str, Any]) -> tuple[Any, int]:
        """One update through the hook: return code and how many fields it set."""
        names = self.runtime.globals()
        job_desc, changes = names["make_job"](self._table(dict(job)))
        code = names["slurm_job_modify"](job_desc, self._table({}), self._table({}), 1000.0)
        return code, len(list(changes.values()))
