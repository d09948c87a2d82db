"""A SELECT over one table, taken apart: what is computed, WHERE, GROUP BY.

This reads the frame of a statement and nothing inside it. Every expression in it (the argument of an aggregate, the
condition, what is grouped by) is handed on as text, and goes through the same door as any other query.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from holdfast.errors import InvalidQuery
from holdfast.queries.sql.tokens import dialect

if TYPE_CHECKING:
    from sqlglot.tokens import Token  # type: ignore[attr-defined]

LONGEST_SELECT = 20_000  # characters

# What aggregates are called, and the word for each here.
AGGREGATES = {
    "AVG": "AVG", "MEAN": "AVG", "COUNT": "COUNT", "COUNT_IF": "COUNT_IF", "COUNTIF": "COUNT_IF", "SUM": "SUM",
    "MEDIAN": "MEDIAN", "QUANTILE": "QUANTILE", "QUANTILE_CONT": "QUANTILE", "APPROX_QUANTILE": "QUANTILE",
    "PERCENTILE_CONT": "PERCENTILE", "STDDEV": "STDDEV", "STDDEV_POP": "STDDEV", "STDDEV_SAMP": "STDDEV",
    "VARIANCE": "VARIANCE", "VAR_POP": "VARIANCE", "VAR_SAMP": "VARIANCE", "CORR": "CORR", "COVAR_POP": "COVAR",
    "COVAR_SAMP": "COVAR", "REGR_SLOPE": "SLOPE",
}  # fmt: skip
_OFFERED = "AVG, COUNT, SUM, MEDIAN, QUANTILE, STDDEV, VARIANCE, CORR, COVAR_POP and REGR_SLOPE"

# What is refused, and the nearest thing that works.
_ELSEWHERE = {
    "MIN": "the extremes of a sample say nothing about the population's. QUANTILE(x, 0.01) comes near",
    "MAX": "the extremes of a sample say nothing about the population's. QUANTILE(x, 0.99) comes near",
    "REGR_INTERCEPT": "REGR_SLOPE(y, x), AVG(y) and AVG(x) are, of which it is made",
    "REGR_R2": "CORR(y, x) is, whose square it is",
    "MODE": "COUNT(*) with GROUP BY shows how often each declared category occurs, and top finds those that are not",
    "HISTOGRAM": "COUNT(*) with GROUP BY shows how often each declared category occurs",
    "APPROX_COUNT_DISTINCT": "COUNT(*) with GROUP BY shows how often each declared category occurs",
    "BOOL_AND": "AVG(condition) is the share of rows for which it is true",
    "BOOL_OR": "AVG(condition) is the share of rows for which it is true",
    "EVERY": "AVG(condition) is the share of rows for which it is true",
    "FIRST": "rows are never shown", "LAST": "rows are never shown", "ANY_VALUE": "rows are never shown",
    "LIST": "rows are never shown", "ARRAY_AGG": "rows are never shown", "STRING_AGG": "rows are never shown",
    "GROUP_CONCAT": "rows are never shown", "ARG_MIN": "rows are never shown", "ARG_MAX": "rows are never shown",
}  # fmt: skip
_CLAUSES = {
    "HAVING": "HAVING is not available: every group is paid for anyway, so filter the frame",
    "QUALIFY": "QUALIFY is not available: every group is paid for anyway, so filter the frame",
    "ORDER BY": "ORDER BY is not available: sort the frame",
    "LIMIT": "LIMIT is not available: every group is paid for anyway, so take the head of the frame",
    "OFFSET": "OFFSET is not available: every group is paid for anyway, so slice the frame",
    "FETCH": "FETCH is not available: every group is paid for anyway, so take the head of the frame",
    "UNION": "UNION is not available: ask one SELECT after the other, and concatenate the frames",
    "INTERSECT": "INTERSECT is not available: put both conditions into WHERE",
    "EXCEPT": "EXCEPT is not available: put the condition into WHERE",
    "WINDOW": "WINDOW is not available: a question is about one row at a time",
    "SAMPLE": "SAMPLE is not available: which rows are drawn is decided here",
    "TABLESAMPLE": "TABLESAMPLE is not available: which rows are drawn is decided here",
}
_JOINS = frozenset(["JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL", "ASOF", "LATERAL", "POSITIONAL"])
_STATEMENTS = frozenset(["INSERT", "UPDATE", "DELETE", "CREATE", "DROP", "ALTER", "COPY", "SHOW", "DESCRIBE", "PRAGMA"])
_EXAMPLE = "SELECT AVG(dep_delay > 15) FROM flights WHERE month = 1"


@dataclass(frozen=True)
class Item:
    """One column of a SELECT: an aggregate of some texts, or, where `aggregate` is None, what is grouped by."""

    text: str
    aggregate: str | None
    arguments: tuple[str, ...]
    name: str  # its alias, or else its text


@dataclass(frozen=True)
class Select:
    """A SELECT, taken apart."""

    items: tuple[Item, ...]
    table: str
    where: str | None
    groups: tuple[str, ...]


def read_select(text: str) -> Select:
    """Take a statement apart, or refuse it by the name of what it may not have.

    >>> select = read_select("SELECT carrier, AVG(delay > 15) AS late FROM flights WHERE month = 1 GROUP BY carrier")
    >>> select.items[1].aggregate, select.items[1].arguments, select.items[1].name, select.where, select.groups
    ('AVG', ('delay > 15',), 'late', 'month = 1', ('carrier',))
    """
    tokens = _tokens(text)
    _refuse_elsewhere(tokens)
    clauses = _clauses(_Part(text, tokens))
    groups = [part.text for part in clauses["GROUP BY"].split()] if "GROUP BY" in clauses else []
    items = tuple(_item(part) for part in clauses["SELECT"].split())
    where = clauses["WHERE"].text if "WHERE" in clauses else None
    return Select(items, _table(clauses["FROM"]), where, tuple(groups))


@dataclass(frozen=True)
class _Part:
    """Some tokens of a statement that follow each other."""

    statement: str
    tokens: "list[Token]"

    @property
    def text(self) -> str:
        """How it is written."""
        return self.statement[self.tokens[0].start : self.tokens[-1].end + 1] if self.tokens else ""

    def words(self) -> "Iterator[tuple[int, int, str]]":
        """Yield the place of every token, how many brackets it is in, and what it says, in capitals."""
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


def _tokens(text: str) -> "list[Token]":
    import sqlglot  # noqa: F401  the package first, and whole: see `checked_tokens`
    from sqlglot.errors import SqlglotError

    if not isinstance(text, str) or not text.strip():
        raise InvalidQuery(f"A SELECT must be text, such as: {_EXAMPLE}.")
    if len(text) > LONGEST_SELECT:
        raise InvalidQuery(f"A SELECT must be at most {LONGEST_SELECT:,} characters long; got {len(text):,}.")
    try:
        tokens = list(dialect().tokenize(text))
    except SqlglotError:
        raise InvalidQuery("A SELECT must be complete; this one has a quotation mark that is not closed.") from None
    if any(token.comments for token in tokens):
        raise InvalidQuery("A SELECT must not contain comments; remove them.")
    while tokens and tokens[-1].token_type.name == "SEMICOLON":
        tokens.pop()
    if any(token.token_type.name == "SEMICOLON" for token in tokens):
        raise InvalidQuery("A SELECT must be one statement; got several.")
    return tokens


def _refuse_elsewhere(tokens: "list[Token]") -> None:
    """Refuse what is no SELECT over one table, whatever follows."""
    words = [word for _, _, word in _Part("", tokens).words()]
    if words[:1] == ["WITH"]:
        raise InvalidQuery("WITH is not available: write the expression where it is used.")
    if words[:1] != ["SELECT"]:
        got = f"; got {words[0]}" if words and words[0] in _STATEMENTS else ""
        raise InvalidQuery(f"A statement must be a SELECT{got}, such as: {_EXAMPLE}.")
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
        if word in ("SELECT", "FROM", "WHERE", "GROUP BY"):
            starts.append((word, place))
    if not _closes_all(statement):
        raise InvalidQuery("A SELECT must close as many brackets as it opens.")
    names = [name for name, _ in starts]
    if names not in (wanted := [[*_FRAME, *more] for more in ([], ["WHERE"], ["GROUP BY"], ["WHERE", "GROUP BY"])]):
        missing = next((name for name in _FRAME if name not in names), None)
        raise InvalidQuery(
            f"A SELECT needs {missing}: {_EXAMPLE}."
            if missing is not None
            else f"A SELECT has {' ... '.join(wanted[-1])}, in this order and each once; got {' ... '.join(names)}."
        )
    ends = [*(place for _, place in starts[1:]), None]
    clauses = {name: statement.cut(place + 1, end) for (name, place), end in zip(starts, ends, strict=True)}
    for name, part in clauses.items():
        if not part.tokens:
            raise InvalidQuery(f"Nothing follows {name}; a SELECT looks like this: {_EXAMPLE}.")
    return clauses


_FRAME = ("SELECT", "FROM")


def _table(part: _Part) -> str:
    if len(part.tokens) != 1:
        what = "one table" if any(word == "," for _, _, word in part.words()) else "the name of the table alone"
        raise InvalidQuery(f"FROM takes {what}; got {part.text}.")
    return str(part.tokens[0].text)


def _item(part: _Part) -> Item:
    part, alias = _without_alias(part)
    words = [word for _, _, word in part.words()]
    if words == ["*"]:
        raise InvalidQuery(f"SELECT * is not available: rows are never shown. Ask for an aggregate: {_EXAMPLE}.")
    if words[:1] == ["DISTINCT"]:
        raise InvalidQuery("SELECT DISTINCT is not available: GROUP BY goes over the declared categories of a column.")
    close = _closing(part) if words[1:2] == ["("] else None
    called = words[0] if close is not None else ""
    if called in _ELSEWHERE:
        raise InvalidQuery(f"{called} is not available: {_ELSEWHERE[called]}.")
    if called in AGGREGATES and close is not None:
        arguments = _arguments(called, part, close)
        return Item(part.text, AGGREGATES[called], arguments, alias or part.text)
    for place, _, word in part.words():
        if words[place + 1 : place + 2] == ["("] and (word in AGGREGATES or word in _ELSEWHERE):
            raise InvalidQuery(
                f"Arithmetic with aggregates is not available, as in {part.text!r}: an interval is computed for each of"
                " them alone. Put the arithmetic inside, AVG(100 * x), or ask for a difference."
            )
    if called and get_close_matches(called, AGGREGATES, n=1, cutoff=0.8):
        near = get_close_matches(called, AGGREGATES, n=1, cutoff=0.8)[0]
        raise InvalidQuery(f"{called} is no aggregate here; {near} is. There are {_OFFERED}.")
    return Item(part.text, None, (), alias or part.text)


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
    arguments = tuple(one.text for one in inside.split())
    if AGGREGATES[called] == "PERCENTILE":
        words = [word for _, _, word in rest.words()]
        if words[:4] != ["WITHIN", "GROUP", "(", "ORDER BY"] or words[-1:] != [")"]:
            raise InvalidQuery(f"{called} is written {called}(0.9) WITHIN GROUP (ORDER BY x); or QUANTILE(x, 0.9).")
        return (rest.cut(4, -1).text, *arguments)
    if rest.tokens:
        raise InvalidQuery(
            f"Nothing may follow an aggregate but AS and a name; got {rest.text!r} after {part.cut(0, close + 1).text}."
            " Put arithmetic inside, AVG(100 * x), or ask for a difference."
        )
    return arguments
