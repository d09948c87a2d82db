"""Mechanisms: each is one algorithm box that takes a query and returns a release.

mechanism     what a mechanism is
coins         each drawn row gives one outcome, sometimes replaced by a random one
noisy_means   the mean of sampled rows plus Laplace noise, or of all rows plus Gaussian noise
fresh_rows    the mean of rows that no earlier question has used
cells         whether a guess holds on all rows; which cell of a grid the score of a submission falls into
exponential   pick one of many candidates, better ones more likely

To add one: a file with a `Mechanism`, and `MECHANISMS.register(name, cls)`.
"""

from typing import TYPE_CHECKING

from holdfast.registry import Registry

if TYPE_CHECKING:
    from holdfast.mechanisms.mechanism import Mechanism

MECHANISMS: "Registry[type[Mechanism]]" = Registry(
    "holdfast.mechanisms", ("coins", "noisy_means.laplace", "noisy_means.gaussian", "fresh_rows", "cells", "cells.grid")
)
