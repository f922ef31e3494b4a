"""What LSF has written down: finished jobs from ``lsb.acct``. Nothing here runs a command of LSF's."""
