"""Floor 4: every choice, pure: the four questions, their answers in words, and what loops decide later."""
