"""The lower bound: no mechanism can tell coins apart with fewer than c/alpha^2 looks at each (prop:lower_bound).

For each question a coin of bias 1/2 or 1/2 + 4 alpha is chosen, and every point of a universe is a yes with that
probability. An answer within alpha of the universe's own mean identifies the coin. Mechanisms that look at m points are
tried for many m; `sizes.least_evaluations` is how many any mechanism needs to be accurate with probability 4/5.
"""

from functools import partial

import numpy as np

from holdfast.guarantees.mathematics import privacy, sizes
from holdfast.lab.attack import in_parallel
from holdfast.lab.baselines import Releaser
from holdfast.lab.experiments import Experiment, Results, Size, spaced, table
from holdfast.lab.plots import Chart, Level, Series
from holdfast.lab.populations import Marked, Universe
from holdfast.mechanisms.coins import Coins
from holdfast.mechanisms.fresh_rows import FreshRows
from holdfast.mechanisms.noisy_means import Laplace
from holdfast.rows.memory import memory_rows

BETA = 0.2
NAMES = ("plain mean of m rows", "a1", "coins")
STYLE = {"plain mean of m rows": "naive", "a1": "a1", "coins": "coins"}


def mechanisms(looks: int, rows: int, seed: int) -> dict[str, Releaser]:
    """Return mechanisms that evaluate `looks` rows; the noise scale of A1 is half the deviation that sampling adds."""
    on_drawn = 4 / np.sqrt(looks)  # scale 1/(looks eps') = 1/(4 sqrt(looks)); the mean's deviation is 1/(2 sqrt(looks))
    epsilon = privacy.without_replacement(float(on_drawn), ell=looks, n=rows)
    return {
        "plain mean of m rows": FreshRows(draws=looks, key=seed.to_bytes(32)),
        "a1": Laplace(draws=looks, epsilon=epsilon),
        "coins": Coins(draws=looks, mass=1 / rows),
    }


def universe_size(alpha: float) -> int:
    """Return the number of points: eight times as many as the proposition requires."""
    return int(16 * np.log(10) / alpha**2)


def identify(seed: int, questions: int, cell: tuple[float, float]) -> Results:
    """Ask about random coins with m = c/alpha^2 looks each; count accurate answers and identified coins."""
    alpha, c = cell
    looks = max(1, round(c / alpha**2))
    size = universe_size(alpha)
    rows = max(4 * looks, size)
    rng = np.random.default_rng([seed, round(1e6 * alpha), looks])
    source = memory_rows(Universe(size).draw(rows, rng))
    found: Results = {"alpha": alpha, "c": c, "looks": looks, "questions": questions}
    for name, mechanism in mechanisms(looks, rows, seed).items():
        accurate = identified = 0
        for _ in range(questions):
            biased = bool(rng.integers(2))
            marks = rng.random(size) < 0.5 + 4 * alpha * biased
            answer = mechanism.release(Marked(marks), source, rng).values[0]
            accurate += abs(answer - marks.mean()) <= alpha
            identified += (answer > 0.5 + 2 * alpha) == biased
        found[name] = {"accurate": int(accurate), "identified": int(identified)}
    return found


def run(size: Size, seed: int, processes: int) -> Results:
    """Try looks from far below the bound to far above."""
    small = size == "small"
    alphas = [0.05] if small else [0.1, 0.05, 0.025]
    cs = [0.005, 0.02, 4.0] if small else spaced(0.002, 8.0, 13)
    questions = 150 if small else 400
    cells = [(alpha, c) for alpha in alphas for c in cs]
    bounds = {f"{alpha:g}": sizes.least_evaluations(alpha, BETA, 1, universe=universe_size(alpha)) for alpha in alphas}
    return {"bounds": bounds, "tries": in_parallel(partial(identify, seed, questions), cells, processes)}


def section(results: Results) -> str:
    """Write the section."""
    lines = []
    for text, bound in results["bounds"].items():
        alpha = float(text)
        tries = [row for row in results["tries"] if row["alpha"] == alpha]
        below = [row for row in tries if row["looks"] < bound]
        best_below = max((row[name]["accurate"] / row["questions"] for row in below for name in NAMES), default=0.0)
        needed = []
        for name in NAMES:
            good = [row["looks"] for row in tries if row[name]["accurate"] >= (1 - BETA) * row["questions"]]
            needed.append(f"{min(good):,} ({min(good) * alpha**2:.2f}/α²)" if good else "-")
        lines.append((text, f"{bound:.0f} ({bound * alpha**2:.3f}/α²)", f"{100 * best_below:.0f}%", *needed))
    head = ("α", "lower bound", "best below it", "plain mean of m rows needs", "A1 needs", "coins need")
    return (
        f"{table(head, lines)}\n\n"
        "Rows evaluated per question. Below the bound no mechanism is accurate for 80% of the questions; a constant"
        " factor above it all of them are. So k/α² evaluations are necessary and, up to that factor, enough for"
        " questions that are not chosen adaptively."
    )


def panels(results: Results) -> list[Chart]:
    """Draw the share of accurate answers over looks, one panel for each alpha."""
    drawn = []
    for text, bound in results["bounds"].items():
        tries = [row for row in results["tries"] if row["alpha"] == float(text)]
        series = [
            Series(
                "A1" if name == "a1" else name,
                [row["looks"] for row in tries],
                [row[name]["accurate"] / row["questions"] for row in tries],
                style=STYLE[name],
            )
            for name in NAMES
        ]
        levels = [Level("80%", 1 - BETA), Level("bound", bound, vertical=True)]
        drawn.append(
            Chart(f"α = {text}", "rows evaluated per question", "share of accurate answers", series, levels, "x")
        )
    return drawn


EXPERIMENT = Experiment("lower_bound", "The lower bound: telling coins apart", run, section, panels)
