"""The exchange theorem in plain numbers is the theorem in arrays."""

import numpy as np
import pytest

from holdfast.guarantees.mathematics import exchange


@pytest.mark.parametrize("identical", [True, False])
@pytest.mark.parametrize("mass", [1e-5, 0.004, 0.16, 0.3])
def test_single_numbers_have_the_bound_that_arrays_have(mass: float, identical: bool) -> None:
    om2, nats = np.array([0.03, 0.35, 4.0]), np.array([3.0, 5.5, 8.0])
    for n in (2, 500, 10**6, 10**9):
        for charge in (1, n // 2, 40 * n, 10**4 * n):
            s = exchange.good_s(n, charge, om2, nats)
            of_arrays = exchange.ibar(n, charge, mass, om2, 0.5, s, nats, 9.0, rho=0.1, identical=identical)
            of_one = [
                exchange.ibar_of_one(n, charge, mass, each, 0.5, L, 9.0, rho=0.1, identical=identical)
                for each, L in zip(om2.tolist(), nats.tolist(), strict=True)
            ]
            assert of_one == pytest.approx(of_arrays.tolist(), rel=1e-12)


@pytest.mark.parametrize("identical", [True, False])
@pytest.mark.parametrize("mass", [1e-5, 0.004, 0.16])
def test_ibar_is_never_below_its_leading_order(mass: float, identical: bool) -> None:
    near = 0
    for n in (2, 500, 10**6, 10**9):
        for charge in (1, n // 2, 40 * n, 10**4 * n):
            for om2, nats in ((0.03, 3.0), (0.35, 5.5), (4.0, 8.0)):
                least = exchange.least_ibar(n, charge, om2, nats)
                found = exchange.ibar_of_one(n, charge, mass, om2, 0.5, nats, 9.0, rho=0.5, identical=identical)
                assert least <= found
                near += found < 1.1 * least
    assert near or mass < 1e-3  # a bound that says something, where there is enough mass
