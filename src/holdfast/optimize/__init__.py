"""Minimize convex losses over the population: descent whose gradients are statistical queries.

losses      what can be minimized; features: declared numbers of a row; own: losses of one's own
objective   a loss made ready, with every range that a guarantee needs; domain: where the minimizer is looked for
gradient    noisy gradients by coins or Laplace noise; descent: the steps; boosting: the best of several runs
fit         everything decided before any row is read: price and promise
planner     `plan_descent`: what k fits need
"""
