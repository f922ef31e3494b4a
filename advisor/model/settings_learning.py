"""Settings of the size model, of the k-NN estimators, and of the fall-back on drift."""

from __future__ import annotations

from advisor.model.settings_section import Fraction, Section, setting


class SizeSettings(Section):
    """Small jobs first: a model predicts which jobs are small (Zrigui et al. 2022)."""

    small_priority_offset: int = setting(
        1000,
        "The number that is added to the priority of a small job, as Slurm's site factor; 0 changes "
        "nothing. Small jobs are all first only if it is greater than the sum of slurm.conf's "
        "PriorityWeight settings; `advisor doctor` names that sum.",
        why="It puts small jobs first where the weights sum up to less than 1000, and is a gentle push "
        "where they are larger.",
        ge=0,
        le=2_000_000_000,
    )
    enabled: bool = setting(
        True,
        "Whether jobs are classed as small or large at all.",
        why="The class changes a priority by `small_priority_offset` only, and only in mode `act`.",
        expert=True,
    )
    probability_cut: Fraction = setting(
        0.5,
        "A job is small if the model's probability is at least this. A larger value puts fewer large jobs "
        "first by mistake.",
        why="One half makes the fewest mistakes of both kinds together.",
        expert=True,
    )
    safeguard: bool = setting(
        False,
        "Requeue a job as large, once, if it was put first as small and still runs at the divider between "
        "small and large. Only jobs that may be requeued are.",
        why="It ends running jobs, which users must expect.",
        expert=True,
    )


class EstimatorSettings(Section):
    """The two k-NN estimators of Cunha et al., which the policies `cunha2017` and `ambati2021` ask."""

    neighbours: int = setting(
        16,
        "`cunha2017`, `ambati2021`: k, the number of most similar jobs whose waits and run times are "
        "averaged for a forecast, until `advisor tune` finds a better one.",
        why="Fewer follow single odd jobs, many more average over jobs that are not alike.",
        ge=1,
        le=1000,
        expert=True,
    )
    kernel_width: float = setting(
        1.0,
        "`cunha2017`, `ambati2021`: the width of the Gaussian kernel that weighs the neighbours, in units of "
        "the HEOM distance: a larger one lets more distant jobs count. It is used until `advisor tune` finds "
        "a better one.",
        why="Below about 0.8 the kernels of 16 typical neighbours sum up to less than 1: the variance is "
        "then undefined and the cutoff moves no job.",
        gt=0.0,
        expert=True,
    )
    knowledge_base_jobs: int = setting(
        10_000,
        "`cunha2017`, `ambati2021`: s, the number of finished jobs that are searched for neighbours; the "
        "oldest are dropped. `advisor tune` finds a better one.",
        why="More are slower to search and rarely better, since users and programs change.",
        unit="jobs",
        ge=10,
        le=1_000_000,
        expert=True,
    )
    min_finished_jobs: int = setting(
        500,
        "With fewer finished jobs `advisor tune` and `advisor retrain` change nothing.",
        why="A choice among models needs some hundred jobs that none of them was trained on.",
        unit="jobs",
        ge=1,
        expert=True,
    )


class DriftSettings(Section):
    """Forecasts that do not hold any more: a partition's jobs then stay on-premise until they do."""

    enabled: bool = setting(
        True,
        "Whether the jobs of a partition stay on-premise while its forecasts have not held for a week.",
        why="Money is not spent by forecasts that are known to be wrong.",
        expert=True,
    )
    coverage: Fraction = setting(
        0.75,
        "A partition falls back to on-premise when less than this share of a week's waits and run times lies "
        "in their 90 % intervals.",
        why="The worst month of ten logs has 0.87; a log with one user's bursts had 0.80.",
        expert=True,
    )
    saved_share: float = setting(
        0.5,
        "A partition falls back to on-premise when its moved jobs of a week save less than this share of the "
        "time that they were forecast to save.",
        why="Where moved jobs save less than half of what was forecast, the forecasts are wrong.",
        ge=-10.0,
        le=1.0,
        expert=True,
    )
    jobs: int = setting(
        100,
        "A partition is judged by its shares of a week only if the week has at least this number of "
        "intervals, or of moved jobs.",
        why="With fewer a share of nine tenths is below 0.75 by chance.",
        ge=1,
        expert=True,
    )
