"""When a job will be done, at what price, and what keeps that promise."""
