"""Run every case, keep what each found under results/, and write the page that the manual shows.

    python benchmarks/report.py             full size: minutes, and some gigabytes of scratch space
    python benchmarks/report.py --small     small tables: the same code in well under a minute, nothing is kept

Ratios are compared with the results last committed; one that got much worse is warned of.
"""

import argparse
import ast
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from math import inf
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
RESULTS = HERE / "results"
PAGE = ROOT / "docs" / "benchmarks.md"
CASES = (
    "one_answer", "whole_session", "growth", "width", "descent", "descent_step", "fits", "accuracy", "ledger_commits",
    "committed_answers", "service_load", "endurance", "board_load",
    "cold_start", "draw_floor", "answer_time", "units", "deck",
    "guarantees",
)  # fmt: skip
WORSE = 1.5  # a ratio this many times worse than last time is warned of
PACKAGES = ("numpy", "polars", "duckdb", "opendp", "scikit-learn", "randomgen", "sqlglot")
Result = dict[str, Any]


def run_case(name: str, *, small: bool, scratch: Path, results: Path) -> Result:
    """Run one case in a process of its own; return what it found."""
    path = results / f"{name}.json"
    command = [sys.executable, "-m", f"benchmarks.cases.{name}", "--scratch", str(scratch), "--json", str(path)]
    load, begin = os.getloadavg()[0], time.perf_counter()
    subprocess.run([*command, *(["--small"] if small else [])], cwd=ROOT, check=True)
    result: Result = json.loads(path.read_text())
    result["run"] = {
        "seconds": round(time.perf_counter() - begin, 1),
        "load_before": round(load, 2),
        "load_after": round(os.getloadavg()[0], 2),
        "small": small,
        "machine": machine(),
    }
    path.write_text(json.dumps(result, indent=1) + "\n")
    return result


def machine() -> Result:
    """Return what the numbers were measured on."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processors": os.cpu_count(),
        "memory_gb": round(memory / 1e9),
        "system": f"{platform.system()} on {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: version(name) for name in PACKAGES},
    }


def committed(name: str) -> Result | None:
    """Return the results of a case as last committed; None if there are none."""
    ran = subprocess.run(
        ["git", "show", f"HEAD:benchmarks/results/{name}.json"], cwd=ROOT, capture_output=True, text=True
    )
    found: Result | None = json.loads(ran.stdout) if ran.returncode == 0 else None
    return found


def regressions(name: str, result: Result, last: Result | None) -> list[str]:
    """Return a warning for every ratio that is much worse than it was."""
    if last is None or last.get("run", {}).get("small") != result["run"]["small"]:
        return []
    warnings = []
    for what, now in result["ratios"].items():
        then = last["ratios"].get(what)
        if then is None or then["value"] <= 0 or now["value"] <= 0:
            continue
        change = now["value"] / then["value"] if now["better"] == "lower" else then["value"] / now["value"]
        if change > WORSE:
            warnings.append(f"{name}: {what} was {then['value']:.3g} and is {now['value']:.3g}")
    return warnings


def hypothesis(name: str) -> str:
    """Return what a case says of itself, without its first line."""
    text = ast.get_docstring(ast.parse((HERE / "cases" / f"{name}.py").read_text())) or ""
    first, _, rest = text.partition("\n")
    return f"**{first.strip()}**\n\n{rest.strip()}"


def written(table: Result) -> str:
    """Return a table in Markdown."""
    rows = [table["columns"], ["---"] * len(table["columns"]), *table["rows"]]
    lines = ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]
    return f"*{table['title']}*\n\n" + "\n".join(lines)


def draw(figure: Result, folder: Path) -> str:
    """Draw a figure; return the line that shows it."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = figure["name"]
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    canvas, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for line, marker in zip(figure["lines"], "osD^vx", strict=False):
        axes.plot(line["x"], line["y"], label=line["name"], marker=marker, markersize=4)
    axes.set(xscale="log", yscale="log", xlabel=figure["x"], ylabel=figure["y"], title=figure["title"])
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    canvas.savefig(folder / f"{figure['name']}.svg", metadata={"Date": None})
    pyplot.close(canvas)
    return f"![{figure['title']}]({folder.name}/{figure['name']}.svg)"


