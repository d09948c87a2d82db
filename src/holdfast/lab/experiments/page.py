"""Run experiments, keep their numbers as JSON, and write figures and the page of results from them."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from holdfast import check
from holdfast.errors import RowSourceError
from holdfast.lab.experiments.base import Experiment, Size
from holdfast.lab.experiments.cost import COST
from holdfast.lab.experiments.counting import COUNTING
from holdfast.lab.experiments.looseness import LOOSENESS
from holdfast.lab.experiments.lower_bound import LOWER_BOUND
from holdfast.lab.experiments.sample_size import SAMPLE_SIZE
from holdfast.lab.experiments.sampling import SAMPLING
from holdfast.lab.plots import draw

EXPERIMENTS: tuple[Experiment, ...] = (COST, LOWER_BOUND, SAMPLE_SIZE, COUNTING, SAMPLING, LOOSENESS)
NAMES = tuple(experiment.name for experiment in EXPERIMENTS)
FOLDER = "experiments"
PAGE = "paper.md"

_OPENING = """---
orphan: true
---

# The paper, measured

Every table and figure on this page is written by `holdfast reproduce` from the numbers in `experiments/*.json`, raw
repetitions included. The paper is Fish, Reyzin and Rubinstein, *Sampling Without Compromising Accuracy in Adaptive Data
Analysis*. n rows, k questions, error α, failure probability β. Laplace noise comes from the operating system and cannot
be seeded; everything else repeats with the seed, in the same version.
"""


def reproduce(
    folder: Path,
    *,
    names: Sequence[str] = NAMES,
    size: Size = "small",
    seed: int = 1,
    processes: int = 1,
    progress: Callable[[str], None] | None = None,
) -> list[Path]:
    """Run experiments into `folder`/experiments and rewrite `folder`/paper.md; returns what was written."""
    check.one_of("size", size, ("small", "full"))
    check.whole(0, seed=seed)
    for name in names:
        check.one_of("name", name, NAMES)
    place = folder / FOLDER
    place.mkdir(parents=True, exist_ok=True)
    written = []
    for experiment in EXPERIMENTS:
        if experiment.name in names:
            if progress is not None:
                progress(experiment.title)
            results = {"experiment": experiment.name, "size": size, "seed": seed}
            results |= experiment.run(size, seed, processes)
            path = place / f"{experiment.name}.json"
            path.write_text(_compact(results) + "\n", encoding="utf-8")
            written.append(path)
    return written + write_page(folder)


def write_page(folder: Path) -> list[Path]:
    """Write figures and page from the numbers that are there."""
    written = []
    for experiment in EXPERIMENTS:
        results = _read(folder / FOLDER / f"{experiment.name}.json")
        if results is not None:
            written.append(folder / FOLDER / f"{experiment.name}.png")
            draw(experiment.panels(results), written[-1])
    page = folder / PAGE
    page.write_text(page_text(folder), encoding="utf-8")
    return [*written, page]


def page_text(folder: Path) -> str:
    """Return the page that the numbers in this folder make."""
    parts = [_OPENING]
    for experiment in EXPERIMENTS:
        results = _read(folder / FOLDER / f"{experiment.name}.json")
        if results is not None:
            picture = f"![{experiment.title}]({FOLDER}/{experiment.name}.png)"
            seeded = f"Size {results['size']}, seed {results['seed']}: `{FOLDER}/{experiment.name}.json`."
            parts.append(f"## {experiment.title}\n\n{picture}\n\n{experiment.section(results)}\n\n{seeded}\n")
    return "\n".join(parts)


def _read(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        results: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise RowSourceError(f"{path.name} must be JSON as `holdfast reproduce` writes it; run it again.") from None
    return results


def _compact(results: dict[str, Any]) -> str:
    """One line for every part and every member of a list: small, and a change is seen in a diff."""
    parts = []
    for name, value in results.items():
        if isinstance(value, list):
            members = ",\n  ".join(json.dumps(member, ensure_ascii=False) for member in value)
            parts.append(f"{json.dumps(name)}: [\n  {members}\n ]")
        else:
            parts.append(f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}")
    return "{\n " + ",\n ".join(parts) + "\n}"
