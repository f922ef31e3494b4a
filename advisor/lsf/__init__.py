"""Talk to LSF through its commands and files: history, live jobs, and the back end of `advisor control`."""
