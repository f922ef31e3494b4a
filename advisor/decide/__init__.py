"""Floor 3: every choice, pure: the four questions, their answers in words, and what loops decide later."""

from advisor.decide.advise import advise
from advisor.decide.reasons import Reason

__all__ = ["Reason", "advise"]
