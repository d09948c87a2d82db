"""Split a SELECT over one table into its clauses: what is computed, WHERE, GROUP BY, ORDER BY, LIMIT and OFFSET.

Expressions are not read here. Every expression in the statement (the argument of an aggregate, the condition, what is
grouped by) is passed on as text and checked like any other query.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import pairwise
from typing import TYPE_CHECKING

from holdfast.errors import InvalidQuery
from holdfast.queries.functions import FUNCTION_NAMES
from holdfast.queries.node import RESERVED
from holdfast.queries.tokens import AGGREGATES, STATEMENTS, dialect, refused_function

if TYPE_CHECKING:
    from sqlglot.tokens import Token  # type: ignore[attr-defined]

LONGEST_SELECT = 20_000  # characters
MOST_LINES = 2**31  # the largest LIMIT and OFFSET

_OFFERED = "AVG, COUNT, SUM, MEDIAN, QUANTILE, STDDEV, VARIANCE, CORR, COVAR_POP and REGR_SLOPE"

# What is refused, and the nearest thing that works.
_ELSEWHERE = {
    "MIN": "the extremes of a sample say nothing about the population's. QUANTILE(x, 0.01) comes near",
    "MAX": "the extremes of a sample say nothing about the population's. QUANTILE(x, 0.99) comes near",
    "REGR_INTERCEPT": "REGR_SLOPE(y, x), AVG(y) and AVG(x) are, of which it is made",
    "REGR_R2": "CORR(y, x) is, whose square it is",
    "REGR_AVGX": "AVG(x) is", "REGR_AVGY": "AVG(y) is", "REGR_SXY": "COVAR_POP(y, x) is",
    **dict.fromkeys(("REGR_SXX", "REGR_SYY"), "VARIANCE(x) is, times the number of rows"),
    "REGR_COUNT": "COUNT_IF(x IS NOT NULL AND y IS NOT NULL) is",
    **dict.fromkeys(("GEOMETRIC_MEAN", "GEOMEAN", "GEO_MEAN", "GMEAN"), "AVG(LN(x)) is, whose exponential it is"),
    **dict.fromkeys(("HARMONIC_MEAN", "HARMEAN", "HMEAN"), "AVG(1 / x) is, whose reciprocal it is"),
    "PRODUCT": "SUM(LN(x)) is, whose exponential it is",
    **dict.fromkeys(
        ("KURTOSIS", "KURTOSIS_POP", "KURT", "SKEWNESS", "SKEWNESS_POP", "SKEW"),
        "VARIANCE(x) is, and QUANTILE(x, 0.01) and QUANTILE(x, 0.99) show the tails",
    ),
    **dict.fromkeys(("MAD", "IQR"), "QUANTILE(x, 0.25) and QUANTILE(x, 0.75) are, and STDDEV(x)"),
    **dict.fromkeys(("PERCENTILE_DISC", "QUANTILE_DISC", "PERCENTILE", "RESERVOIR_QUANTILE"), "QUANTILE(x, 0.9) is"),
    **dict.fromkeys(("FSUM", "SUMKAHAN", "KAHAN_SUM", "SUM0", "TOTAL"), "SUM(x) is"),
    "FAVG": "AVG(x) is",
    **dict.fromkeys(("SEM", "STDERR"), "STDDEV(x) is, and every answer has an interval of its own"),
    "ENTROPY": "COUNT(*) with GROUP BY counts the groups that it is about",
    **dict.fromkeys(("WEIGHTED_AVG", "AVG_WEIGHTED"), "a question of the kind mean takes a weight"),
    **dict.fromkeys(("SHARE", "PROPORTION"), "AVG(condition) is the share of rows for which it is true"),
    "MODE": "COUNT(*) with GROUP BY shows how often each declared category occurs, and top finds those that are not",
    "HISTOGRAM": "COUNT(*) with GROUP BY shows how often each declared category occurs",
    **dict.fromkeys(
        ("APPROX_COUNT_DISTINCT", "APPROX_DISTINCT", "COUNT_DISTINCT", "NUNIQUE", "APPROX_TOP_K"),
        "COUNT(*) with GROUP BY shows how often each declared category occurs",
    ),
    "BOOL_AND": "AVG(condition) is the share of rows for which it is true",
    "BOOL_OR": "AVG(condition) is the share of rows for which it is true",
    "EVERY": "AVG(condition) is the share of rows for which it is true",
    "FIRST": "rows are never shown", "LAST": "rows are never shown", "ANY_VALUE": "rows are never shown",
    "LIST": "rows are never shown", "ARRAY_AGG": "rows are never shown", "STRING_AGG": "rows are never shown",
    "GROUP_CONCAT": "rows are never shown", "ARG_MIN": "rows are never shown", "ARG_MAX": "rows are never shown",
}  # fmt: skip
_CLAUSES = {
    "HAVING": "HAVING is not available: values are intervals. Filter what comes back, by its low or high ends",
    "QUALIFY": "QUALIFY is not available: every group is paid for anyway, so filter what comes back",
    "FETCH": "FETCH is not available: LIMIT is",
    "UNION": "UNION is not available: ask one SELECT after the other, and put together what comes back",
    "INTERSECT": "INTERSECT is not available: put both conditions into WHERE",
    "EXCEPT": "EXCEPT is not available: put the condition into WHERE",
    "WINDOW": "WINDOW is not available: a question is about one row at a time",
    "SAMPLE": "SAMPLE is not available: which rows are drawn is decided here",
    "TABLESAMPLE": "TABLESAMPLE is not available: which rows are drawn is decided here",
}
_JOINS = frozenset(["JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL", "ASOF", "LATERAL", "POSITIONAL"])
_COMMENT = re.compile(r"""('(?:[^']|'')*'|"(?:[^"]|"")*")|--[^\n]*|/\*.*?\*/""", re.DOTALL)
_EXAMPLE_ORDERED = "SELECT carrier, AVG(late) AS late FROM flights GROUP BY carrier ORDER BY late DESC LIMIT 3"
_EXAMPLE = "SELECT AVG(dep_delay > 15) FROM flights WHERE month = 1"


