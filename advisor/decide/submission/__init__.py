"""The decision at a submission: the four questions, and the modules that answer them."""
