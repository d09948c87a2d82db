"""How wide are the intervals, compared with everything else that is proved to hold for adaptive questions?

Hypothesis: from 10^5 rows on and for 1,000 questions or more, holdfast's answers are narrower than those of sample
splitting and of Gaussian noise with the theorems of Jung et al. and of Rogers et al., for common and for rare shares;
its checks are narrower than Guess-and-Check, and its boards than the Ladder.

Refuted if a ratio below is under 1. Nothing is timed: these are formulas, so all sizes run always; those of others are
in `benchmarks/published.py`, with their papers, and every free number in them is at its best. Hoeffding's interval for
questions fixed beforehand is the floor nobody can reach adaptively.

Those who check guesses on held rows, Guess-and-Check and holdfast's checks, hold half of the rows; the guess is what
they say, so the width is what is added for the population. "1% fail": after one wrong guess in a hundred. They are
narrower than answers as long as most guesses hold, because a guess that holds tells next to nothing; nobody gets a
value from them. Answers by coins need no guess, and may be asked what nobody could have guessed. A wrong guess costs
holdfast less than Guess-and-Check, which reveals the held mean then and pays for its digits: a session with two drawers
asks other rows for it instead.

The formula of Rogers et al. is also in their code, which takes half of the noise that its privacy needs: with it as
written, 10^6 rows and 10,000 questions have .0584, not .0820. Thresholdout's is in its favor: no threshold.
"""

from pathlib import Path

from benchmarks import published
from benchmarks.measure import Figure, Found, Line, Table, main

import holdfast as hf
from holdfast.guarantees.checks import Checks, ChecksSoFar
from holdfast.guarantees.ladder import Ladder, SubmissionsSoFar
from holdfast.guarantees.mathematics.concentration import clopper_pearson, hoeffding_radius
from holdfast.guarantees.statistic import HOLDS, Cell, NoisyMeans, Tally
from holdfast.guarantees.terms import Goal

BETA = 0.05
SIZES = (10_000, 100_000, 1_000_000, 10_000_000, 100_000_000)
COUNTS = (100, 1_000, 10_000, 100_000)
SHARES = (0.5, 0.01, 0.001)
BOARDS = ((1_000, 100), (14_042, 100), (14_042, 1_000), (100_000, 1_000), (1_000_000, 10_000))
IMPROVEMENTS = (5, 20)


def certified(n: int, k: int, p: float) -> float:
    """Return holdfast's half-width at a share whose coins come up exactly as expected."""
    plan = hf.plan(rows=n, queries=k, confidence=1 - BETA, mechanism="coins", rows_per_query="best")
    ell, a = plan.rows_per_query, plan.standing.coin_mass
    ones = round(ell * (a + (1 - 2 * a) * p))
    low, high = plan.standing.share(Tally((p,), ell, (ell - ones, ones), reported=(1,)), 0)
    return (high - low) / 2


def scanned(n: int, k: int, p: float) -> float:
    """Return holdfast's half-width if every answer reads all rows and gets Gaussian noise that comes out as 0."""
    plan = hf.plan(rows=n, queries=k, confidence=1 - BETA, mechanism="gaussian")
    low, high = plan.standing.share(NoisyMeans((p,), n, (p,), plan.terms.sigma, 0.0), 0)
    return (high - low) / 2


