"""holdfast: ask one table thousands of questions, each chosen after the last answer, and stay true to the population.

>>> import holdfast as hf
>>> hf.plan(rows=1_000_000, queries=10_000).margin < 0.04
True

The public names and their homes are listed once, in `__init__.pyi`; they are loaded when first used, so that
`import holdfast` stays light.
"""

import ast as _ast
from importlib import import_module as _import_module
from pathlib import Path as _Path

_HOMES: dict[str, tuple[str, str]] = {}
for _node in _ast.parse(_Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body:
    if isinstance(_node, _ast.ImportFrom):
        _HOMES |= {_alias.asname or _alias.name: (_node.module or "", _alias.name) for _alias in _node.names}
    elif isinstance(_node, _ast.Assign):  # a public name that differs from the one at home
        _HOMES[_ast.unparse(_node.targets[0])] = _HOMES.pop(_ast.unparse(_node.value))
# `open` is there as holdfast.open; a star import must not replace the builtin.
__all__ = ["__version__", *sorted(set(_HOMES) - {"open"})]


def __getattr__(name: str) -> object:
    if name == "__version__":
        value: object = _import_module("importlib.metadata").version("holdfast")
    elif name in _HOMES:
        module, original = _HOMES[name]
        if module == __name__:  # a module of its own
            value = _import_module(f"{module}.{original}")
        else:
            value = getattr(_import_module(module), original)
    else:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "open"])
