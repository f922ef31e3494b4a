"""``python -m advisor.testing.ec2 --port N``: the endpoint emulator in the foreground.

Without a port, one emulator is forked for each line of standard input, and its process id printed: the import
of moto, which takes two seconds of a processor, happens once. At the end of the input they end.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys

from moto.moto_api._internal import mock_random
from moto.moto_server.werkzeug_app import create_backend_app

from advisor.service.running.logs import configure
from advisor.testing.ec2.server import serve


def _fork_each() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in the owner's terminal is the owner's business
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nothing is left of those that have ended
    create_backend_app("ec2")  # what it keeps, each child has
    for line in sys.stdin:
        child = os.fork()
        if not child:
            _run(**json.loads(line))
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()
    os.killpg(0, signal.SIGTERM)


def _run(port: int, environment: dict[str, str], log: str) -> None:
    """Serve in this process, which knows nothing of others, until it is killed."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for stream, target in enumerate((os.open(os.devnull, os.O_RDONLY), output, output)):
        os.dup2(target, stream)
    os.environ.update(environment)
    mock_random.seed()
    serve(port)
    os._exit(0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="EC2 endpoint emulator on the loopback address")
    parser.add_argument("--port", type=int)
    arguments = parser.parse_args()
    configure()
    if arguments.port is None:
        _fork_each()
    else:
        serve(arguments.port)
