"""One question to the k-NN estimator, against scikit-learn's brute force on the encoded space.

Each has one core: with threads of their own the peer's libraries wait for one another on busy cores, for
many times as long as they compute. The peer gets every other advantage: it only finds neighbours (ours
also weighs them into an estimate with variance and interval), its matrix is built beforehand, input
checks are off, and of a dense and a sparse matrix the faster one counts. Nominal features are one-hot
columns, numbers are scaled by their range, what is unknown is a column of its own; with columns scaled by
the roots of the weights its Euclidean distance is HEOM wherever both values are known.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import sklearn
from scipy import sparse
from sklearn.neighbors import NearestNeighbors
from threadpoolctl import threadpool_limits

from advisor.arrays import Floats
from advisor.predict.knn.estimator import KnnEstimator
from advisor.predict.knn.features import CUNHA_TABLE_I
from advisor.predict.knn.parameters import KnnParameters
from benchmarks.timing import microseconds_each, percentiles

Tell = Callable[[str], None]

USERS, GROUPS, QUEUES = 250, 25, 6
UNKNOWN_SHARE: Final = 0.03


def run(
    *,
    knowledge_base: int = 10_000,
    queries: int = 2_000,
    k: int = 16,
    seed: int = 1,
    tell: Tell = lambda _: None,
) -> dict[str, Any]:
    """Measure; the peer gets a quarter of the queries. ``tell`` is called with each step."""
    generator = np.random.default_rng(seed)
    cases = _jobs(generator, knowledge_base)
    asked = _jobs(generator, queries)
    weights = tuple(generator.random(len(CUNHA_TABLE_I)).tolist())
    estimator = KnnEstimator(KnnParameters(k, 0.5, knowledge_base, weights))
    estimator.add_many(
        cases,
        generator.exponential(3600.0, knowledge_base),
        times=np.arange(float(knowledge_base)),
        job_ids=np.arange(knowledge_base),
    )
    estimator.warm()
    tell("k-NN by HEOM")
    microseconds_each(estimator.estimate, asked[:100])
    mine = percentiles(microseconds_each(estimator.estimate, asked))
    few = asked[: max(1, queries // 4)]
    known, encode = _encoder(cases, weights)
    peers = {}
    agreement = math.nan
    for name, form in (("dense", np.asarray), ("sparse", sparse.csr_matrix)):
        tell(f"scikit-learn, brute force, {name}")
        rows = [form(encode(row)[np.newaxis, :]) for row in few]
        with sklearn.config_context(assume_finite=True), threadpool_limits(1):
            peer = NearestNeighbors(n_neighbors=k, algorithm="brute", metric="euclidean", n_jobs=1)
            peer.fit(form(known))
            microseconds_each(peer.kneighbors, rows[:20])
            peers[name] = percentiles(microseconds_each(peer.kneighbors, rows))
            agreement = _agreement(estimator, peer, few, rows)
    fastest = min(peers, key=lambda name: peers[name]["p50"])
    return {
        "knowledge_base": knowledge_base,
        "features": len(CUNHA_TABLE_I),
        "neighbours": k,
        "query_us": mine,
        "sklearn_brute_query_us": peers[fastest],
        "sklearn_matrix": fastest,
        "sklearn_brute_by_matrix_us": peers,
        "speedup": peers[fastest]["p50"] / mine["p50"],
        "same_neighbours": agreement,
    }


def _jobs(generator: np.random.Generator, count: int) -> Floats:
    """Features of jobs such as logs have: few users submit most, some values are unknown."""
    users = np.minimum(generator.zipf(1.3, count), USERS)
    columns = [
        users,
        users % GROUPS,
        generator.integers(0, QUEUES, count),
        np.sort(generator.random(count)) * 3e7,
        generator.choice([900.0, 3600.0, 14400.0, 86400.0, 432000.0], count),
        generator.poisson(20.0, count),
        generator.exponential(1e8, count),
        generator.exponential(1e8, count),
        generator.integers(0, 7, count),
        generator.random(count) * 86400.0,
        generator.integers(0, 240, count),
    ]
    features = np.array(columns, np.float64).T
    unknown = generator.random((count, 3)) < UNKNOWN_SHARE
    features[:, [1, 2, 4]] = np.where(unknown, np.nan, features[:, [1, 2, 4]])
    return np.ascontiguousarray(features)


def _encoder(cases: Floats, weights: tuple[float, ...]) -> tuple[Floats, Callable[[Floats], Floats]]:
    """The cases in the encoded space, and how to get a query there."""
    parts: list[Callable[[Floats], Floats]] = []
    for column, weight, nominal in zip(cases.T, weights, CUNHA_TABLE_I.nominal, strict=True):
        known = column[~np.isnan(column)]
        if nominal:
            parts.append(_one_hot(np.unique(known), math.sqrt(weight / 2)))
        else:
            parts.append(_scaled(math.sqrt(weight) / max(float(np.ptp(known)), 1e-9), math.sqrt(weight)))

    def encode(rows: Floats) -> Floats:
        table = np.atleast_2d(rows)
        found = np.hstack([part(column) for part, column in zip(parts, table.T, strict=True)])
        return found[0] if rows.ndim == 1 else found

    return encode(cases), encode


def _one_hot(values: Floats, scale: float) -> Callable[[Floats], Floats]:
    """A column for each value, the last for what is unknown or new."""

    def encode(column: Floats) -> Floats:
        places = np.minimum(np.searchsorted(values, column), len(values) - 1)
        places = np.where(values[places] == column, places, len(values))
        found: Floats = np.zeros((len(column), len(values) + 1))
        found[np.arange(len(column)), places] = scale
        return found

    return encode


def _scaled(scale: float, unknown_weight: float) -> Callable[[Floats], Floats]:
    """The number by its range, and a column for unknown."""

    def encode(column: Floats) -> Floats:
        unknown = np.isnan(column)
        return np.column_stack([np.where(unknown, 0.0, column * scale), unknown * unknown_weight])

    return encode


def _agreement(estimator: KnnEstimator, peer: Any, queries: Floats, rows: list[Any]) -> float:
    """Share of the peer's neighbours that are ours too (they differ about unknown values)."""
    shared = total = 0
    for query, row in zip(queries[:100], rows[:100], strict=False):
        ours = set(estimator.neighbours(query)[0].tolist())
        theirs = set(peer.kneighbors(row, return_distance=False)[0].tolist())
        shared += len(ours & theirs)
        total += len(theirs)
    return shared / total
