"""Jobs that wait on-premise, asked again while they do (docs/designs/0010-waiting.md)."""
