"""holdfast: ask one table thousands of questions, each chosen after the last answer, and stay true to the population.

>>> import holdfast as hf
>>> hf.plan(rows=1_000_000, queries=10_000).margin < 0.04
True

The public names and their homes are listed once, in `__init__.pyi`; they are loaded when first used, so that
`import holdfast` stays light.
"""

import ast as _ast
from importlib import import_module as _import_module
from importlib.metadata import version as _version
from importlib.resources import files as _files

__version__ = _version("holdfast")

_HOMES: dict[str, tuple[str, str]] = {
    alias.asname or alias.name: (node.module, alias.name)
    for node in _ast.parse(_files("holdfast").joinpath("__init__.pyi").read_text(encoding="utf-8")).body
    if isinstance(node, _ast.ImportFrom) and node.module is not None
    for alias in node.names
}
# `open` is there as holdfast.open; a star import must not replace the builtin.
__all__ = ["__version__", *sorted(set(_HOMES) - {"open"})]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    module, original = _HOMES[name]
    value: object = getattr(_import_module(module), original)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "open"])
