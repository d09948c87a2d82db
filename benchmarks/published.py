"""Half-widths that others have proved for adaptive questions, with their free parameters at their best values.

gaussian_by_jung      means of all rows with Gaussian noise, by the transfer theorem of Jung et al.
gaussian_by_rogers    the same, by the theorem of Rogers et al. that their experiments use
thresholdout          the reusable holdout, by the theorem of Rogers et al. about it
guess_and_check       guesses checked on a holdout, Rogers et al.
ladder                the leaderboard of Blum and Hardt

All are for values in [0, 1], n rows, k questions, and hold for all answers at once with probability 1 - beta.

Jung, Ligett, Neel, Roth, Sharifi-Malvajerdi, Shenfeld: A new analysis of differential privacy's generalization
guarantees, ITCS 2020. Rogers, Roth, Smith, Srebro, Thakkar, Woodworth: Guaranteed validity for empirical approaches to
adaptive data analysis, AISTATS 2020, and its code, github.com/omthkkr/empirical_adaptive_data_analysis, read and run at
commit 31c63f6. Blum, Hardt: The ladder: a reliable leaderboard for machine learning competitions, ICML 2015, and its
code, github.com/mrtzh/Ladder.jl, read at commit 6640f98.
"""

from functools import lru_cache
from math import ceil, exp, expm1, inf, lgamma, log, log1p, pi, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar
from scipy.special import log_ndtr, ndtri

from holdfast.guarantees.mathematics.concentration import kl_range


@lru_cache(maxsize=256)
def gaussian_by_jung(n: int, k: int, beta: float) -> float:
    """Return the half-width of all rows plus Gaussian noise by Theorem 3.1 of Jung et al., in the form of Section 4.

    (epsilon, delta)-privacy and error a with probability 1 - b on the rows give a + e^epsilon - 1 + c + 2d with
    probability 1 - b/c - delta/d: transcripts given which redrawn rows would be off by more than a with probability
    above c have total probability at most b/c (Markov); by privacy, those given which the rows are more than
    e^epsilon - 1 + 2d above the population have at most delta/2d, and so have those below. Privacy of k Gaussian
    answers is computed exactly, as that of one answer with 1/sqrt(k) of the noise; sigma, epsilon, c and d are optimal.
    """

    def width(logs: NDArray[np.float64]) -> float:
        sigma, epsilon, c, d = (exp(min(50.0, logs[i])) for i in range(4))
        mu = sqrt(k) / (n * sigma)
        first, second = log_ndtr(mu / 2 - epsilon / mu), epsilon + log_ndtr(-mu / 2 - epsilon / mu)
        left = beta - (exp(first) * -expm1(second - first) if second < first else 0.0) / d
        if left <= 0 or c > 1:
            return 10.0 - left
        return sigma * -float(ndtri(min(0.5, left * c / (2 * k)))) + expm1(min(50.0, epsilon)) + c + 2 * d

    scale = sqrt(sqrt(k) / n)
    start = np.log(scale * np.array([0.63, 3.2, 0.1, 0.3]))
    for _ in range(2):
        found = minimize(width, start, method="Nelder-Mead", options={"maxiter": 4_000, "xatol": 1e-7, "fatol": 1e-10})
        start = found.x
    return min(1.0, float(found.fun))


@lru_cache(maxsize=256)
def gaussian_by_rogers(n: int, k: int, beta: float, *, as_written: bool = False) -> float:
    """Return the half-width of all rows plus Gaussian noise by Theorem 2.1 of Rogers et al. (`conf_width_RZ_new`).

    With x = rho k n: sqrt(min_y (2x - log(1-y))/y / (2 n beta)) + sigma sqrt(2 log(4k/beta)). A mean with privacy rho
    needs noise sigma = 1/(n sqrt(2 rho)); with `as_written`, half of that, as in their code.
    """
    noise = 0.5 if as_written else 1.0

    def width(log_x: float) -> float:
        x = exp(log_x)
        step = minimize_scalar(lambda y: (2 * x - log1p(-y)) / y, bounds=(1e-9, 1 - 1e-12), method="bounded").fun
        return sqrt(step / (2 * n * beta)) + noise / n * sqrt(log(4 * k / beta) * k * n / x)

    return min(1.0, float(minimize_scalar(width, bounds=(-10.0, 30.0), method="bounded").fun))


