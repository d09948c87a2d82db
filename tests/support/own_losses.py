"""Losses whose population minimizer is known in closed form, written as a user would write them."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl


@dataclass
class MeanLoss:
    """|theta - x|^2/2 for x in [-1, 1]^d: its minimizer is the mean, its excess |theta - mean|^2/2."""

    columns: tuple[str, ...]
    center: Any = None  # subtracted from x: a way to make the loss depend on an earlier answer
    dimension: int = 0
    gradient_range: tuple[float, float] = (-2.0, 2.0)
    value_range: tuple[float, float] = (0.0, 2.0)
    curvature: float = 1.0
    names: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        self.dimension = len(self.columns)
        self.value_range = (0.0, 2.0 * len(self.columns))

    def _x(self, rows: pl.DataFrame) -> np.ndarray:
        x = rows.select(self.columns).to_numpy().astype(float)
        return np.clip(np.nan_to_num(x), -1, 1) - (0 if self.center is None else self.center)

    def values(self, rows: pl.DataFrame, point: np.ndarray) -> np.ndarray:
        return ((point - self._x(rows)) ** 2).sum(axis=1) / 2

    def gradients(self, rows: pl.DataFrame, point: np.ndarray) -> np.ndarray:
        return point - self._x(rows)


@dataclass
class MedianLoss:
    """sum_j |theta_j - x_j|: convex, not strongly; for x uniform on [-1, 1] the excess is |theta|^2/2."""

    columns: tuple[str, ...]
    dimension: int = 0
    gradient_range: tuple[float, float] = (-1.0, 1.0)
    value_range: tuple[float, float] = (0.0, 2.0)

    def __post_init__(self) -> None:
        self.dimension = len(self.columns)
        self.value_range = (0.0, 2.0 * len(self.columns))

    def _x(self, rows: pl.DataFrame) -> np.ndarray:
        return np.clip(np.nan_to_num(rows.select(self.columns).to_numpy().astype(float)), -1, 1)

    def values(self, rows: pl.DataFrame, point: np.ndarray) -> np.ndarray:
        return np.abs(point - self._x(rows)).sum(axis=1)

    def gradients(self, rows: pl.DataFrame, point: np.ndarray) -> np.ndarray:
        return np.sign(point - self._x(rows))


def uniform_table(n: int, d: int, seed: int, shift: float = 0.0) -> dict[str, np.ndarray]:
    """Independent columns, uniform on [-1, 1], or on [shift - .5, shift + .5] if shifted."""
    rng = np.random.default_rng(seed)
    if shift:
        return {f"x{j}": rng.uniform(shift - 0.5, shift + 0.5, n) for j in range(d)}
    return {f"x{j}": rng.uniform(-1, 1, n) for j in range(d)}
