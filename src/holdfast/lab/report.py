"""What an attack showed: claimed, real and promised error as the questions go by."""

from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.lab.world import World

HEADINGS = ("questions", "claimed error", "real error", "worst world", "promised")


@dataclass(frozen=True)
class Look:
    """The state after so many questions.

    `claimed`: the median half width of the error bars so far. `real`: the median over worlds of the largest error so
    far; `worst`: the largest in any world. `promised`: what was promised for all answers at once.
    """

    asked: int
    claimed: float
    real: float
    worst: float
    promised: float | None


@dataclass(frozen=True, eq=False)
class AttackReport:
    """One analyst against one mechanism, in many worlds. Prints as a table; `plot` draws it."""

    mechanism: str
    analyst: str
    rows: int
    queries: int
    confidence: float
    promised: float | None
    predicted: float | None
    seed: int
    worlds: tuple[World, ...]

    @property
    def largest(self) -> NDArray[np.float64]:
        """The largest error of each world."""
        return np.array([world.errors.max() for world in self.worlds])

    @property
    def broken(self) -> int | None:
        """In how many worlds the promise was broken; None if there was none."""
        if self.promised is None:
            return None
        return int(np.count_nonzero(self.largest > self.promised))

    @property
    def excess(self) -> float:
        """By how much the last question's mean on the rows exceeds the population's, averaged over worlds."""
        return float(np.mean([world.excess for world in self.worlds]))

    @property
    def claimed(self) -> float:
        """The last answer, averaged over worlds."""
        return float(np.mean([world.answers[-1] for world in self.worlds]))

    @property
    def real(self) -> float:
        """The population's own value of the last question, averaged over worlds."""
        return float(np.mean([world.population[-1] for world in self.worlds]))

    @property
    def rows_read(self) -> int:
        """Rows read in one world, on average."""
        return round(float(np.mean([world.rows_read for world in self.worlds])))

    def looks(self, every: tuple[int, ...] | None = None) -> list[Look]:
        """Return the state after 1, 2, 5, 10, ... questions and at the end."""
        asked = min(world.answers.size for world in self.worlds)
        steps = every or tuple(base * 10**power for power in range(9) for base in (1, 2, 5))
        running = np.array([np.maximum.accumulate(world.errors[:asked]) for world in self.worlds])
        bars = np.array([(world.high - world.low)[:asked] / 2 for world in self.worlds])
        return [
            Look(
                step,
                float(np.median(bars[:, :step])),
                float(np.median(running[:, step - 1])),
                float(running[:, step - 1].max()),
                self.promised,
            )
            for step in sorted({*(step for step in steps if step < asked), asked})
        ]

    def verdict(self) -> str:
        """Say in one sentence whether the promise was kept."""
        count = len(self.worlds)
        if self.promised is None:
            return f"{self.mechanism} promises nothing; its largest error was {self.largest.max():.4f}."
        kept = f"within ±{self.promised:.4f} in {count - (self.broken or 0)} of {count} worlds"
        allowed = f"{100 * self.confidence:g} % were promised"
        return f"{self.mechanism} against {self.analyst}: every answer {kept}; {allowed}."

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values; a world is named by its seed."""
        return {
            "mechanism": self.mechanism,
            "analyst": self.analyst,
            "rows": self.rows,
            "queries": self.queries,
            "confidence": self.confidence,
            "promised": self.promised,
            "predicted_excess": self.predicted,
            "excess": self.excess,
            "claimed": self.claimed,
            "real": self.real,
            "broken": self.broken,
            "rows_read": self.rows_read,
            "seed": self.seed,
            "seeds": [world.seed for world in self.worlds],
            "largest_errors": [round(float(error), 6) for error in self.largest],
            "looks": [vars(look) for look in self.looks()],
        }

    def plot(self, path: str | Path) -> None:
        """Draw claimed, real and promised error."""
        from holdfast.lab.plots import attack_picture

        attack_picture([self], Path(path))

    def cells(self) -> list[tuple[str, ...]]:
        """Return the table, as text."""
        return [
            (
                f"{look.asked:,}",
                f"{look.claimed:.4f}",
                f"{look.real:.4f}",
                f"{look.worst:.4f}",
                "-" if look.promised is None else f"{look.promised:.4f}",
            )
            for look in self.looks()
        ]

    def __repr__(self) -> str:
        lines = [HEADINGS, *self.cells()]
        widths = [max(len(line[place]) for line in lines) for place in range(len(HEADINGS))]
        table = "\n".join(
            "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines
        )
        return f"{table}\n{self.verdict()} Seed {self.seed}, {len(self.worlds)} worlds."

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(heading)}</th>" for heading in HEADINGS)
        body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in line) + "</tr>" for line in self.cells())
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        return f"{table}<p>{escape(self.verdict())} Seed {self.seed}.</p>"
