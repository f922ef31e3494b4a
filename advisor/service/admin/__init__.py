"""The data of commands and pages: status, reports, one advice, the doctor. Plain data for commands and pages.

Here belongs what `cli` and `web` show. It reads what the processes wrote; only the doctor asks anybody.
"""