@dataclass(frozen=True)
class Item:
    """One column of a SELECT: an aggregate of its arguments or, if `aggregate` is None, what is grouped by."""

    text: str
    aggregate: str | None
    arguments: tuple[str, ...]
    name: str  # its alias, or else its text


@dataclass(frozen=True)
class Key:
    """One key of ORDER BY: a column of the result, by its name, its text or its number."""

    text: str
    descending: bool = False
    nulls_first: bool = False


@dataclass(frozen=True)
class Select:
    """The clauses of a SELECT."""

    items: tuple[Item, ...]
    table: str
    where: str | None
    groups: tuple[str, ...]
    order: tuple[Key, ...] = ()
    limit: int | None = None
    offset: int = 0


def read_select(text: str) -> Select:
    """Split a statement into its clauses, or refuse it, naming what it may not contain.

    >>> select = read_select("SELECT carrier, AVG(delay > 15) AS late FROM flights WHERE month = 1 GROUP BY carrier")
    >>> select.items[1].aggregate, select.items[1].arguments, select.items[1].name, select.where, select.groups
    ('AVG', ('delay > 15',), 'late', 'month = 1', ('carrier',))
    """
    text = _without_comments(text)
    tokens = _tokens(text)
    _refuse_elsewhere(tokens)
    table, alias = _table(_clauses(_Part(text, tokens))["FROM"])
    text = _unqualified(text, tokens, {name.lower() for name in (table, alias) if name})
    clauses = _clauses(_Part(text, _tokens(text)))
    items = tuple(_item(part) for part in clauses["SELECT"].split())
    groups = _groups(clauses["GROUP BY"], items) if "GROUP BY" in clauses else ()
    for name in ("WHERE", "GROUP BY"):
        inner = _aggregate_in(clauses[name]) if name in clauses else None
        if inner is not None:
            way = " Filter what comes back by its low or high ends." if name == "WHERE" else ""
            raise InvalidQuery(f"{inner} is an aggregate over many rows, and {name} is about one row at a time.{way}")
    where = clauses["WHERE"].text if "WHERE" in clauses else None
    order = tuple(_key(part) for part in clauses["ORDER BY"].split()) if "ORDER BY" in clauses else ()
    limit, offset = (_whole(clauses[name], name) if name in clauses else None for name in ("LIMIT", "OFFSET"))
    return Select(items, table, where, groups, order, limit, offset or 0)


