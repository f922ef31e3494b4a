"""``python -m advisor.testing.ec2 --port N``: the endpoint emulator in the foreground."""

from __future__ import annotations

import argparse

from advisor.service.running.logs import configure
from advisor.testing.ec2.server import serve

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="EC2 endpoint emulator on the loopback address")
    parser.add_argument("--port", type=int, required=True)
    configure()
    serve(parser.parse_args().port)