def checked(n: int, k: int, failures: int, p: float) -> float:
    """Return what a check on half of the rows adds to the guess p, at number k, after so many wrong guesses."""
    terms = Checks.plan(Goal(n // 2, 0, 1 - BETA), *Checks.planning.mechanisms)
    assert terms is not None
    cell = Cell((), terms.rows, terms.rows, HOLDS)
    low, high = Checks(terms).certify(cell, (p, p), ChecksSoFar(k - 1, failures, 0), k)
    return max(high - p, p - low)


def split(n: int, k: int, p: float) -> float:
    """Return the half-width of an exact interval on n/k rows of its own."""
    rows = n // k
    if rows == 0:
        return 0.5
    low, high = clopper_pearson(round(p * rows), rows, BETA / k)
    return (high - low) / 2


def board(n: int, k: int, improvements: int) -> float:
    """Return the half-width around the best of k submissions, the grid's step included, after so many improvements."""
    scored = {"metric": "accuracy", "id": "id", "target": "label", "low": 0.0, "high": 1.0, "clip": 0.0}
    scored |= {"classes": "[]"}
    ladder = Ladder.grid(n, confidence=1 - BETA, step=None, scale=1.0, about="population", **scored)
    return ladder.width(SubmissionsSoFar(k - 1, improvements, ladder.terms.cells // 2)) + ladder.terms.step


def shown(width: float) -> str:
    """Write a width."""
    return "vacuous" if width >= 0.5 else f"{width:.4f}"


def answers(found: Found, sizes: tuple[int, ...], counts: tuple[int, ...], p: float) -> None:
    """Compare those who answer."""
    columns = ["n", "k", "holdfast", "holdfast, all rows read", "splitting", "Gaussian, Jung et al."]
    columns += ["Gaussian, Rogers et al.", "Thresholdout, 1% fail", "Hoeffding, not adaptive"]
    table = Table(f"Answers: half-width at a share of {p:g}, confidence {1 - BETA:g}", columns)
    for n in sizes:
        for k in counts:
            name = f"p = {p:g}, n = {n:,}, k = {k:,}"
            ours, fresh = certified(n, k, p), split(n, k, p)
            jung, rogers = published.gaussian_by_jung(n, k, BETA), published.gaussian_by_rogers(n, k, BETA)
            threshold = published.thresholdout(n, k, k // 100, BETA)
            widths = [ours, scanned(n, k, p), fresh, jung, rogers, threshold, hoeffding_radius(n, BETA / k)]
            table.rows.append([f"{n:,}", f"{k:,}", *map(shown, widths)])
            found.raw[name] = widths
            if n >= 100_000 and k >= 1_000:
                for who, width in (("splitting", fresh), ("Jung et al.", jung), ("Rogers et al.", rogers)):
                    found.ratio(f"{who} / holdfast, {name}", width / ours, goal=1.0, better="higher")
    found.tables.append(table)


def checks(found: Found, sizes: tuple[int, ...], counts: tuple[int, ...], p: float) -> None:
    """Compare those who check guesses."""
    columns = ["n", "k", "holdfast, none fails", "Guess-and-Check, none fails", "holdfast, 1% fail"]
    table = Table(f"Checks: half-width around a guess of {p:g}", [*columns, "Guess-and-Check, 1% fail", "answers"])
    for n in sizes:
        for k in counts:
            name = f"p = {p:g}, n = {n:,}, k = {k:,}"
            ours = [checked(n, k, failures, p) for failures in (0, k // 100)]
            theirs = [published.guess_and_check(n, k, failures, p, BETA) for failures in (0, k // 100)]
            pairs = [width for pair in zip(ours, theirs, strict=True) for width in pair]
            table.rows.append([f"{n:,}", f"{k:,}", *map(shown, pairs), shown(certified(n, k, p))])
            found.raw[f"checks, {name}"] = pairs
            for failing, mine, other in zip(("none fails", "1% fail"), ours, theirs, strict=True):
                found.ratio(f"Guess-and-Check / holdfast, {failing}, {name}", other / mine, goal=1.0, better="higher")
    found.tables.append(table)


def boards(found: Found) -> None:
    """Compare those who rank submissions."""
    columns = ["rows", "submissions", *(f"holdfast, {many} improvements" for many in IMPROVEMENTS), "Ladder"]
    table = Table("Boards: half-width around the best submission", columns)
    for n, k in BOARDS:
        ours, theirs = [board(n, k, many) for many in IMPROVEMENTS], published.ladder(n, k, BETA)
        table.rows.append([f"{n:,}", f"{k:,}", *map(shown, (*ours, theirs))])
        for many, width in zip(IMPROVEMENTS, ours, strict=True):
            name = f"Ladder / holdfast, p = 0.5, n = {n:,}, k = {k:,}, {many} improvements"
            found.ratio(name, theirs / width, goal=1.0, better="higher")
    found.tables.append(table)


def run(small: bool, scratch: Path) -> Found:
    """Certified half-widths."""
    found = Found("Width")
    sizes, counts = (SIZES[1:3], COUNTS[1:3]) if small else (SIZES, COUNTS)
    for p in SHARES:
        answers(found, sizes, counts, p)
    for p in SHARES[:2]:
        checks(found, sizes, counts, p)
    boards(found)
    k = 10_000
    lines = [
        Line("holdfast", list(sizes), [certified(n, k, 0.5) for n in sizes]),
        Line("splitting", list(sizes), [min(0.5, split(n, k, 0.5)) for n in sizes]),
        Line("Gaussian, Jung et al.", list(sizes), [min(0.5, published.gaussian_by_jung(n, k, BETA)) for n in sizes]),
        Line("holdfast's checks, 1% fail", list(sizes), [min(0.5, checked(n, k, k // 100, 0.5)) for n in sizes]),
        Line(
            "Guess-and-Check, 1% fail",
            list(sizes),
            [min(0.5, published.guess_and_check(n, k, k // 100, 0.5, BETA)) for n in sizes],
        ),
        Line("Hoeffding, not adaptive", list(sizes), [hoeffding_radius(n, BETA / k) for n in sizes]),
    ]
    found.figures.append(Figure("width", f"Half-width at a share of 1/2, {k:,} questions", "rows", "half-width", lines))
    return found


if __name__ == "__main__":
    main(run)