def goals(found: dict[str, Result]) -> str:
    """Return the goals and whether they are met."""
    table: Result = {"title": "Goals", "columns": ["case", "what", "measured", "goal", "met"], "rows": []}
    together: dict[tuple[str, str], list[Result]] = {}
    for result in found.values():
        for what, ratio in result["ratios"].items():
            if ratio["goal"] is not None:
                together.setdefault((result["title"], what.partition(", p =")[0]), []).append(ratio)
    for (title, what), ratios in together.items():
        ratio = (max if ratios[0]["better"] == "lower" else min)(ratios, key=lambda each: each["value"])
        sign = "at most" if ratio["better"] == "lower" else "at least"
        often = "" if len(ratios) == 1 else f" (worst of {len(ratios)})"
        met = "yes" if ratio["met"] else "**no**"
        value, goal = ratio["value"], ratio["goal"]
        table["rows"].append([title, what + often, number(value, goal), f"{sign} {number(goal)}", met])
    return written(table)


def number(value: float, goal: float = inf) -> str:
    """Write a number in three digits, or in as many as tell it from the goal."""
    digits = next((each for each in (3, 4, 5) if float(f"{value:.{each}g}") != goal), 3)
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.{digits}g}"


def page(found: dict[str, Result], warnings: list[str], target: Path) -> str:
    """Return the page."""
    run = next(iter(found.values()))["run"]
    on = run["machine"]
    packages = ", ".join(f"{name} {number}" for name, number in on["packages"].items())
    loads = [result["run"][when] for result in found.values() for when in ("load_before", "load_after")]
    busy = (
        f"Other programs kept the machine busy meanwhile: its load was up to {max(loads):.0f} on {on['processors']}"
        " processors, so trust ratios, not times."
        if max(loads) > 1.5 * on["processors"]
        else f"The machine's load was at most {max(loads):.1f}, the benchmarks' own included."
    )
    parts = [
        "# Benchmarks",
        "Written by `make bench`. Contenders take turns within one run; times are medians, and numbers to compare are"
        " ratios within that run. Raw repetitions are in `benchmarks/results/`.",
        f"Measured on {on['processors']} processors with {on['memory_gb']} GB, {on['system']}, Python {on['python']},"
        f" {packages}{', small sizes' if run['small'] else ''}. {busy}",
        goals(found),
    ]
    if warnings:
        parts.append("Worse than the last results:\n\n" + "\n".join(f"- {warning}" for warning in warnings))
    for name, result in found.items():
        parts += [f"## {result['title']}", hypothesis(name), *(written(table) for table in result["tables"])]
        parts += [draw(figure, target.with_suffix("")) for figure in result["figures"]]
        parts += result["notes"]
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def main() -> None:
    """Run the cases and write the page."""
    parser = argparse.ArgumentParser(description="Run the benchmarks.")
    parser.add_argument("--small", action="store_true", help="small tables; results are shown, not kept")
    parser.add_argument("--only", nargs="*", choices=CASES, help="run these; the others keep their last results")
    parser.add_argument("--scratch", type=Path, help="where tables are built; removed at the end if left out")
    parser.add_argument("--page", type=Path, help="where the page goes")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as temporary:
        scratch = options.scratch or Path(temporary)
        results = Path(temporary) if options.small else RESULTS
        target = options.page or (Path(temporary) / "page.md" if options.small else PAGE)
        found: dict[str, Result] = {}
        warnings: list[str] = []
        for name in CASES:
            last = committed(name)
            path = results / f"{name}.json"
            if options.only is None or name in options.only:
                found[name] = run_case(name, small=options.small, scratch=scratch, results=results)
                print(f"{name}: {found[name]['run']['seconds']} s", flush=True)
            elif path.exists():
                found[name] = json.loads(path.read_text())
            else:
                continue
            warnings += regressions(name, found[name], last)
        target.write_text(page(found, warnings, target))
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)


if __name__ == "__main__":
    main()
