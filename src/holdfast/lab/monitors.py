"""The monitors of the transfer theorems, for any mechanism, analyst and population.

A2  simulates the interaction on T samples and releases one of all T k questions, by the exponential mechanism with the
    score |q(S_t) - q(D)|: a question on which sample and population are far apart, if there is one. If the mechanism
    is (epsilon, delta)-DP, the monitor is (2 epsilon, delta)-DP, and the released gap is in expectation at most
    (2/(epsilon n)) log(T k) below the largest.
A5  resumes an interaction after a transcript and returns the i-th question.

Scores are computed from the samples: monitors belong in proofs and simulations, and are never shown to analysts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from holdfast import check
from holdfast.errors import InvalidArgument
from holdfast.lab.analysts import Analyst, Dialogue
from holdfast.lab.baselines import Naive, Releaser
from holdfast.lab.contenders import MechanismOracle, ResumableOracle, converse
from holdfast.lab.populations import Arrays, Population, RowQuestion
from holdfast.mechanisms import exponential
from holdfast.rows.memory import memory_rows

Transcript = Sequence[tuple[RowQuestion, float]]


@dataclass(frozen=True)
class Candidate:
    """One question of one simulated interaction, and how far its sample is from the population."""

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


def candidates(
    mechanism: Releaser,
    analyst: Analyst,
    population: Population,
    samples: Sequence[Arrays],
    rng: Generator,
) -> list[Candidate]:
    """Simulate one interaction on every sample; return all questions with their gaps."""
    found = []
    for number, sample in enumerate(samples):
        source = memory_rows(sample)
        oracle = MechanismOracle(mechanism, source, rng)
        for question, _ in converse(analyst.ask(len(source), rng), oracle):
            (data_mean,) = Naive().release(question, source, rng).values
            found.append(Candidate(question, number, abs(data_mean - population.mean(question))))
    return found


def flag_law(found: Sequence[Candidate], *, rows: int, epsilon: float) -> NDArray[np.float64]:
    """Return the law of what A2 releases: proportional to exp(epsilon n gap/2). One row moves a gap by 1/n at most."""
    check.whole(rows=rows)
    return exponential.probabilities([each.gap for each in found], epsilon=epsilon, sensitivity=1 / rows)


def flag(
    mechanism: Releaser,
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
    found = candidates(mechanism, analyst, population, samples, rng)
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

    `rng` is the analyst's generator, in the state it had when the transcript was made, so that it asks the same.
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
