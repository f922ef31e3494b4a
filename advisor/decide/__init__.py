"""Floor 3: the four questions, and the sentences that explain their answers. Pure."""

from advisor.decide.advise import advise
from advisor.decide.reasons import Reason

__all__ = ["Reason", "advise"]
