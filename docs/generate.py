"""Pages that are written by the code itself, so that they cannot drift from it."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from html import escape
from inspect import signature
from math import ceil, floor, sqrt
from pathlib import Path
from statistics import NormalDist
from types import ModuleType
from typing import Any

import asked

import holdfast
from holdfast import errors
from holdfast.cli import command_names, subcommands
from holdfast.guarantees.plan import write_margin
from holdfast.queries.functions import FUNCTION_NAMES, OPERATIONS
from holdfast.queries.node import SUM, Operation
from holdfast.questions import KINDS
from holdfast.questions.check import usual_margin
from holdfast.questions.kind import Kind

HERE = Path(__file__).parent


def cli() -> str:
    """The help of every command."""
    paths = [path for name in command_names() for path in ((name,), *((name, own) for own in subcommands(name)))]
    parts = [("holdfast", help_of()), *((f"holdfast {' '.join(path)}", help_of(*path)) for path in paths)]
    return "\n\n".join(f"## {title}\n\n```text\n{text}```" for title, text in parts) + "\n"


def help_of(*words: str) -> str:
    """What `holdfast <words> --help` prints, at a fixed width."""
    script = "from holdfast.cli import main; main()"
    environment = os.environ | {"COLUMNS": "100", "TERM": "dumb", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [sys.executable, "-c", script, *words, "--help"],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    return done.stdout


def functions() -> str:
    """Everything an expression may do."""
    others: dict[str, list[str]] = {}
    for written, name in FUNCTION_NAMES.items():
        if written != name:
            others.setdefault(name, []).append(written)
    lines = ["| operation | takes | gives | NULL if | also written |", "|---|---|---|---|---|"]
    for name, operation in sorted(OPERATIONS.items()):
        if name == SUM:  # + and - are there
            continue
        also = ", ".join(f"`{_cell(each)}`" for each in sorted(others.get(name, [])))
        lines.append(
            f"| `{_cell(name)}` | {_takes(operation)} | {_gives(name, operation)} |"
            f" {_NULL_OF.get(name, _NULL[operation.null])} | {also} |"
        )
    return "\n".join(lines) + "\n"


def kinds() -> str:
    """Every kind of question: how it is called, and its options."""
    return "\n".join(map(_kind, KINDS.all()))


def _kind(kind: Kind[..., Any]) -> str:
    parameters = list(signature(kind.build).parameters.values())[1:]  # the first is the context
    call = signature(kind.build).replace(
        parameters=[each.replace(annotation=each.empty) for each in parameters], return_annotation=kind.answer
    )
    shown = str(call).replace(f"{kind.answer.__module__}.", "")
    lines = [f"### {kind.name}", "", f"`s.{kind.name}{shown}`", "", kind.summary, ""]
    lines += ["| option | for example | meaning |", "|---|---|---|"]
    for option in kind.options:
        example = "<br>".join(f"`{_cell(line)}`" for line in option.form.example.splitlines())
        lines.append(f"| `{option.name}` | {example} | {_cell(option.help)} |")
    return "\n".join([*lines, ""])


def error_table() -> str:
    """Every error class, its word for programs, and its two codes."""
    lines = ["| class | kind | exit code | HTTP status | says |", "|---|---|---|---|---|"]
    for each in error_classes():
        says = (each.__doc__ or "").splitlines()[0]
        lines.append(f"| `{each.__name__}` | `{each.kind}` | {each.exit_code} | {each.status} | {_cell(says)} |")
    return "\n".join(lines) + "\n"


def error_classes() -> list[type[errors.HoldfastError]]:
    """The base class and everything below it, in the order they are defined."""
    return [
        value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, errors.HoldfastError)
    ]


def other_names() -> str:
    """Directives for public names that reference/api.md has not placed under a heading."""
    page = (HERE / "reference" / "api.md").read_text(encoding="utf-8")
    placed = set(re.findall(r"holdfast\.(\w+)", page)) | {each.__name__ for each in error_classes()}
    lines = ["```{eval-rst}"]
    for name in holdfast.__all__:
        if name not in placed:
            value = getattr(holdfast, name)
            if isinstance(value, ModuleType):
                lines += [f".. automodule:: {value.__name__}", "   :members:"]
            elif isinstance(value, type):
                lines += [f".. autoclass:: holdfast.{name}", "   :members:"]
            elif not callable(value):
                lines += [f".. autodata:: holdfast.{name}", "   :no-value:"]
            else:
                lines += [f".. autofunction:: holdfast.{name}"]
    return "\n".join([*lines, "```"]) + "\n"


def names() -> str:
    """Every public name and the first line about it, for those who read this page without building it."""
    lines = ["| name | |", "|---|---|"]
    for name in holdfast.__all__:
        value = getattr(holdfast, name)
        if isinstance(value, type | ModuleType) or callable(value):
            first = (value.__doc__ or "").strip().partition("\n")[0].replace("|", "\\|")
            lines.append(f"| `holdfast.{name}` | {first} |")
    return "\n".join(lines)


def write(folder: Path) -> None:
    """Write what only a build needs: directives of Sphinx, and the notebook as a page."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "other-names.md").write_text(other_names(), encoding="utf-8")
    (folder / "tutorial-flights.md").write_text(notebook(HERE / "tutorial-flights.ipynb"), encoding="utf-8")