@dataclass(frozen=True)
class _Part:
    """Consecutive tokens of a statement."""

    statement: str
    tokens: "list[Token]"

    @property
    def text(self) -> str:
        """The text of these tokens, as written."""
        return self.statement[self.tokens[0].start : self.tokens[-1].end + 1] if self.tokens else ""

    def words(self) -> "Iterator[tuple[int, int, str]]":
        """Yield each token's place, the number of brackets around it, and its text in capitals ("" if quoted)."""
        depth = 0
        for place, token in enumerate(self.tokens):
            kind = token.token_type.name
            depth -= kind == "R_PAREN"
            quoted = kind in ("STRING", "IDENTIFIER")
            yield place, depth, "" if quoted else " ".join(token.text.upper().split())
            depth += kind == "L_PAREN"

    def cut(self, start: int, end: int | None = None) -> "_Part":
        """Return the tokens from one place to before another."""
        return _Part(self.statement, self.tokens[start:end])

    def split(self) -> "list[_Part]":
        """Split at commas outside of brackets."""
        commas = [place for place, depth, word in self.words() if depth == 0 and word == ","]
        starts = [0, *(comma + 1 for comma in commas)]
        parts = [self.cut(start, end) for start, end in zip(starts, [*commas, None], strict=True)]
        if any(not part.tokens for part in parts):
            raise InvalidQuery(f"Something is missing beside a comma in {self.text!r}.")
        return parts


def _without_comments(text: str) -> str:
    """Replace comments with blanks."""
    return _COMMENT.sub(lambda found: found[1] or " " * len(found[0]), text) if isinstance(text, str) else text


def _unqualified(text: str, tokens: "list[Token]", names: set[str]) -> str:
    """Remove the table's name and the dot in front of column names."""
    for token, after in reversed(list(pairwise(tokens))):
        named = token.token_type.name in ("VAR", "IDENTIFIER") and token.text.lower() in names
        if named and after.token_type.name == "DOT":
            text = text[: token.start] + text[after.end + 1 :]
    return text


def _groups(part: _Part, items: tuple[Item, ...]) -> tuple[str, ...]:
    """Return the texts of GROUP BY: a number stands for a column of the SELECT, ALL for all but aggregates."""
    plain = [item for item in items if item.aggregate is None]
    first = next(part.words())[2]
    if first in ("ROLLUP", "CUBE", "GROUPING SETS", "GROUPING"):
        raise InvalidQuery(f"{first} is not available: ask one SELECT for each set of groups.")
    if first == "ALL" and len(part.tokens) == 1:
        return tuple(item.text for item in plain)
    found = []
    for one in part.split():
        number = whole_number(one.text)
        if number is None:
            found.append(one.text)
            continue
        named = items[number - 1 :][:1] if number else ()
        if not named or named[0].aggregate is not None:
            raise InvalidQuery(
                f"GROUP BY {one.text} must be the number of a column of the SELECT that is not an aggregate."
            )
        found.append(named[0].text)
    return tuple(found)


