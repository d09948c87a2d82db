"""Minimize convex losses over the population: descent whose gradients are statistical queries.

losses      what can be minimized; features: the declared numbers of a row; own: losses that users write
objective   a loss bound to a schema and a domain, with every range that a guarantee needs; domain: the feasible set
gradient    noisy gradients by coins or Laplace noise; descent: the steps, and the best of several runs
fit         everything decided before any row is read: price and promise
planner     `plan_descent`: what k fits need
"""
