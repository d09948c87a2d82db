"""Sequences of four cards from three rows: as likely, all 81 of them, if cards are independent uniform draws."""

import numpy as np
from scipy.stats import chi2

FALSE_ALARM = 1e-6
LIMIT = float(chi2.isf(FALSE_ALARM, 80))


def unlikeliness(rows: np.ndarray) -> float:
    """Return the chi-square statistic of rows 0, 1, 2 in order, four at a time; above LIMIT with that probability."""
    fours = rows[: rows.size // 4 * 4].reshape(-1, 4) @ np.array([27, 9, 3, 1])
    expected = fours.size / 81
    return float(np.sum((np.bincount(fours, minlength=81) - expected) ** 2 / expected))
