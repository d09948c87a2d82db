"""The functions of `scipy.special`, which is imported when one of them is first used.

Importing it takes as long as everything else that a short command needs, and many commands never use it.
"""

import sys
from typing import Any


def at_hand() -> bool:
    """Whether `scipy.special` has already been imported, so that using it costs nothing."""
    return "scipy.special" in sys.modules


def beta_law(a: float, b: float, p: float) -> float:
    """Return the distribution function of a Beta law, like `betainc`, for single numbers: in a third of the time."""
    from scipy.special import cython_special

    globals()["beta_law"] = cython_special.betainc
    return float(cython_special.betainc(a, b, p))


def beta_quantile(a: float, b: float, tail: float) -> float:
    """Return its quantile, like `betaincinv`."""
    from scipy.special import cython_special

    globals()["beta_quantile"] = cython_special.betaincinv
    return float(cython_special.betaincinv(a, b, tail))


def __getattr__(name: str) -> Any:
    """Return a function of `scipy.special`, and keep it here."""
    if name.startswith("__"):
        raise AttributeError(name)
    from scipy import special

    found = globals()[name] = getattr(special, name)
    return found
