"""Theorems as pure functions: no data, no randomness.

Every function marked `@theorem` carries its statement, its source, what it does not cover, and the page of
`docs/proofs/` that proves it. Symbols are those of the proofs: n rows, k queries, ell rows per query, alpha the
error, beta the failure probability, B the total number of flips. Logarithms are natural.
"""
