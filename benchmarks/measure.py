"""How every case measures and what it hands to the report.

Contenders take turns within one run, so that a busy machine slows them alike; every repetition is kept. A case says
what it found as tables, and as ratios: the numbers that mean the same on another machine, and that the next run is
compared with.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

Contenders = Mapping[str, Callable[[], object]]
Times = dict[str, list[float]]


@dataclass
class Table:
    """One table of the report."""

    title: str
    columns: list[str]
    rows: list[list[Any]] = field(default_factory=list)


@dataclass
class Ratio:
    """A number without units, its goal, and which way is better."""

    value: float
    goal: float | None = None
    better: str = "lower"

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None without one."""
        if self.goal is None:
            return None
        return self.value <= self.goal if self.better == "lower" else self.value >= self.goal


@dataclass
class Line:
    """One line of a figure."""

    name: str
    x: list[float]
    y: list[float]


@dataclass
class Figure:
    """Lines on axes with logarithmic scales."""

    name: str
    title: str
    x: str
    y: str
    lines: list[Line] = field(default_factory=list)


@dataclass
class Found:
    """What a case found: all of it goes to results/, the tables, ratios, figures and notes also to the page."""

    title: str
    tables: list[Table] = field(default_factory=list)
    ratios: dict[str, Ratio] = field(default_factory=dict)
    figures: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    raw: dict[str, Any] = field(default_factory=dict)

    def ratio(self, name: str, value: float, *, goal: float | None = None, better: str = "lower") -> None:
        """Keep a ratio."""
        self.ratios[name] = Ratio(float(value), goal, better)

    def to_json(self) -> str:
        """Return everything as JSON."""
        content = asdict(self)
        for name, ratio in self.ratios.items():
            content["ratios"][name]["met"] = ratio.met
        return json.dumps(content, indent=1, default=float)


def alternate(
    contenders: Contenders, repeats: int, *, warm: int = 1, most_seconds: float = 60.0, block: int = 1
) -> Times:
    """Time each contender in turn, in seconds; one that has used up `most_seconds` drops out of later rounds.

    A turn is `block` repetitions: more than one where contenders would only measure what the one before them left in
    the caches.
    """
    times: Times = {name: [] for name in contenders}
    for _ in range(warm):
        for run in contenders.values():
            run()
    for _ in range(repeats):
        for name, run in contenders.items():
            if sum(times[name]) > most_seconds:
                continue
            for _ in range(block):
                begin = time.perf_counter()
                run()
                times[name].append(time.perf_counter() - begin)
    return times


def medians(times: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return the median of every contender."""
    return {name: statistics.median(each) for name, each in times.items()}


def shown(seconds: float) -> str:
    """Return a time for people."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} us"
    return f"{digits(seconds * 1e3)} ms" if seconds < 1 else f"{digits(seconds)} s"


def digits(number: float) -> str:
    """Return a number with three digits, or all those before the point."""
    return f"{number:,.0f}" if number >= 1_000 else f"{number:.3g}"


def rounded(times: Mapping[str, Iterable[float]]) -> dict[str, list[float]]:
    """Return raw repetitions with as many digits as a clock deserves."""
    return {name: [float(f"{each:.4g}") for each in kept] for name, kept in times.items()}


def main(run: Callable[[bool, Path], Found]) -> None:
    """Run one case from the command line."""
    parser = argparse.ArgumentParser(description=(run.__doc__ or "One case."))
    parser.add_argument("--small", action="store_true", help="small tables, few repetitions")
    parser.add_argument("--scratch", type=Path, help="where tables are built and kept for the next case")
    parser.add_argument("--json", type=Path, help="write what was found here; otherwise it is printed")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        found = run(options.small, options.scratch or Path(temporary))
    if options.json is None:
        print(found.to_json())
    else:
        options.json.write_text(found.to_json() + "\n")
