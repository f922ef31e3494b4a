"""Settings: read, checked, explained and written back; they are defined in ``advisor.model.settings``."""

from advisor.config.checking import Finding, check
from advisor.config.loading import DEFAULT_PATH, LoadedSettings, load

__all__ = ["DEFAULT_PATH", "Finding", "LoadedSettings", "check", "load"]