def _key(part: _Part) -> Key:
    words = [word for _, _, word in part.words()]
    descending = nulls_first = False
    if words[-2:] in (["NULLS", "FIRST"], ["NULLS", "LAST"]):
        nulls_first, part, words = words[-1] == "FIRST", part.cut(0, -2), words[:-2]
    elif words[-1:] in (["NULLS FIRST"], ["NULLS LAST"]):
        nulls_first, part, words = words[-1] == "NULLS FIRST", part.cut(0, -1), words[:-1]
    if words[-1:] in (["ASC"], ["DESC"]):
        descending, part = words[-1] == "DESC", part.cut(0, -1)
    if not part.tokens:
        raise InvalidQuery(f"ORDER BY needs a column of the result, as in {_EXAMPLE_ORDERED}.")
    return Key(part.text, descending, nulls_first)


def _whole(part: _Part, name: str) -> int:
    number = whole_number(part.text) if len(part.tokens) == 1 else None
    if number is None:
        raise InvalidQuery(f"{name} must be a whole number; got {part.text}.")
    return number


def whole_number(text: str) -> int | None:
    """Return the number that a text writes in ASCII digits, at most MOST_LINES; None for any other text.

    >>> whole_number("12"), whole_number("9" * 5_000) == MOST_LINES, whole_number("²"), whole_number("x")
    (12, True, None, None)
    """
    if not (text.isascii() and text.isdigit()):
        return None
    digits = text.lstrip("0") or "0"
    return min(MOST_LINES, int(digits)) if len(digits) < 20 else MOST_LINES  # int() refuses very long texts


def _tokens(text: str) -> "list[Token]":
    import sqlglot  # noqa: F401  the whole package first: see `checked_tokens`
    from sqlglot.errors import SqlglotError

    if not isinstance(text, str) or not text.strip():
        raise InvalidQuery(f"A SELECT must be text, such as: {_EXAMPLE}.")
    if len(text) > LONGEST_SELECT:
        raise InvalidQuery(f"A SELECT must be at most {LONGEST_SELECT:,} characters long; got {len(text):,}.")
    try:
        tokens = list(dialect().tokenize(text))
    except SqlglotError:
        raise InvalidQuery(
            "A SELECT must be complete; this one has a quotation mark or a comment that is not closed."
        ) from None
    if any(token.comments for token in tokens):
        raise InvalidQuery("A SELECT must not contain comments; remove them.")
    while tokens and tokens[-1].token_type.name == "SEMICOLON":
        tokens.pop()
    if any(token.token_type.name == "SEMICOLON" for token in tokens):
        raise InvalidQuery("A SELECT must be one statement; got several.")
    return tokens


def _refuse_elsewhere(tokens: "list[Token]") -> None:
    """Refuse any statement but a SELECT, and what no SELECT may contain anywhere."""
    words = [word for _, _, word in _Part("", tokens).words()]
    if words[:1] == ["WITH"]:
        raise InvalidQuery("WITH is not available: write the expression where it is used.")
    if words[:1] != ["SELECT"]:
        got = f"; got {words[0]}. Write, for example:" if words and words[0] in STATEMENTS else ", such as:"
        raise InvalidQuery(f"A statement must be a SELECT{got} {_EXAMPLE}.")
    for place, word in enumerate(words):
        if word in ("UNION", "INTERSECT", "EXCEPT"):
            raise InvalidQuery(f"{_CLAUSES[word]}.")
        if word == "SELECT" and place > 0:
            raise InvalidQuery("A SELECT inside another is not available: write the expression itself.")
        if word == "OVER":
            raise InvalidQuery("OVER is not available: a question is about one row at a time. GROUP BY makes groups.")
        if word == "FILTER" and words[place + 1 : place + 2] == ["("]:
            raise InvalidQuery("FILTER is not available: use WHERE, or CASE WHEN condition THEN value END.")


