"""Queries as SQL text: every word checked, parsed by sqlglot, translated to a checked tree."""