@lru_cache(maxsize=256)
def thresholdout(n: int, k: int, failures: int, beta: float) -> float:
    """Return the half-width of Thresholdout by Theorem B.9 of Rogers et al. (`bounds_Thresh`), half of the rows held.

    In its favor, the threshold is taken to be zero and the noise to be optimal. Their code keeps the last of a hundred
    squared draws of the largest noise where it should add them up, and so prints about half of this.
    """
    held = n // 2
    (most, most_squared), (wrong, wrong_squared) = _largest_laplace(k), _largest_laplace(failures)

    def width(log_sigma: float) -> float:
        sigma = exp(log_sigma)
        leaked = 2 * failures / (held * sigma**2)
        step = minimize_scalar(lambda y: (leaked - log1p(-y)) / y, bounds=(1e-9, 1 - 1e-11), method="bounded").fun
        noise = sigma**2 * (16 * most_squared + 16 * most * wrong + 4 * wrong_squared)
        return sqrt((step / (4 * held) + noise + sqrt(step * noise / held)) / beta)

    return min(1.0, float(minimize_scalar(width, bounds=(-25.0, 0.0), method="bounded").fun))


def _largest_laplace(count: int) -> tuple[float, float]:
    """Return mean and mean square of the largest of `count` Laplace variables of scale 1."""
    if count == 0:
        return 0.0, 0.0
    x = np.linspace(-40.0, 80.0, 120_001)
    below = np.where(x < 0, 0.5 * np.exp(np.minimum(x, 0)), 1 - 0.5 * np.exp(-np.maximum(x, 0))) ** count
    density = np.gradient(below, x)
    return float(np.trapezoid(x * density, x)), float(np.trapezoid(x * x * density, x))


def guess_and_check(n: int, k: int, failures: int, p: float, beta: float) -> float:
    """Return the tolerance of Guess-and-Check at question k, after `failures` failed guesses, for a correct guess p.

    Half of the rows are held. beta_k = beta c_{k-1} c_f/(binom(k-1, f) ceil(1/gamma)^f), c_j = 6/(pi^2 (j+1)^2): a
    union over all transcripts possible so far; gamma = 1/sqrt(n) is the precision to which a failed guess reveals the
    held mean. The tolerance is the variance-aware one that its library uses by default (`use_mgf_width`, `mgf_width`),
    and the guess equals the holdout's answer. In its favor: the library sets gamma to what the tolerance leaves over,
    so where guesses may fail the tolerance is gamma wider than this; and with many failures its beta_k is 0 in doubles.
    """
    held = n // 2

    def c(j: int) -> float:
        return log(6 / pi**2) - 2 * log(j + 1)

    transcripts = lgamma(k) - lgamma(failures + 1) - lgamma(k - failures) + failures * log(ceil(sqrt(n)))
    nats = log(2) - (log(beta) + c(k - 1) + c(failures) - transcripts)
    low, high = kl_range((p, p), n=held, r=nats)
    return max(high - p, p - low)


def ladder(n: int, k: int, beta: float) -> float:
    """Return the error of the Ladder by Theorem 3.1 of Blum and Hardt, with the best step eta.

    P(error > epsilon + eta) <= exp(-2 epsilon^2 n + (1/eta + 2) log(4k/eta) + 1): by its Claim 3.2 a transcript takes
    (1/eta + 2) log2(4k/eta) bits; this is a union bound over transcripts with Hoeffding's two tails (with factor e
    instead of 2, as in the paper). The parameter-free variant of its Section 4, which requires an improvement of one
    standard error of the paired difference, has no theorem; their code shows scores to log10(n) digits, not in steps of
    eta.
    """

    def width(log_eta: float) -> float:
        eta = exp(log_eta)
        return eta + sqrt(((1 / eta + 2) * log(4 * k / eta) + 1 - log(beta)) / (2 * n))

    found = minimize_scalar(width, bounds=(-15.0, 0.0), method="bounded")
    return min(1.0, float(found.fun) if found.fun < inf else 1.0)
