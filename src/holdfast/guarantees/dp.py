"""The dp guarantee: differential privacy of every answer, and the transfer theorem of Jung et al."""

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, log, sqrt

import numpy as np

from holdfast.cached import cached_property
from holdfast.guarantees import GUARANTEES
from holdfast.guarantees.guarantee import AnswerGuarantee, Planning, around, ratio
from holdfast.guarantees.mathematics import privacy
from holdfast.guarantees.mathematics.concentration import hoeffding_radius, laplace_radius
from holdfast.guarantees.mathematics.search import Vector, sampled_rows, zoom
from holdfast.guarantees.statistic import Interval, Release, Statistic
from holdfast.guarantees.terms import Fits, Goal, Terms


@dataclass(frozen=True, kw_only=True)
class NoisyTerms(Terms):
    """`epsilon` is that of one noisy mean on all rows."""

    epsilon: float

    @cached_property
    def charge_per_answer(self) -> int:
        """Every noisy mean costs as much as n^2 epsilon^2 coins."""
        return ceil(privacy.private_cost(self.epsilon, n=self.rows))


class NoisyGuarantee(AnswerGuarantee):
    """One epsilon for every noisy mean. A subclass says how far such a mean can be from the population's."""

    terms: NoisyTerms
    terms_class = NoisyTerms

    def charge(self, statistic: Statistic, draws: int) -> int:
        """The same for every noisy mean."""
        return statistic.intervals * self.terms.charge_per_answer

    def group(self, release: Release, part: int = 0) -> Interval:
        """The range of the ratio of two noisy means."""
        return ratio(self.share(release, 2 * part + 1), self.share(release, 2 * part))

    def epsilon_for(self, draws: int) -> float:
        """The planned epsilon."""
        return self.terms.epsilon


class DifferentialPrivacy(NoisyGuarantee):
    """Sampled rows and Laplace noise, by differential privacy: one margin for every noisy mean."""

    name = "dp"
    planning = Planning(("laplace",))

    @classmethod
    def plan(cls, goal: Goal, mechanism: str) -> NoisyTerms | None:
        """Return the best epsilon and slacks of the transfer theorem."""
        return None if goal.flips or goal.rows < 2 else _planned(goal, mechanism)

    def share(self, release: Release, part: int) -> Interval:
        """The noisy mean ± the margin."""
        noisy = self.noisy(release)
        return around(noisy.means[part], self.terms.margin + noisy.grid)

    @property
    def fits(self) -> Fits:
        """Noisy means, by information: the charge of one is that of as many coins as tell as much."""
        return Fits((self.terms.mechanism,), expected_step=self.information_step)


@lru_cache(maxsize=4096)
def _planned(goal: Goal, mechanism: str) -> NoisyTerms:
    n, k, beta = goal.rows, goal.queries, goal.beta

    def full_scan(log_eps: Vector, log_c: Vector, log_d: Vector) -> Vector:
        eps, c, d = np.exp(log_eps), np.exp(log_c), np.exp(log_d)
        nats = -np.log(d * beta / 2)
        eps0 = eps / (np.sqrt(nats + eps) + np.sqrt(nats)) * sqrt(2 / k)
        total: Vector = np.log(4 * k / (c * beta)) / (n * eps0) + np.expm1(eps) + c + 2 * d
        return total

    box = [(log(1e-9), log(1.0)), (log(1e-12), log(0.5)), (log(1e-12), log(0.5))]
    eps, c, d = (float(np.exp(x)) for x in zoom(full_scan, box, points=8, levels=12))
    delta, fail = d * beta / 2, c * beta / 2
    eps0 = privacy.zcdp_step(eps, delta, k=k)

    def margin(ell: int) -> float:
        on_drawn = privacy.epsilon_without_replacement(eps0, ell=ell, n=n)
        sampling = hoeffding_radius(ell, fail / (2 * k)) if ell < n else 0.0
        on_sample = sampling + laplace_radius(1 / (ell * on_drawn), fail / (2 * k))
        return privacy.jung(on_sample, fail, eps, delta, c=c, d=d)[0]

    ell = min(n, goal.rows_per_query or sampled_rows(margin, n))
    charge = k * ceil(privacy.private_cost(eps0, n=n))
    return goal.met_by(NoisyTerms, mechanism, margin=margin(ell), rows_per_query=ell, charge=charge, epsilon=eps0)


GUARANTEES.register(DifferentialPrivacy.name, DifferentialPrivacy)