def notebook(path: Path) -> str:
    """Return a notebook as Markdown: its cells, and what they showed when they were run."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", []):
            data = output.get("data", {"text/plain": output.get("text", "")})
            if "text/html" in data:  # one line, or Markdown would end it at an empty one
                shown = "".join(data["text/html"]).replace(chr(10), " ")
                parts.append(f'<div class="output">{shown}</div>')
            else:
                parts.append(f'<pre class="output">{escape("".join(data["text/plain"]).strip())}</pre>')
    return "\n\n".join(parts) + "\n"


_NULL = {
    "any": "any argument is",
    "all": "all arguments are",
    "may": "it has no value for them",
    "never": "never",
}


def _takes(operation: Operation) -> str:
    return ", ".join(operation.takes) + (", ..." if operation.more else "")


_NULL_OF = {  # "any argument is" says only when it may be NULL
    "AND": "an argument is, and none is false",
    "OR": "an argument is, and none is true",
    "CASE": "the chosen value is; a condition that is counts as false",
    "CAST": "the value is, or does not fit",
}


def _gives(name: str, operation: Operation) -> str:
    if name == "CAST":
        return "the named type"
    return "the common type" if operation.gives is None else str(operation.gives)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def readme_demo(numbers: dict[str, Any]) -> str:
    """What the README says about the demo, from the numbers of one run."""
    discovery = numbers["discovery"]
    naive, ours, hint = discovery["naive"][-1], discovery["holdfast"][-1], discovery["hint"]
    error = naive["high"] - naive["value"]
    checks, board = numbers["checks"], numbers["board"]
    last = checks["looks"][-1]
    return "\n".join(
        [
            f"An analyst asks {discovery['questions']:,} questions about {numbers['rows']:,} rows, looking for a rule"
            " that",
            "predicts a fair coin from signals that are fair coins too. Every such rule is right for 50% of the",
            f"population. In this run (`holdfast demo --seed {numbers['seed']}`):",
            "",
            f"- The plain mean of all rows claims {100 * naive['value']:.1f}% ± {100 * error:.1f}:"
            f" {discovery['error_bars']:.0f} error bars from the truth.",
            f"- holdfast says {_percent(floor, ours['low'])} to {_percent(ceil, ours['high'])}% to an analyst who"
            " searches the same"
            f" way but sees only its answers; of its {discovery['questions']:,} intervals, {discovery['misses']} missed"
            " the truth.",
            f"- A real effect, a hint that matches the coin in {100 * hint['population']:.0f}% of rows, gets an"
            f" interval from {_percent(floor, hint['low'])} to {_percent(ceil, hint['high'])}%.",
            f"- Each answer read {hint['rows_read']:,} random rows, not {numbers['rows']:,}.",
            f"- In a second act half of {checks['rows']:,} rows are open. A rule found there seems right for"
            f" {100 * last['open_half']:.1f}%;",
            f"  a usual holdout, asked about each of {last['signals']:,} signals, confirms"
            f" {100 * last['holdout']:.1f}%; holdfast's check calls it",
            f"  {checks['doubted']} and says {_percent(floor, last['low'])} to {_percent(ceil, last['high'])}%; of"
            f" {checks['checks']:,} checks, {checks['missed']} missed.",
            f"- In a third act {board['submissions']:,} submissions, which know nothing, are scored against"
            f" {board['labels']:,} labels.",
            "  From a usual leaderboard their author learns a vote that scores"
            f" {100 * board['leaderboard']:.1f}% there.",
            f"  From holdfast's board the author learns that {board['improvements']} were better than the best before;"
            " a vote of",
            f"  these is right for at most {_percent(ceil, board['vote_high'])}%, the board says.",
        ]
    )


SIZES, QUESTIONS = (20_000, 336_776, 1_000_000, 100_000_000), (20, 100, 1_000, 10_000)


def sizes() -> str:
    """Return the table of real sizes: margins of asking and of checking, beside plain means that promise less."""
    names = " | ".join(f"{count:,}" for count in QUESTIONS)
    lines = [
        f"| rows | questions: | {names} | one plain mean | {QUESTIONS[-1]:,} plain means, Bonferroni |",
        "|---:|---|" + "---:|" * (len(QUESTIONS) + 2),
    ]
    for rows in SIZES:
        plain = [
            write_margin(NormalDist().inv_cdf(1 - 0.025 / count) / (2 * sqrt(rows))) for count in (1, QUESTIONS[-1])
        ]
        asked_for = [write_margin(_margin(rows, count)) for count in QUESTIONS]
        checked = [write_margin(_checked(rows // 2, count)) for count in QUESTIONS]
        lines.append(f"| {rows:,} | ask | " + " | ".join([*asked_for, *plain]) + " |")
        lines.append("| | check | " + " | ".join(checked) + " | | |")
    return "\n".join(lines)


def _margin(rows: int, count: int) -> float:
    """The margin that all of so many planned answers have."""
    return holdfast.plan(rows=rows, queries=count).margin


def _checked(held: int, count: int) -> float:
    """How far a guess that holds can be off, its usual margin included, on so many held rows while guesses hold."""
    found = holdfast.plan(rows=2 * held, queries=count).readings
    beyond = next(one.margin for one in found if one.way == "checks" and "best" in one.pace)
    return beyond + usual_margin(0.5, held, explored=held)


def _percent(outwards: Callable[[float], int], share: float) -> str:
    """Write an end of an interval in percent, never rounded inwards."""
    return f"{outwards(1_000 * share) / 10:.1f}"


# Which blocks of which pages are written here, between <!-- name: ... --> and <!-- /name -->.
WRITTEN: dict[str, tuple[str, ...]] = {
    "README.md": ("demo", "sizes"),
    "docs/index.md": ("sizes",),
    "docs/reference/cli.md": ("cli",),
    "docs/reference/queries.md": ("functions",),
    "docs/reference/errors.md": ("errors",),
    "docs/reference/api.md": ("names",),
    "docs/how-to/kinds.md": ("kinds",),
    "docs/how-to/what-to-ask.md": ("asked", "narrower"),
}
_BLOCKS: dict[str, Callable[[], str]] = {
    "demo": lambda: readme_demo(json.loads((HERE / "demo.json").read_text(encoding="utf-8"))),
    "sizes": sizes,
    "cli": cli,
    "functions": functions,
    "errors": error_table,
    "names": names,
    "kinds": kinds,
    "asked": asked.table,
    "narrower": asked.narrower,
}


@cache
def block(name: str) -> str:
    """Return what belongs into a block."""
    return _BLOCKS[name]().strip("\n")


def written(page: str, name: str) -> str:
    """Return what stands in a block of a page."""
    text = (HERE.parent / page).read_text(encoding="utf-8")
    found = re.search(rf"<!-- {name}:.*?-->\n(.*?)<!-- /{name} -->", text, flags=re.DOTALL)
    assert found is not None, f"{page} has no block {name}"
    return found[1].strip("\n")


def write_pages() -> None:
    """Write all blocks anew: `python docs/generate.py`."""
    for page, names_of_blocks in WRITTEN.items():
        path = HERE.parent / page
        text = path.read_text(encoding="utf-8")
        for name in names_of_blocks:
            found = rf"(<!-- {name}:.*?-->\n).*?(<!-- /{name} -->)"
            around = "" if name in ("demo", "sizes") else "\n"  # a heading needs an empty line before it
            new = f"{around}{block(name)}\n{around}"
            text = re.sub(found, lambda m, new=new: f"{m[1]}{new}{m[2]}", text, flags=re.DOTALL)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_pages()
