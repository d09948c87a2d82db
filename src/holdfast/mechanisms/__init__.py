"""What is released: an algorithm box each, one query in, one release out.

mechanism     what a mechanism is
coins         each drawn row says one outcome, sometimes replaced by a random one
noisy_means   the mean of sampled rows plus Laplace noise, that of all rows plus Gaussian noise
fresh_rows    the mean of rows that nobody has asked before
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