def _clauses(statement: _Part) -> dict[str, _Part]:
    starts: list[tuple[str, int]] = []
    for place, depth, word in statement.words():
        if depth < 0:
            raise InvalidQuery("A SELECT must close as many brackets as it opens.")
        if depth:
            continue
        if word in _CLAUSES:
            raise InvalidQuery(f"{_CLAUSES[word]}.")
        if word in _JOINS and any(name == "FROM" for name, _ in starts):
            raise InvalidQuery(f"{word} is not available: a SELECT reads one table. Join before the data are opened.")
        if word in _ORDER:
            starts.append((word, place))
    if not _closes_all(statement):
        raise InvalidQuery("A SELECT must close as many brackets as it opens.")
    names = [name for name, _ in starts]
    missing = next((name for name in _FRAME if name not in names), None)
    if missing is not None:
        raise InvalidQuery(f"A SELECT needs {missing}: {_EXAMPLE}.")
    if names != [name for name in _ORDER if name in names]:
        raise InvalidQuery(
            f"A SELECT has {' ... '.join(_ORDER)}, in this order and each once; got {' ... '.join(names)}."
        )
    ends = [*(place for _, place in starts[1:]), None]
    clauses = {name: statement.cut(place + 1, end) for (name, place), end in zip(starts, ends, strict=True)}
    for name, part in clauses.items():
        if not part.tokens:
            raise InvalidQuery(f"Nothing follows {name}; a SELECT looks like this: {_EXAMPLE}.")
    return clauses


_FRAME = ("SELECT", "FROM")
_ORDER = (*_FRAME, "WHERE", "GROUP BY", "ORDER BY", "LIMIT", "OFFSET")


def _table(part: _Part) -> tuple[str, str | None]:
    """Return the name of the table, and its alias."""
    words = [word for _, _, word in part.words()]
    tokens = [token for token, word in zip(part.tokens, words, strict=True) if word != "AS"]
    kinds = [token.token_type.name for token in tokens]
    if len(tokens) > 2 or (len(tokens) == 2 and (kinds[1] not in ("VAR", "IDENTIFIER") or words[-1] == "AS")):
        what = "one table" if "," in words else "the name of the table, and perhaps an alias"
        raise InvalidQuery(f"FROM takes {what}; got {part.text}.")
    return str(tokens[0].text), str(tokens[1].text) if len(tokens) == 2 else None


def _item(part: _Part) -> Item:
    part, alias = _without_alias(part)
    words = [word for _, _, word in part.words()]
    if words == ["*"]:
        raise InvalidQuery(f"SELECT * is not available: rows are never shown. Ask for an aggregate: {_EXAMPLE}.")
    if words[:1] == ["TOP"] and len(words) > 1 and words[1].isdigit():
        raise InvalidQuery("TOP is not available: ORDER BY and LIMIT are, and top finds the most frequent texts.")
    if words[:1] == ["DISTINCT"]:
        raise InvalidQuery("SELECT DISTINCT is not available: GROUP BY goes over the declared categories of a column.")
    close = _closing(part) if words[1:2] == ["("] else None
    called = words[0] if close is not None else ""
    if called in _ELSEWHERE:
        raise InvalidQuery(f"{called} is not available: {_ELSEWHERE[called]}.")
    if called in AGGREGATES and close is not None:
        arguments = _arguments(called, part, close)
        return Item(part.text, AGGREGATES[called], arguments, alias or part.text)
    if _aggregate_in(part) is not None:
        if called in ("ROUND", "CAST"):
            raise InvalidQuery(
                f"{called} of an aggregate is not available: its ends would have to be rounded outwards. The frame"
                " has all digits; what is printed has as many as the interval deserves."
            )
        raise InvalidQuery(
            f"Arithmetic with aggregates is not available, as in {part.text!r}: an interval is computed for each of"
            " them alone. Put the arithmetic inside, AVG(100 * x), or ask for a difference. AVG(condition) is the"
            " share of rows for which it is true."
        )
    if called and get_close_matches(called, AGGREGATES, n=1, cutoff=0.8):
        near = get_close_matches(called, AGGREGATES, n=1, cutoff=0.8)[0]
        raise InvalidQuery(f"{called} is not an aggregate here; {near} is. There are {_OFFERED}.")
    known = called in FUNCTION_NAMES or called in RESERVED
    if called.isidentifier() and not known and ";" not in str(refused_function(called)):
        raise InvalidQuery(f"{called} is not an aggregate or a function here. There are the aggregates {_OFFERED}.")
    return Item(part.text, None, (), alias or part.text)


