"""Minimize convex losses over the population: descent whose gradients are statistical queries.

losses      what can be minimized; formulas: built-in losses as text
features    the declared numbers of a row, and what a linear model makes of them
objective   a loss bound to a schema and a domain, with every range that a guarantee needs; losses that users write
gradient    noisy gradients by coins or Laplace noise; descent: the steps, and the best of several runs
fit         everything decided before any row is read: price and promise
planner     `plan_descent`: what k fits need
"""
