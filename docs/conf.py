"""How the manual is built: `make docs`."""

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import generate
from sphinx.util.typing import stringify_annotation

import holdfast
from holdfast.guarantees.terms import JSON
from holdfast.queries.build import QueryLike
from holdfast.rows.source import Table

project = "holdfast"
author = "the holdfast authors"
copyright = author
version = release = holdfast.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_enable_extensions = ["dollarmath", "amsmath", "deflist", "colon_fence"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "holdfast"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
add_module_names = False

generate.write(Path(__file__).parent / "_build" / "generated")


def plain_docstring(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are plain text with `code`: nothing else in them is markup."""
    for place, line in enumerate(lines):
        if not line.lstrip().startswith(">>>"):
            parts = re.split(r"`([^`]+)`", line)
            parts[::2] = [re.sub(r"([*|\\_])", r"\\\1", part) for part in parts[::2]]
            parts[1::2] = [f"``{part}``" for part in parts[1::2]]
            lines[place] = "".join(parts)


UNIONS = {"QueryLike": QueryLike, "Table": Table, "JSON": JSON}
SHORT = {stringify_annotation(union, "smart"): name for name, union in UNIONS.items()}


def short_signature(
    app: Any, what: str, name: str, obj: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    """Unions that fill a line go by name; methods made from kinds return what their signature says."""
    made = getattr(obj, "__signature__", None)
    if returns and made is not None and isinstance(made.return_annotation, type):
        returns = stringify_annotation(made.return_annotation, "smart")
    for union, word in SHORT.items():
        signature = signature and signature.replace(union, word)
        returns = returns and returns.replace(union, word)
    return signature, returns


def setup(app: Any) -> None:
    """Connect the above."""
    app.connect("autodoc-process-signature", short_signature)
    app.connect("autodoc-process-docstring", plain_docstring)
