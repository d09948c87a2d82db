"""Texts that differ in their numbers alone are parsed once: whoever looks for a threshold asks many of them.

A text's shape is the text with every number replaced by a stand-in, which the parser passes through untouched; the walk
over the parsed shape then reads the numbers. Only plain texts have a shape: of words, numbers, operators and simple
quotations, so that what looks like a number is one.
"""

import re
from collections.abc import Mapping

LONGEST = 500  # characters: longer texts are rare, and limits of length are for the texts themselves

_PLAIN = re.compile(r"""(?:[\w\s.,()<>=!+*/%|-]|'[^'"\\]*'|"[^'"\\]*")*""")
# Quotations are matched first, so that nothing inside one is taken for a number.
_PIECE = re.compile(r"""'[^']*'|"[^"]*"|(?<![\w.])([0-9]+)(\.[0-9]+)?([eE][+-]?[0-9]+)?(?![\w.])""")
_FIRST = 8_140_173_920  # stand-ins count up from here; the parser puts no such number into a tree by itself


def shaped(text: str) -> tuple[str, Mapping[str, str]] | None:
    """Return the shape of a text and what each of its stand-ins stands for; None if the text is not plain.

    >>> shape, numbers = shaped("delay > 15 AND distance < 1.5e3")
    >>> shape, sorted(numbers.values())
    ('delay > 8140173920 AND distance < 8140173921.5e0', ['1.5e3', '15'])
    """
    if len(text) > LONGEST or not _PLAIN.fullmatch(text):
        return None
    numbers: dict[str, str] = {}

    def stand_in(piece: re.Match[str]) -> str:
        whole, fraction, exponent = piece.groups()
        if whole is None:
            return piece[0]
        other = f"{_FIRST + len(numbers)}{'.5' if fraction else ''}{'e0' if exponent else ''}"
        numbers[other] = piece[0]
        return other

    return _PIECE.sub(stand_in, text), numbers
