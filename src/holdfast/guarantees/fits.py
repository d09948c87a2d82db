"""What a guarantee promises about fits of models, beyond the intervals of their losses."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


class ExcessBound(Protocol):
    """A bound on the population's excess loss that holds with all intervals; None: no such promise."""

    def __call__(self, on_rows: float, *, R: float, lipschitz: float, curvature: float) -> float | None:
        """Return the bound.

        Parameters
        ----------
        on_rows
            A bound on the excess loss on the rows.
        R
            The most by which a row's loss can differ between two points.
        lipschitz, curvature
            A bound on the gradient of a row's loss, and its strong convexity.
        """


@dataclass(frozen=True)
class Fits:
    """What a guarantee promises about fits of models; by default nothing.

    Parameters
    ----------
    mechanisms
        Those that a fit may use.
    level
        The failure probability that a statement other than an interval may use; None: no such statements.
    excess
        Returns a bound on the excess loss.
    expected_step
        Returns how much more excess loss the population may show, in expectation, if a row's loss can differ by at most
        R between two points; None: no such promise.
    """

    mechanisms: tuple[str, ...] = ()
    level: float | None = None
    excess: ExcessBound = lambda on_rows, *, R, lipschitz, curvature: None
    expected_step: Callable[[float], float | None] = lambda R: None
