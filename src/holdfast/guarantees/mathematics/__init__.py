"""Theorems that guarantees share: pure functions, each with its statement and proof."""
