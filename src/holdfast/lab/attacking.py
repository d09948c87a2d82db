"""`attack`: any analyst against any mechanism, world after world."""

import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context
from typing import Any, TypeVar

import numpy as np

from holdfast import check
from holdfast.lab.analysts import ANALYSTS, Analyst, Population
from holdfast.lab.contenders import contender
from holdfast.lab.report import AttackReport
from holdfast.lab.world import run_world
from holdfast.mechanisms.base import Mechanism
from holdfast.planning import Plan

WORTH_STARTING = 200_000_000  # row evaluations: a few seconds
Progress = Callable[[int], None]
Item = TypeVar("Item")
Result = TypeVar("Result")


def attack(
    mechanism: str | Mechanism | Plan | Mapping[str, Any],
    analyst: str | Analyst = "weighted",
    population: Population | None = None,
    *,
    rows: int = 2_000,
    queries: int = 501,
    worlds: int = 20,
    confidence: float = 0.95,
    seed: int | None = None,
    processes: int = 1,
    progress: Progress | None = None,
) -> AttackReport:
    """Let an analyst attack a mechanism in many independent worlds, and report claimed, real and promised error.

    `mechanism` is a name (naive, split, thresholdout, laplace, gaussian, a1, coins), a mechanism, a plan, or the
    settings of a session such as `{"guarantee": "information"}`. `analyst` is a name or an analyst, `population`
    where rows come from (left out: the analyst's own). With `processes` above 1 the worlds run in parallel. A seed
    repeats a run, except for Laplace noise, which comes from the operating system.

    >>> report = attack("naive", "weighted", rows=400, queries=401, worlds=2, seed=1)
    >>> report.broken, report.real
    (2, 0.5)
    """
    check.whole(2, rows=rows)
    check.whole(worlds=worlds, processes=processes, queries=queries)
    check.probability(confidence=confidence)
    if isinstance(analyst, str):
        check.one_of("analyst", analyst, tuple(ANALYSTS))
        analyst = ANALYSTS[analyst](queries)
    if seed is None:
        seed = secrets.randbits(32)
    check.whole(0, seed=seed)
    against = contender(mechanism, rows=rows, queries=analyst.queries, confidence=confidence)
    judge = analyst.population(rows) if population is None else population
    seeds = [int(each) for each in np.random.SeedSequence(seed).generate_state(worlds)]
    ran = in_parallel(partial(run_world, against, analyst, judge, rows), seeds, processes, progress)
    noise = against.noise
    return AttackReport(
        mechanism=against.name,
        analyst=analyst.name,
        rows=rows,
        queries=analyst.queries,
        confidence=confidence,
        promised=against.promised,
        predicted=None if noise is None else analyst.reaches(rows, noise),
        seed=seed,
        worlds=tuple(ran),
    )


def processes_that_pay(evaluations: int) -> int:
    """Return one process for little work, which is over before others have started, and all processors for more."""
    return 1 if evaluations < WORTH_STARTING else os.cpu_count() or 1


def in_parallel(
    run: Callable[[Item], Result], items: Sequence[Item], processes: int, progress: Progress | None = None
) -> list[Result]:
    """Run every item (a world's seed, say) and keep their order; `progress` hears how many are done."""
    tell = progress or (lambda done: None)
    if processes == 1 or len(items) == 1:
        ran = []
        for done, item in enumerate(items, 1):
            ran.append(run(item))
            tell(done)
        return ran
    # A spawned process inherits no threads: forking would copy Polars' pool in whatever state it is.
    with ProcessPoolExecutor(min(processes, len(items)), mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(run, item) for item in items]
        for done, _ in enumerate(as_completed(futures), 1):
            tell(done)
        return [future.result() for future in futures]
