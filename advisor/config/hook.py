"""What the job_submit hook is told: it cannot read our settings, so they are written out for it. Pure."""

from __future__ import annotations

from advisor.model.settings import Settings


def hook_settings(settings: Settings) -> str:
    """Content of ``advisor_hook.conf``, beside slurm.conf."""
    submit = settings.submit
    values = {
        "socket": str(settings.paths.submit_socket),
        "budget_ms": f"{1000.0 * submit.budget_seconds:.10g}",
        "breaker_failures": str(submit.breaker_failures),
        "breaker_seconds": f"{submit.breaker_seconds:.10g}",
    }
    return "".join(f"{name} = {value}\n" for name, value in values.items())
