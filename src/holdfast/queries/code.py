"""How long it takes to name a question: a fixed code for the text of its functions.

The code depends on the schema alone, never on rows. A text is read as tokens; white space between them says nothing.
Each token is a column, a word of the language, a number, a plain text or anything else, and an end follows the last:

    column    1/4, each column alike, with quotation marks or without
    word      1/4, each word alike
    number    1/4, 15 signs, the end of it being one
    text      1/16, 96 signs, for a constant of printable ASCII characters
    other     1/16, 257 signs, for the bytes of anything
    end       1/8

So the chances of all texts sum to at most 1, and -log of its chance is what a text costs.
"""

import re
from collections.abc import Collection, Iterable
from math import inf, log

_LANGUAGE = """
    = <> < <= > >= + - * / % ( ) , || AND OR NOT IN BETWEEN LIKE IS NULL TRUE FALSE CASE WHEN THEN ELSE END CAST AS
    COALESCE ABS ROUND FLOOR CEIL SQRT LN EXP LOWER UPPER LENGTH TRIM YEAR MONTH DAY HOUR EXTRACT FROM DATE
"""
WORDS = frozenset(_LANGUAGE.split())
_TOKEN = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|[^\W\d]\w*|\d[\d.]*(?:e[+-]?\d+)?|<>|<=|>=|\|\||\S""")
_NUMBER = re.compile(r"\d[\d.]*(?:e[+-]?\d+)?")
_PLAIN = re.compile(r"'[ -&(-~]*'")
_PART, _END, _RARE = log(4), log(8), log(16)
_SIGNS, _LETTERS, _BYTES = log(15), log(96), log(257)


def text_nats(text: str, columns: Collection[str]) -> float:
    """Return what a text about these columns costs, in nats."""
    return _END + sum(_token_nats(token, columns) for token in _TOKEN.findall(text))


def _token_nats(token: str, columns: Collection[str]) -> float:
    if token in columns or (token[:1] == '"' and token[1:-1].replace('""', '"') in columns):
        return _PART + log(len(columns)) + log(2)  # with or without quotation marks
    if token in WORDS:
        return _PART + log(len(WORDS))
    if _NUMBER.fullmatch(token):
        return _PART + (len(token) + 1) * _SIGNS
    if _PLAIN.fullmatch(token):
        return _RARE + (len(token) - 1) * _LETTERS
    return _RARE + (len(token.encode()) + 1) * _BYTES


def functions_nats(identities: Iterable[str | None], numbers: Iterable[float], columns: Collection[str]) -> float:
    """Return what a question costs that is made of these functions and numbers, at most three of each.

    Infinite, if a function has no text.
    """
    texts, ends = list(identities), list(numbers)
    if any(text is None or text.startswith("polars:") for text in texts) or max(len(texts), len(ends)) > 3:
        return inf
    written = sum(text_nats(str(text), columns) for text in texts)
    return 2 * log(4) + written + sum((len(repr(float(end))) + 1) * _SIGNS + log(2) for end in ends)
