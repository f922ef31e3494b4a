"""Read LSF's ``lsb.acct`` and follow its ``lsb.events``, without running LSF's commands."""
