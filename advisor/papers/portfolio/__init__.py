"""Deng et al., section 6."""
