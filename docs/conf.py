"""How the manual is built: `make docs`."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

sys.path.insert(0, str(Path(__file__).parent))

import generate
from docutils import nodes
from latex2mathml.converter import convert
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
html_static_path = ["_static"]
html_css_files = ["manual.css"]
html_math_renderer = "mathml"
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


PARTS = dict.fromkeys(("mfrac", "msup", "msub", "mover", "munder"), 2) | dict.fromkeys(("msubsup", "munderover"), 3)


def formula(translator: Any, node: Any) -> None:
    """Formulas are MathML, which browsers draw by themselves: a page needs no script, and reads without a network."""
    block = isinstance(node, nodes.math_block)
    text, _, number = node.astext().partition(r"\tag")
    math = ElementTree.fromstring(re.sub(' xmlns="[^"]*"', "", convert(text)))
    for part in math.iter():
        if len(part) != PARTS.get(part.tag, len(part)):  # browsers draw it as if it were no power, fraction or index
            raise ValueError(f"{part.tag} with {len(part)} parts in {text}: put braces around what it belongs to")
    for row in [*math.iter("mrow")]:
        for place in range(len(row) - 1, 0, -1):
            name = row[place - 1] if row[place - 1].tag == "mi" else row[place - 1].find("mi")
            if name is not None and len(name.text or "") > 1 and row[place].tag != "mo":
                row.insert(place, ElementTree.Element("mspace", width="0.167em"))  # log x, not logx
    if block:
        math.set("display", "block")
        counted = f'<span class="eqno">({number.strip("{} ")})</span>' if number else ""
        translator.body.append(f'<div class="math">{counted}{ElementTree.tostring(math, "unicode")}</div>')
    else:
        translator.body.append("<wbr>".join(f"<math>{part}</math>" for part in broken(math[0])))
    raise nodes.SkipNode


LONG = 12  # what a formula may have in a row before a line may end inside its brackets, too


def broken(row: ElementTree.Element) -> Iterator[str]:
    """Yield the parts of a formula between which a line of text may end: browsers do not break lines inside of one."""
    part, size, depth = "", 0, 0
    for child in row:
        sign = (child.text or "") if child.tag == "mo" else ""
        depth += (sign in tuple("([{⟨⌊⌈")) - (sign in tuple(")]}⟩⌋⌉"))
        binary, part, size = bool(part), part + ElementTree.tostring(child, "unicode"), size + 1
        if (depth <= 0 or size > LONG) and (sign in tuple("=<>≤≥≠≈∈∼→⇒,") or (binary and sign in ("+", "−"))):
            yield part
            part, size = "", 0
    yield part


def setup(app: Any) -> None:
    """Connect the above."""
    app.add_html_math_renderer("mathml", (formula, None), (formula, None))
    app.connect("autodoc-process-signature", short_signature)
    app.connect("autodoc-process-docstring", plain_docstring)
