"""Many steps together: inverses, order, refusals. The oracle is in tests/reference."""

import pytest

from holdfast.errors import InvalidArgument
from holdfast.guarantees.mathematics.privacy import advanced_step, zcdp_epsilon, zcdp_step


@pytest.mark.parametrize("k", [1, 1000, 10**12])
@pytest.mark.parametrize("delta", [0.5, 1e-6, 1e-100])
@pytest.mark.parametrize("epsilon", [1e-9, 0.1, 5.0])
def test_the_step_inverts_the_total(epsilon, delta, k):
    assert zcdp_epsilon(zcdp_step(epsilon, delta, k=k), delta, k=k) == pytest.approx(epsilon, rel=1e-12)


def test_one_bound_is_about_twice_the_other():
    assert 1.9 < zcdp_step(0.1, 1e-8, k=500) / advanced_step(0.1, 1e-8, k=500) < 2.0


def test_the_papers_lemma_by_hand():
    assert advanced_step(0.5, 1e-6, k=100) == pytest.approx(0.5 / (2 * (200 * 13.815510557964274) ** 0.5))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: advanced_step(1.5, 1e-6, k=3), r"epsilon must be at most 1 \(1.0\)"),
        (lambda: advanced_step(0.5, 0.0, k=3), "delta must be strictly between"),
        (lambda: advanced_step(0.5, 0.6, k=3), "delta must be at most 1/2"),
        (lambda: zcdp_epsilon(0.0, 0.1, k=3), "eps0 must be positive"),
        (lambda: zcdp_step(0.5, 1.0, k=3), "delta must be strictly between"),
        (lambda: zcdp_step(0.5, 0.1, k=0), "k must be positive"),
    ],
)
def test_what_no_theorem_covers_is_refused(call, says):
    with pytest.raises(InvalidArgument, match=says):
        call()
