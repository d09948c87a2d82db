"""Sampling does not compromise accuracy: coins of ell rows against all n rows + Gaussian noise of variance 1/(4 ell).

Both have the same charge, so the information guarantee promises the same for both. Both face every analyst on the same
samples, with independent randomness. World by world, the error of the answers (root mean square over the questions of a
world) and the success of the attack (the excess of its last question) are compared. Different analysts get different
worlds, so that their results are independent of each other.
"""

from functools import partial
from math import sqrt

import numpy as np

from holdfast.lab.analysts import ANALYSTS
from holdfast.lab.attack import attack, in_parallel
from holdfast.lab.baselines import FullGaussian, Releaser
from holdfast.lab.experiments import Experiment, Results, Size, table
from holdfast.lab.plots import Chart, Series
from holdfast.mechanisms.coins import Coins

CONTENDERS = ("coins", "gaussian")


def compare(rows: int, ell: int, queries: int, worlds: int, seed: int, analyst: str) -> Results:
    """Run both against one analyst."""
    found: Results = {"analyst": analyst}
    contenders: dict[str, Releaser] = {
        "coins": Coins(draws=ell, mass=1 / rows),
        "gaussian": FullGaussian(sigma=1 / sqrt(4 * ell)),
    }
    # One seed gives both the same samples. Coins and normals use the generator differently, so their noise is
    # independent.
    shared = int(np.random.SeedSequence([seed, list(ANALYSTS).index(analyst)]).generate_state(1)[0])
    for name, mechanism in contenders.items():
        report = attack(mechanism, analyst, rows=rows, queries=queries, worlds=worlds, seed=shared)
        found[name] = {
            "error": [round(float(np.sqrt(np.mean(world.errors**2))), 6) for world in report.worlds],
            "excess": [round(world.excess, 6) for world in report.worlds],
            "rows_read": report.rows_read,
        }
    return found


def run(size: Size, seed: int, processes: int) -> Results:
    """Run every analyst."""
    small = size == "small"
    rows, ell, queries, worlds = (600, 100, 61, 24) if small else (3_000, 300, 301, 40)
    names = ["weighted", "harmless"] if small else list(ANALYSTS)
    repeat = partial(compare, rows, ell, queries, worlds, seed)
    return {
        "rows": rows,
        "ell": ell,
        "queries": queries,
        "worlds": worlds,
        "compared": in_parallel(repeat, names, processes),
    }


def _mean(values: list[float]) -> tuple[float, float]:
    return float(np.mean(values)), float(np.std(values, ddof=1) / sqrt(len(values)))


def difference(row: Results, what: str) -> tuple[float, float]:
    """Return coins minus Gaussian, averaged over the worlds they share, and its standard error."""
    return _mean([ours - theirs for ours, theirs in zip(*(row[name][what] for name in CONTENDERS), strict=True)])


def section(results: Results) -> str:
    """Write the section."""
    lines, beyond = [], 0
    for row in results["compared"]:
        cells = []
        for what in ("error", "excess"):
            gap, error = difference(row, what)
            beyond += abs(gap) > 2 * error
            cells += [f"{_mean(row[name][what])[0]:.4f}" for name in CONTENDERS] + [f"{gap:+.4f} ± {2 * error:.4f}"]
        lines.append((row["analyst"], *cells))
    head = ("analyst", "error: coins", "Gaussian", "difference", "excess: coins", "Gaussian", "difference")
    first = results["compared"][0]
    ratio = first["gaussian"]["rows_read"] / first["coins"]["rows_read"]
    return (
        f"{table(head, lines)}\n\n"
        f"n = {results['rows']:,}, ell = {results['ell']:,}, k = {results['queries']:,}, {results['worlds']} worlds;"
        f" differences ± two standard errors. {beyond} of {2 * len(lines)} differences are larger than that;"
        f" {0.05 * 2 * len(lines):.1f} are expected by chance. The excess is how far the mean of the attack's last"
        f" question on the rows is above the population's. Coins read ell/n = {1 / ratio:.2g} of the rows that the scan"
        " reads."
    )


def panels(results: Results) -> list[Chart]:
    """Draw both next to each other."""
    names = [row["analyst"] for row in results["compared"]]
    drawn = []
    for what, title, y_label in (
        ("error", "Error of the answers", "root mean square error"),
        ("excess", "Success of the attack", "q(S) - q(D) of the last question"),
    ):
        series = []
        for number, name in enumerate(CONTENDERS):
            found = [_mean(row[name][what]) for row in results["compared"]]
            x = [index + 0.24 * number - 0.12 for index in range(len(names))]
            y = [mean for mean, _ in found]
            low, high = [mean - 2 * se for mean, se in found], [mean + 2 * se for mean, se in found]
            label = {"coins": f"coins, {results['ell']:,} rows", "gaussian": f"all {results['rows']:,} rows + noise"}[
                name
            ]
            series.append(Series(label, x, y, low, high, style=name, line=""))
        drawn.append(Chart(title, "", y_label, series, categories=names))
    return drawn


EXPERIMENT = Experiment("sampling", "Sampling does not compromise accuracy", run, section, panels)
