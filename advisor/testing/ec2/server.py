"""The HTTP shell: faults first, then the control interface, then moto."""

from __future__ import annotations

import io
import json
import os
import re
import socket
import time
import urllib.parse
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NoReturn

from moto.ec2.responses import EC2Response
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, run_simple

from advisor.testing.ec2.answers import ServerFault, fail, xml_error
from advisor.testing.ec2.control import Control
from advisor.testing.ec2.faults import STATUS_OF
from advisor.testing.ec2.fleets import Fleets
from advisor.testing.ec2.launching import Launching
from advisor.testing.ec2.lifecycle import Lifecycle
from advisor.testing.ec2.placing import PlacementGroups
from advisor.testing.ec2.reads import Reads
from advisor.testing.ec2.state import EmulatorState

StartResponse = Callable[[str, list[tuple[str, str]]], Any]
CONTROL_PREFIX: Final = "/_emulator/"
_CREDENTIAL: Final = re.compile(r"Credential=[^/]+/\d+/([^/]+)/([^/]+)/aws4_request")
_XML: Final = "text/xml;charset=UTF-8"
_JSON: Final = "application/x-amz-json-1.1"


class Application:
    """The WSGI application."""

    def __init__(self, state: EmulatorState, control: Control, reads: Reads) -> None:
        self.state = state
        self.control = control
        self.reads = reads
        self._moto = DomainDispatcherApplication(create_backend_app)

    def __call__(self, environ: dict[str, Any], start: StartResponse) -> Iterable[bytes]:
        """Answer one request."""
        path = environ.get("PATH_INFO", "")
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        if path.startswith(CONTROL_PREFIX):
            return self._control(path[len(CONTROL_PREFIX) :], body, start)
        signed = _CREDENTIAL.search(environ.get("HTTP_AUTHORIZATION", ""))
        service = signed.group(2) if signed else ""
        params = _params(environ, body)
        target = environ.get("HTTP_X_AMZ_TARGET", "").split(".")[-1]
        rest = path[1:] if service == "savingsplans" else f"{environ['REQUEST_METHOD']} {path}"
        action = params.get("Action") or target or rest
        fault = self.state.faults.pick(service, action, params)
        self.state.calls.append(
            {
                "service": service,
                "action": action,
                "fault": fault is not None,
                "token": params.get("ClientToken"),
            }
        )
        if fault is not None:
            answer = self._fault(fault, environ, start, is_query="Action" in params)
            if answer is not None:
                return answer
        if service == "pricing":
            return _reply(start, 200, json.dumps(self.reads.products(json.loads(body or b"{}"))), _JSON)
        if service == "savingsplans":
            return _reply(start, 200, json.dumps(self._savings_plans(path, body)), "application/json")
        if service == "servicequotas":
            status, said = self.reads.quota(json.loads(body))
            return _reply(start, status, json.dumps(said), _JSON)
        return self._moto(environ, start)  # type: ignore[no-any-return]

    def _savings_plans(self, path: str, body: bytes) -> dict[str, Any]:
        if path == "/DescribeSavingsPlanRates":
            return self.reads.savings_plan_rates(json.loads(body or b"{}"))
        states = json.loads(body or b"{}").get("states")
        plans = [row for row in self.state.savings if states is None or row["state"] in states]
        return {"savingsPlans": [{k: value for k, value in row.items() if k != "rates"} for row in plans]}

    def _control(self, verb: str, body: bytes, start: StartResponse) -> Iterable[bytes]:
        try:
            answer = self.control.carry_out(verb, json.loads(body or b"{}"))
        except (ValueError, KeyError, TypeError) as error:
            return _reply(start, 400, json.dumps({"error": str(error)}), "application/json")
        return _reply(start, 200, json.dumps(answer, default=str), "application/json")

    def _fault(
        self, rule: Mapping[str, Any], environ: dict[str, Any], start: StartResponse, *, is_query: bool
    ) -> Iterable[bytes] | None:
        """Do what a rule says; None: go on as if nothing had happened."""
        resets = self.state.resets
        time.sleep(rule.get("latency", 0))
        if "error" in rule or "throttle" in rule:
            error = rule.get("error") or {
                "code": "RequestLimitExceeded",
                "message": "Request limit exceeded.",
            }
            return _error(start, error, is_query=is_query)
        if "http" in rule:
            return _reply(start, rule["http"]["status"], rule["http"].get("body", ""), "text/html")
        if rule.get("reset") == "before":
            _hang_up(environ)
        if "hang" in rule:
            time.sleep(rule["hang"])
        if self.state.resets != resets:  # the account it was meant for is no more
            _hang_up(environ)
        if rule.get("reset") == "after":  # carried out, and the answer is lost: what client tokens are for
            b"".join(self._moto(environ, lambda *_: None))
            _hang_up(environ)
        return None


