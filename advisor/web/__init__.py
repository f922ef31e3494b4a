"""Pages for admins: what the commands say, in a browser; they change nothing (docs/designs/0016-web.md)."""
