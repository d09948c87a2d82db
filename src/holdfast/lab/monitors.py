"""The monitors of the transfer theorems, for any mechanism, analyst and population.

A2  simulates the interaction on T samples and releases one of all T k questions, by the exponential mechanism with the
    score |q(S_t) - q(D)|: a question on which sample and population are far apart, if there is one. If the mechanism
    is (epsilon, delta)-DP, the monitor is (2 epsilon, delta)-DP, and the released gap is in expectation at most
    (2/(epsilon n)) log(T k) below the largest.
A5  resumes an interaction after a transcript and returns the i-th question.

Scores are computed from the samples: monitors are for proofs and simulations, and are never shown to analysts.
`monitor` runs them on known populations.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import log
from typing import Any, cast

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from holdfast import check
from holdfast.errors import InvalidArgument
from holdfast.guarantees.plan import Plan
from holdfast.lab.analysts import Analyst, Dialogue, analyst_named
from holdfast.lab.baselines import Naive, Releaser
from holdfast.lab.contenders import Contender, ResumableOracle, contender, converse
from holdfast.lab.populations import Arrays, Population, RowQuestion
from holdfast.mechanisms import exponential
from holdfast.rows.memory import memory_rows

Transcript = Sequence[tuple[RowQuestion, float]]


@dataclass(frozen=True)
class Candidate:
    """One question of one simulated interaction, and its gap between sample and population."""

    question: RowQuestion
    sample: int
    gap: float


@dataclass(frozen=True)
class Flagged:
    """What A2 releases, and what the lemma says about it. `largest` and `expected` are for simulations only."""

    candidate: Candidate
    largest: float
    expected: float
    allowed_loss: float


@dataclass(frozen=True)
class Monitored:
    """What `monitor` found: a question, how far sample and population are apart on it, and what the lemma allows.

    `gap` is the gap of the released question; `largest` is the largest of all gaps, `expected` the average released
    gap, and `allowed` how far below the largest that may be. If an interaction was resumed (A5), `gaps` has one signed
    gap per continuation, and the theorem bounds their mean.
    """

    mechanism: str
    analyst: str
    question: str
    gap: float
    largest: float
    expected: float
    allowed: float | None
    gaps: tuple[float, ...] = ()

    def __repr__(self) -> str:
        if self.gaps:
            return (
                f"{self.mechanism} against {self.analyst}, resumed {len(self.gaps)} times: {self.question} is on"
                f" average {self.expected:+.4f} off the population's mean on its sample, at most {self.largest:.4f}."
            )
        return (
            f"{self.mechanism} against {self.analyst}: released {self.question}, on which sample and population are"
            f" {self.gap:.4f} apart; the largest gap is {self.largest:.4f}. On average {self.expected:.4f} is released,"
            f" at most {self.allowed:.4f} less than the largest."
        )


def monitor(
    mechanism: str | Releaser | Plan | Mapping[str, Any] = "coins",
    analyst: str | Analyst = "weighted",
    population: Population | None = None,
    *,
    rows: int = 2_000,
    queries: int = 501,
    samples: int = 5,
    epsilon: float = 0.1,
    after: int | None = None,
    seed: int | None = None,
) -> Monitored:
    """Run the paper's monitors: search simulated interactions for a question on which the sample misleads.

    Parameters
    ----------
    mechanism, analyst, population
        As for `attack`.
    rows, queries, samples
        Rows of each sample, questions of each interaction, and how many samples are simulated.
    epsilon
        How private the choice among all questions is (A2).
    after
        Resume one interaction after this many questions, once for each of `samples`, and look at its last question
        (A5).
    seed
        Makes a run repeatable, except for Laplace noise.

    Returns
    -------
    Monitored
        The question, and how far sample and population are apart on it.

    Examples
    --------
    >>> monitor("naive", "weighted", rows=200, queries=201, samples=2, epsilon=1.0, seed=1).largest > 0.2
    True
    """
    check.whole(2, rows=rows)
    check.whole(queries=queries, samples=samples)
    check.positive(epsilon=epsilon)
    analyst = analyst_named(analyst, queries)
    against = contender(mechanism, rows=rows, queries=analyst.queries)
    source = analyst.population(rows) if population is None else population
    rng = np.random.default_rng(seed)
    if after is not None:
        return _resumed(against, analyst, source, rows, samples, after, rng)
    found = flag(against, analyst, source, [source.draw(rows, rng) for _ in range(samples)], epsilon=epsilon, rng=rng)
    released = found.candidate
    return Monitored(
        against.name,
        analyst.name,
        released.question.text,
        released.gap,
        found.largest,
        found.expected,
        found.allowed_loss,
    )


def _resumed(
    against: Contender, analyst: Analyst, population: Population, rows: int, times: int, after: int, rng: Generator
) -> Monitored:
    """A5: run one interaction up to a point, then continue it from there `times` times, each with new randomness."""
    check.whole(0, after=after)
    check.at_most("queries - 1", analyst.queries - 1, after=after)
    source, state = memory_rows(population.draw(rows, rng)), int(rng.integers(2**63))
    dialogue = converse(analyst.ask(rows, np.random.default_rng(state)), against.start(source, rng))
    transcript = [(question, reply.value) for question, reply in islice(dialogue, after)]
    gaps, question = [], None
    for _ in range(times):
        oracle = against.start(source, rng)
        if not hasattr(oracle, "recall"):
            raise InvalidArgument(f"after must be left out for {against.name}, which cannot be resumed.", name="after")
        again = np.random.default_rng(state)
        question = resume(
            cast(ResumableOracle, oracle), analyst, transcript, upto=analyst.queries, rows=rows, rng=again
        )
        (data_mean,) = Naive().release(question, source, rng).values
        gaps.append(data_mean - population.mean(question))
    assert question is not None
    mean, most = float(np.mean(gaps)), float(np.abs(gaps).max())
    return Monitored(against.name, analyst.name, question.text, abs(gaps[-1]), most, mean, None, tuple(gaps))


def candidates(
    against: Contender, analyst: Analyst, population: Population, samples: Sequence[Arrays], rng: Generator
) -> list[Candidate]:
    """Simulate one interaction on every sample; return all questions with their gaps."""
    found = []
    for number, sample in enumerate(samples):
        source = memory_rows(sample)
        for question, _ in converse(analyst.ask(len(source), rng), against.start(source, rng)):
            (data_mean,) = Naive().release(question, source, rng).values
            found.append(Candidate(question, number, abs(data_mean - population.mean(question))))
    return found


def flag_law(found: Sequence[Candidate], *, rows: int, epsilon: float) -> NDArray[np.float64]:
    """Return the law of what A2 releases: proportional to exp(epsilon n gap/2). One row moves a gap by at most 1/n."""
    check.whole(rows=rows)
    return exponential.probabilities([each.gap for each in found], epsilon=epsilon, sensitivity=1 / rows)


def flag(
    against: Contender,
    analyst: Analyst,
    population: Population,
    samples: Sequence[Arrays],
    *,
    epsilon: float,
    rng: Generator,
) -> Flagged:
    """A2: simulate, then release a question that is far from the population on its sample."""
    if not samples:
        raise InvalidArgument("samples must be a list of at least one sample; got none.", name="samples")
    sizes = {len(next(iter(sample.values()))) for sample in samples}
    if len(sizes) != 1:
        raise InvalidArgument(f"samples must all have the same number of rows; got {sorted(sizes)}.", name="samples")
    (rows,) = sizes
    found = candidates(against, analyst, population, samples, rng)
    law = flag_law(found, rows=rows, epsilon=epsilon)
    gaps = np.array([each.gap for each in found])
    released = exponential.choose(gaps.tolist(), epsilon=epsilon, sensitivity=1 / rows, rng=rng)
    return Flagged(
        candidate=found[released],
        largest=float(gaps.max()),
        expected=float(law @ gaps),
        allowed_loss=2 / (epsilon * rows) * log(len(found)),
    )


def resume(
    oracle: ResumableOracle, analyst: Analyst, transcript: Transcript, *, upto: int, rows: int, rng: Generator
) -> RowQuestion:
    """A5: put both into the state after `transcript`, let them continue, and return question number `upto` (from 1).

    `rng` is the analyst's generator, in the state it had when the transcript began, so that it asks the same questions.
    """
    check.whole(upto=upto)
    if upto <= len(transcript):
        raise InvalidArgument(f"upto must be beyond the transcript ({len(transcript)} questions); got {upto}.")
    dialogue = analyst.ask(rows, rng)
    question = next(dialogue)
    for place, (asked, answer) in enumerate(transcript, 1):
        if (question.text, question.columns) != (asked.text, asked.columns):
            raise InvalidArgument(
                f"transcript must be a dialogue of this analyst with this generator; question {place} differs."
            )
        oracle.recall(asked, answer)
        question = _next(dialogue, answer, place)
    for place in range(len(transcript) + 1, upto):
        question = _next(dialogue, oracle.answer(question).value, place)
    return question


def _next(dialogue: Dialogue, answer: float, place: int) -> RowQuestion:
    try:
        return dialogue.send(answer)
    except StopIteration:
        raise InvalidArgument(f"upto must be at most the analyst's number of questions ({place}).") from None