def _hang_up(environ: Mapping[str, Any]) -> NoReturn:
    environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
    raise ConnectionResetError


def _params(environ: Mapping[str, Any], body: bytes) -> dict[str, str]:
    if not environ.get("CONTENT_TYPE", "").startswith("application/x-www-form"):
        return {}
    return dict(urllib.parse.parse_qsl(body.decode("utf-8", "replace")))


def _error(start: StartResponse, error: Mapping[str, Any], *, is_query: bool) -> Iterable[bytes]:
    code = error["code"]
    text = error.get("message", code)
    if is_query:
        return _reply(start, error.get("status", STATUS_OF.get(code, 400)), xml_error(code, text), _XML)
    body = json.dumps({"__type": code, "message": text})
    return _reply(start, error.get("status", 400), body, _JSON, (("x-amzn-ErrorType", code),))


def _reply(
    start: StartResponse,
    status: int,
    body: bytes | str,
    content_type: str,
    extra: tuple[tuple[str, str], ...] = (),
) -> Iterable[bytes]:
    data = body.encode() if isinstance(body, str) else body
    start(f"{status} -", [("Content-Type", content_type), ("Content-Length", str(len(data))), *extra])
    return [data]


def install(state: EmulatorState) -> Application:
    """Patch moto and return the application; once per process."""
    lifecycle = Lifecycle(state)
    lifecycle.install()
    launching = Launching(state, lifecycle)
    groups = PlacementGroups(state)
    reads = Reads(state, EC2Response.describe_instances)
    actions: dict[str, Callable[[Any], Any]] = {
        "run_instances": launching.run_instances,
        "create_fleet": Fleets(state, launching).create_fleet,
        "create_tags": _of_listed(lifecycle, "Resources", EC2Response.create_tags),
        "terminate_instances": _of_listed(lifecycle, "InstanceIds", EC2Response.terminate_instances),
        "describe_instances": reads.describe_instances,
        "describe_spot_instance_requests": reads.describe_spot_instance_requests,
        "describe_spot_price_history": reads.describe_spot_price_history,
        "describe_reserved_instances": reads.describe_reserved_instances,
        "create_placement_group": groups.create_placement_group,
        "describe_placement_groups": groups.describe_placement_groups,
        "describe_capacity_reservations": reads.describe_capacity_reservations,
        "get_spot_placement_scores": reads.get_spot_placement_scores,
    }
    for name, action in actions.items():
        setattr(EC2Response, name, _guarded(state, action))
    return Application(state, Control(state, lifecycle), reads)


def _of_listed(lifecycle: Lifecycle, named: str, action: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """An action that EC2, unlike moto, refuses for instances that are not there or that no call lists yet."""

    def checked(response: Any) -> Any:
        for name in response._get_param(named, []):  # noqa: SLF001 -- moto's own way
            instance = lifecycle.state.instances.get(name)
            if name.startswith("i-") and (instance is None or not lifecycle.is_visible(instance)):
                fail("InvalidInstanceID.NotFound", f"The instance ID '{name}' does not exist")
        return action(response)

    return checked


def _guarded(state: EmulatorState, action: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """One call at a time, and server faults with their real status."""

    def answer(response: Any) -> Any:
        with state.lock:
            try:
                return action(response)
            except ServerFault as fault:
                return xml_error(fault.code, fault.message).decode(), {"status": STATUS_OF[fault.code]}

    return answer


class _QuietHandler(WSGIRequestHandler):
    """Keeps connections open and logs nothing."""

    protocol_version = "HTTP/1.1"

    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002 -- werkzeug's name
        """Say nothing; `calls` tells what was asked."""


def serve(port: int) -> None:
    """Serve on the loopback address until the process ends."""
    os.environ["MOTO_PORT"] = str(port)
    application = install(EmulatorState())
    run_simple("127.0.0.1", port, application, threaded=True, request_handler=_QuietHandler)
