"""An EC2 endpoint on this machine, for tests and for trying out a site's settings.

moto's own server with the behaviours a cloud-bursting controller lives on and moto lacks: capacity per pool,
client tokens, pending and shutting-down instances, read-after-write lag, spot reclaims with their warnings,
prices, and faults by rule. Real HTTP, unmodified boto3, loopback only. Capacity and prices are what you say
they are: nothing here predicts what EC2 will do.
"""

from advisor.testing.ec2.process import Ec2Emulator

__all__ = ["Ec2Emulator"]
