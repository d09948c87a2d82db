"""How wide are the intervals, compared with everything else that is proved to hold for adaptive questions?

Hypothesis: from 10^5 rows on and for 1,000 questions or more, holdfast's interval is narrower than sample splitting and
than differential privacy with the transfer theorem of Jung et al. 2020, for common and for rare shares.

Refuted if a ratio below is under 1. Nothing is timed: these are formulas, so all sizes run always. Hoeffding's
interval for questions fixed beforehand is the floor nobody can reach adaptively. Guess-and-Check (Rogers et al. 2020)
is given its best case: half of the rows hold out, no guess ever fails, so the width is the holdout's tolerance; with
1 in 100 guesses failing it is what the same formula gives. This is the Chernoff form of its published tolerance, which
does not depend on p.
"""

from math import lgamma, log, pi, sqrt
from pathlib import Path

from benchmarks.measure import Figure, Found, Line, Table, main

import holdfast as hf
from holdfast.errors import PlanInfeasible
from holdfast.guarantees.mathematics.concentration import clopper_pearson, hoeffding_radius
from holdfast.guarantees.release import NoisyMeans, Tally

BETA = 0.05
SIZES = (10_000, 100_000, 1_000_000, 10_000_000, 100_000_000)
COUNTS = (100, 1_000, 10_000, 100_000)
SHARES = (0.5, 0.01, 0.001)


def certified(n: int, k: int, p: float) -> float:
    """Return holdfast's half-width at a share whose coins come up exactly as expected."""
    plan = hf.plan(rows=n, queries=k, confidence=1 - BETA, mechanism="coins")
    ell, a = plan.rows_per_query, plan.standing.coin_mass
    ones = round(ell * (a + (1 - 2 * a) * p))
    low, high = plan.standing.share(Tally((p,), ell, (ell - ones, ones), reported=(1,)), 0)
    return (high - low) / 2


def scanned(n: int, k: int, p: float) -> float:
    """Return holdfast's half-width if every answer reads all rows and gets Gaussian noise that comes out as 0."""
    plan = hf.plan(rows=n, queries=k, confidence=1 - BETA, mechanism="gaussian")
    low, high = plan.standing.share(NoisyMeans((p,), n, (p,), plan.terms.sigma, 0.0), 0)
    return (high - low) / 2


def split(n: int, k: int, p: float) -> float:
    """Return the half-width of an exact interval on n/k rows of its own."""
    rows = n // k
    if rows == 0:
        return 0.5
    low, high = clopper_pearson(round(p * rows), rows, BETA / k)
    return (high - low) / 2


def jung(n: int, k: int) -> float | None:
    """Return the half-width that Laplace answers have by the transfer theorem of Jung et al."""
    try:
        return hf.plan(rows=n, queries=k, confidence=1 - BETA, guarantee="dp").margin
    except PlanInfeasible:
        return None


def guess_and_check(n: int, k: int, failures: int) -> float:
    """Return the tolerance of the holdout at question k, after so many failed guesses.

    beta_k = beta c_{k-1} c_f / (binom(k-1, f) (1/gamma)^f) with c_j = 6/(pi^2 (j+1)^2): a union over all transcripts
    that are possible so far; gamma = 1/sqrt(n) is what a failed guess reveals the holdout's mean to.
    """
    holdout = n / 2

    def c(j: int) -> float:
        return log(6 / pi**2) - 2 * log(j + 1)

    transcripts = lgamma(k) - lgamma(failures + 1) - lgamma(k - failures) + failures * log(sqrt(n))
    level = log(BETA) + c(k - 1) + c(failures) - transcripts
    return min(0.5, sqrt((log(2) - level) / (2 * holdout)))


def shown(width: float | None) -> str:
    if width is None:
        return "no promise"
    return "vacuous" if width >= 0.5 else f"{width:.4f}"


def run(small: bool, scratch: Path) -> Found:
    """Certified half-widths."""
    found = Found("Width")
    sizes, counts = (SIZES[1:3], COUNTS[1:3]) if small else (SIZES, COUNTS)
    for p in SHARES:
        table = Table(
            f"Half-width at a share of {p:g}, confidence {1 - BETA:g}",
            [
                "n",
                "k",
                "holdfast",
                "holdfast, all rows read",
                "splitting",
                "Jung et al.",
                "Guess-and-Check, none fails",
                "1 % fail",
                "Hoeffding, not adaptive",
            ],
        )
        for n in sizes:
            for k in counts:
                ours, fresh, private = certified(n, k, p), split(n, k, p), jung(n, k)
                floor = hoeffding_radius(n, BETA / k)
                best, usual, whole = guess_and_check(n, k, 0), guess_and_check(n, k, k // 100), scanned(n, k, p)
                table.rows.append(
                    [f"{n:,}", f"{k:,}", *(shown(each) for each in (ours, whole, fresh, private, best, usual, floor))]
                )
                found.raw[f"p = {p:g}, n = {n:,}, k = {k:,}"] = [ours, whole, fresh, private, best, usual, floor]
                if n >= 100_000 and k >= 1_000:
                    name = f"p = {p:g}, n = {n:,}, k = {k:,}"
                    found.ratio(f"splitting / holdfast, {name}", fresh / ours, goal=1.0, better="higher")
                    if private is not None:
                        found.ratio(f"Jung et al. / holdfast, {name}", private / ours, goal=1.0, better="higher")
        found.tables.append(table)
    k = 10_000
    lines = [
        Line("holdfast", list(sizes), [certified(n, k, 0.5) for n in sizes]),
        Line("splitting", list(sizes), [min(0.5, split(n, k, 0.5)) for n in sizes]),
        Line("Jung et al.", list(sizes), [min(0.5, jung(n, k) or 0.5) for n in sizes]),
        Line("Guess-and-Check, none fails", list(sizes), [guess_and_check(n, k, 0) for n in sizes]),
        Line("Guess-and-Check, 1 % fail", list(sizes), [guess_and_check(n, k, k // 100) for n in sizes]),
        Line("Hoeffding, not adaptive", list(sizes), [hoeffding_radius(n, BETA / k) for n in sizes]),
    ]
    found.figures.append(Figure("width", f"Half-width at a share of 1/2, {k:,} questions", "rows", "half-width", lines))
    return found


if __name__ == "__main__":
    main(run)