def _aggregate_in(part: _Part) -> str | None:
    """Return the first aggregate that is called in some tokens."""
    words = [word for _, _, word in part.words()]
    called = (word for word, after in pairwise(words) if after == "(")
    return next((word for word in called if word in AGGREGATES or word in _ELSEWHERE), None)


def _without_alias(part: _Part) -> tuple[_Part, str | None]:
    """Cut off `AS name`, or a name that follows an aggregate or a column."""
    tokens, words = part.tokens, [word for _, _, word in part.words()]
    if len(tokens) >= 3 and words[-2] == "AS" and _closes_all(part.cut(0, -2)):
        return part.cut(0, -2), str(tokens[-1].text)
    after_call = len(tokens) >= 2 and tokens[-2].token_type.name in ("R_PAREN", "VAR", "IDENTIFIER")
    if after_call and tokens[-1].token_type.name in ("VAR", "IDENTIFIER") and _closes_all(part.cut(0, -1)):
        return part.cut(0, -1), str(tokens[-1].text)
    return part, None


def _closes_all(part: _Part) -> bool:
    kinds = [token.token_type.name for token in part.tokens]
    return kinds.count("L_PAREN") == kinds.count("R_PAREN")


def _closing(part: _Part) -> int | None:
    """Return where the bracket after the first word closes."""
    return next((place for place, depth, word in part.words() if word == ")" and depth == 0), None)


def _arguments(called: str, part: _Part, close: int) -> tuple[str, ...]:
    inside, rest = part.cut(2, close), part.cut(close + 1)
    if [word for _, _, word in inside.cut(0, 1).words()] == ["DISTINCT"]:
        raise InvalidQuery(
            f"{called}(DISTINCT ...) is not available: COUNT(*) with GROUP BY shows how often each declared category"
            " occurs."
        )
    if not inside.tokens:
        raise InvalidQuery(f"{called}() needs something to work on.")
    inner = _aggregate_in(inside)
    if inner in _ELSEWHERE:
        raise InvalidQuery(f"{inner} is not available: {_ELSEWHERE[inner]}.")
    if inner is not None:
        raise InvalidQuery(
            f"{inner} is an aggregate over many rows, and so is {called}: ask for each of them alone. Inside an"
            " aggregate is an expression about one row."
        )
    arguments = tuple(one.text for one in inside.split())
    if "*" in arguments and called != "COUNT":
        raise InvalidQuery(f"{called} takes a column or an expression; only COUNT takes *.")
    if AGGREGATES[called] == "PERCENTILE":
        words = [word for _, _, word in rest.words()]
        if words[:4] != ["WITHIN", "GROUP", "(", "ORDER BY"] or words[-1:] != [")"]:
            raise InvalidQuery(f"{called} is written {called}(0.9) WITHIN GROUP (ORDER BY x); or QUANTILE(x, 0.9).")
        return (rest.cut(4, -1).text, *arguments)
    if rest.tokens and (rest.tokens[0].token_type.name == "STRING" or rest.tokens[0].text.upper() == "AS"):
        raise InvalidQuery(f"A name is one word, or stands in double quotes; got {rest.text!r} after {called}(...).")
    if rest.tokens:
        raise InvalidQuery(
            f"Nothing may follow an aggregate but AS and a name; got {rest.text!r} after {part.cut(0, close + 1).text}."
            " Put arithmetic inside, AVG(100 * x), or ask for a difference."
        )
    return arguments
