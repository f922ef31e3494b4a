"""Floor 4: every choice, pure: the four questions, their answers in words, and what loops decide later."""

from advisor.decide.explanation.reasons import Reason
from advisor.decide.submission.advise import advise

__all__ = ["Reason", "advise"]
