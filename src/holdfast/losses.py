"""What can be minimized: convex losses of one row at a point, for `Session.minimize`.

    from holdfast.losses import Logistic

`Loss` says what a loss of your own must have.
"""

from holdfast.optimize.losses import Huber, LinearLoss, Logistic, Loss, Poisson, Quantile, SmoothedHinge, Squared

__all__ = ["Huber", "LinearLoss", "Logistic", "Loss", "Poisson", "Quantile", "SmoothedHinge", "Squared"]
