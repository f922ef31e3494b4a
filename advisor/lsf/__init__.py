"""Read finished jobs from LSF's ``lsb.acct`` files, without running LSF's commands."""
