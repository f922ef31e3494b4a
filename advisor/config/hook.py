"""The hook's settings (`advisor config hook`), in a format that Lua reads without a TOML parser. No I/O."""

from __future__ import annotations

from advisor.model.settings import Settings


def hook_values(settings: Settings) -> dict[str, str]:
    """Settings of the hook, by the hook's own names."""
    submit = settings.submit
    return {
        "socket": str(settings.paths.submit_socket),
        "budget_ms": f"{1000.0 * submit.budget_seconds:.10g}",
        "breaker_failures": str(submit.breaker_failures),
        "breaker_seconds": f"{submit.breaker_seconds:.10g}",
    }


def hook_settings(settings: Settings) -> str:
    """Content of ``advisor_hook.conf``, beside slurm.conf."""
    return "".join(f"{name} = {value}\n" for name, value in hook_values(settings).items())
