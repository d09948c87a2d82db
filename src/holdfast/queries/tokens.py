"""Every word of a query text is checked before it is parsed: an operator, an allowed function, a type or a column.

Any other word is refused here, by the name the caller used. So the parser sees only allowed words, which also bounds
its time: it takes exponential time to parse nested uses of some words that sqlglot accepts but a query does not (types
used as functions).
"""

from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING

from holdfast.errors import InvalidQuery
from holdfast.queries.evaluate import check_name
from holdfast.queries.functions import FUNCTION_NAMES
from holdfast.queries.node import RESERVED
from holdfast.schema import Schema, Type

if TYPE_CHECKING:
    from sqlglot.dialects.dialect import Dialect
    from sqlglot.tokens import Token  # type: ignore[attr-defined]

LONGEST_TEXT = 4_000  # characters
MOST_NESTING = 24  # levels of brackets and CASEs; the parser needs about 25 Python frames for each
DIALECT = "duckdb"

TYPES = {
    "BOOLEAN": Type.BOOL, "BOOL": Type.BOOL, "INTEGER": Type.INT, "INT": Type.INT, "BIGINT": Type.INT,
    "DOUBLE": Type.FLOAT, "FLOAT": Type.FLOAT, "REAL": Type.FLOAT, "TEXT": Type.STRING, "VARCHAR": Type.STRING,
    "STRING": Type.STRING, "DATE": Type.DATE, "TIMESTAMP": Type.DATETIME,
}  # fmt: skip
_BEFORE_BRACKET = RESERVED - {"NULL", "TRUE", "FALSE", "END", "ISNULL", "NOTNULL", "BOTH"}
_SYMBOLS = frozenset([
    "L_PAREN", "R_PAREN", "COMMA", "PLUS", "DASH", "STAR", "SLASH", "MOD", "DPIPE", "EQ", "NEQ", "LT", "GT",
    "LTE", "GTE", "DCOLON", "CARET", "DSTAR", "NUMBER", "STRING",
])  # fmt: skip
_AGGREGATES = frozenset([
    "SUM", "AVG", "MEAN", "COUNT", "MIN", "MAX", "MEDIAN", "MODE", "STDDEV", "STDDEV_POP", "STDDEV_SAMP",
    "VARIANCE", "VAR_POP", "VAR_SAMP", "QUANTILE", "QUANTILE_CONT", "PERCENTILE_CONT", "PERCENTILE_DISC",
    "APPROX_COUNT_DISTINCT", "ARRAY_AGG", "STRING_AGG", "LIST", "GROUP_CONCAT", "CORR", "COVAR_POP",
    "COVAR_SAMP", "BOOL_AND", "BOOL_OR", "EVERY", "FIRST", "LAST", "ANY_VALUE", "ARG_MAX", "ARG_MIN",
    "HISTOGRAM", "ENTROPY", "SKEWNESS", "KURTOSIS", "PRODUCT", "FSUM",
])  # fmt: skip
_WINDOWS = frozenset([
    "OVER", "ROW_NUMBER", "RANK", "DENSE_RANK", "PERCENT_RANK", "CUME_DIST", "NTILE", "LAG", "LEAD",
    "FIRST_VALUE", "LAST_VALUE", "NTH_VALUE", "WINDOW", "PARTITION",
])  # fmt: skip
_NONDETERMINISTIC = frozenset([
    "RANDOM", "RAND", "RANDN", "UUID", "GEN_RANDOM_UUID", "NEWID", "NOW", "TODAY", "CURRENT_DATE",
    "CURRENT_TIME", "CURRENT_TIMESTAMP", "GETDATE", "LOCALTIME", "LOCALTIMESTAMP", "SYSDATE",
    "CLOCK_TIMESTAMP", "NEXTVAL", "CURRENT_USER", "USER", "SESSION_USER", "VERSION",
])  # fmt: skip
_STATEMENTS = frozenset([
    "SELECT", "WITH", "INSERT", "UPDATE", "DELETE", "DROP", "CREATE", "ALTER", "TRUNCATE", "MERGE", "COPY",
    "ATTACH", "DETACH", "PRAGMA", "SHOW", "DESCRIBE", "EXPLAIN", "CALL", "EXECUTE", "GRANT", "REVOKE",
    "BEGIN", "COMMIT", "ROLLBACK", "UNION", "INTERSECT", "EXCEPT", "VALUES", "WHERE", "ORDER", "GROUP",
    "HAVING", "LIMIT", "OFFSET", "JOIN", "EXISTS", "SET",
])  # fmt: skip

_NO_STATEMENT = "A query must be one expression over one row, not a statement; "
_REFUSED = {  # words, and why they are refused
    _AGGREGATES: "{} is an aggregate over many rows; a query must be an expression over one row.",
    _WINDOWS: "{} is a window over other rows; a query must be an expression over one row.",
    _NONDETERMINISTIC: "{} changes from call to call; a query must depend on its row alone.",
    ("SELECT",): _NO_STATEMENT + "a SELECT of aggregates is asked with sql.",
    _STATEMENTS: _NO_STATEMENT + "got {}.",
    ("SIMILAR", "RLIKE", "GLOB"): "{} is not allowed; use LIKE, CONTAINS, STARTS_WITH or ENDS_WITH.",
    ("AT",): "AT TIME ZONE is not allowed; timestamps are in UTC throughout.",
    ("INTERVAL",): "INTERVAL is not allowed; add whole days to a date, or use DATE_DIFF.",
}


@cache
def dialect() -> "Dialect":
    """Return the one dialect that texts are written in."""
    from sqlglot.dialects.dialect import Dialect  # imported late: a plan needs no parser

    return Dialect.get_or_raise(DIALECT)


def checked_tokens(text: str, schema: Schema) -> "list[Token]":
    """Return the tokens of a text, every word of it known and every column name quoted, or refuse it."""
    # Import the whole package first: threads that import different modules of it at once could see it half imported.
    import sqlglot  # noqa: F401
    from sqlglot.errors import SqlglotError
    from sqlglot.tokens import TokenType  # type: ignore[attr-defined]

    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise InvalidQuery("A query must be valid Unicode; got half of a surrogate pair.")
    if not text.strip():
        raise InvalidQuery("A query must not be empty; write an expression such as age > 40.")
    if len(text) > LONGEST_TEXT:
        raise InvalidQuery(f"A query must be at most {LONGEST_TEXT} characters long; got {len(text)}.")
    try:
        tokens = dialect().tokenize(text)
    except SqlglotError:
        raise InvalidQuery("A query must be complete; this one has a quotation mark that is not closed.") from None
    _check_nesting(tokens)
    tokens = _with_fractions(tokens)
    result: list[Token] = []
    for place, token in enumerate(tokens):
        if token.comments:
            raise InvalidQuery("A query must not contain comments; remove them.")
        before = tokens[place - 1] if place else None
        after = tokens[place + 1] if place + 1 < len(tokens) else None
        if token.token_type is TokenType.IDENTIFIER:
            if after is not None and after.token_type is TokenType.L_PAREN:
                raise InvalidQuery(f"{token.text!r} is not a function; a name in double quotes is a column.")
            token = _quoted_column(token, schema)
        elif _is_word(token):
            opening = [other.text.upper() for other in tokens[max(place - 2, 0) : place]]
            if opening != ["EXTRACT", "("]:  # the part of a date, which is checked with the function
                third = tokens[place + 2] if place + 2 < len(tokens) else None
                token = _checked_word(token, before, after, third, schema)
        elif token.token_type.name not in _SYMBOLS:
            raise _refused_symbol(token, before, after)
        result.append(token)
    return result


def _with_fractions(tokens: "list[Token]") -> "list[Token]":
    """Join a dot and the digits after it into one number: `.5` is tokenized as two tokens."""
    from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

    result: list[Token] = []
    for token in tokens:
        dot = result[-1] if result and result[-1].token_type is TokenType.DOT else None
        owner = result[-2] if dot and len(result) > 1 else None
        free = owner is None or (
            owner.token_type.name in _SYMBOLS - {"NUMBER", "R_PAREN"} or owner.text.upper() in RESERVED
        )
        if dot and free and token.token_type is TokenType.NUMBER and token.text.isdigit():
            result[-1] = Token(TokenType.NUMBER, f"0.{token.text}", dot.line, dot.col, dot.start, token.end)
        else:
            result.append(token)
    return result


def _is_word(token: "Token") -> bool:
    first = token.text[:1]
    return (
        token.token_type.name not in _SYMBOLS
        and (first.isalpha() or first == "_")
        and not (token.token_type.name.endswith("STRING") or token.token_type.name in ("NATIONAL", "PARAMETER"))
    )


def _check_nesting(tokens: "list[Token]") -> None:
    depth = 0
    for token in tokens:
        kind = token.token_type.name
        depth += (kind in ("L_PAREN", "CASE")) - (kind in ("R_PAREN", "END"))
        if depth > MOST_NESTING:
            raise InvalidQuery(f"A query must not nest more than {MOST_NESTING} levels deep.")


def _checked_word(
    token: "Token", before: "Token | None", after: "Token | None", method: "Token | None", schema: Schema
) -> "Token":
    word = token.text.upper()
    following = None if after is None else after.token_type.name
    preceding = None if before is None else before.text.upper()
    if following == "DOT" and after is not None:
        raise _refused_symbol(after, token, method)
    if following == "L_PAREN":
        if word in FUNCTION_NAMES or word in _BEFORE_BRACKET:
            return token
        raise refused_function(token.text)
    if word in RESERVED:
        return token
    if word in ("DATE", "TIMESTAMP") and following == "STRING":
        return token
    if before is not None and (preceding == "AS" or before.token_type.name == "DCOLON"):
        if word in TYPES:
            return token
        raise InvalidQuery(f"CAST supports {', '.join(sorted(TYPES))}; got {token.text}.")
    if word not in {name.upper() for name in schema.names}:
        _refuse_known(token.text)
    return _quoted_column(token, schema)


def _quoted_column(token: "Token", schema: Schema) -> "Token":
    """Return the word as the quoted name of a column, so that the parser takes it for nothing else."""
    from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

    name = _resolved(token.text, schema)
    return Token(TokenType.IDENTIFIER, name, token.line, token.col, token.start, token.end)


def _resolved(name: str, schema: Schema) -> str:
    """Return the column a name stands for: the column of that name, or the only one that differs just in case."""
    if name not in schema:
        alike = [known for known in schema.names if known.lower() == name.lower()]
        if len(alike) > 1:
            raise InvalidQuery(f"{name!r} could be {' or '.join(map(repr, alike))}; write one of them.")
        if not alike:
            raise schema.unknown(name, otherwise=_as_value(name))
        name = alike[0]
    check_name(name)
    return name


def _as_value(name: str) -> str:
    """Say how a word is written that is no column but may be a value."""
    if name.upper() in _MISSING:
        return " A value that is missing, or NaN, is NULL: write IS NULL or IS NOT NULL."
    return f" If it is a value, write it in single quotes: {name!r}." if "'" not in name else ""


def refused_function(name: str) -> InvalidQuery:
    """Return the refusal of a function, which says why it is not allowed."""
    try:
        _refuse_known(name)
    except InvalidQuery as refusal:
        return refusal
    near = get_close_matches(name.upper(), FUNCTION_NAMES, n=1)
    hint = _INSTEAD.get(name.upper()) or (f"{near[0]} is" if near else "")
    return InvalidQuery(f"{name} is not a function that a query can use{'; ' if hint else ''}{hint}.")


_PARTS = "YEAR(x), MONTH(x), DAY(x), HOUR(x) and DATE_TRUNC('month', x) are"
_INSTEAD = {
    **dict.fromkeys(("STRFTIME", "DATE_FORMAT", "TO_CHAR", "DATE_PART"), _PARTS),
    "DATE": "write a date as DATE '2013-01-31', and declare text that holds dates with types={'day': 'date'}",
    "IF": "CASE WHEN ... THEN ... ELSE ... END is",
    **dict.fromkeys(("ISNULL", "ISNA", "ISNAN", "IS_NULL", "IS_NAN"), "write x IS NULL, which is true of NaN, too"),
    **dict.fromkeys(("NOTNULL", "NOTNA", "IS_NOT_NULL", "IS_NOT_NAN"), "write x IS NOT NULL, which is false of NaN"),
}
_MISSING = frozenset(["NA", "NAN", "NONE", "NIL", "NAT"])


def _refuse_known(name: str) -> None:
    word = name.upper().split(" ")[0]
    for words, why in _REFUSED.items():
        if ("RLIKE" if "REGEX" in word else word) in words:
            raise InvalidQuery(why.format(name))


def _refused_symbol(token: "Token", before: "Token | None", after: "Token | None") -> InvalidQuery:
    kind = token.token_type.name
    if kind == "SEMICOLON":
        return InvalidQuery("A query must be one expression; leave out the semicolon.")
    if kind == "DOT":
        column = before.text if before else ""
        around = f"{column}.{after.text if after else ''}"
        known = {name.replace("_", ""): name for name in FUNCTION_NAMES}
        function = None if after is None else known.get(after.text.upper().replace("_", ""))
        if function is not None:
            return InvalidQuery(f"A query has functions, not methods; write {function}({column}, ...).")
        return InvalidQuery(
            f"A column must be named without its table; got {around!r}. Put a name that has a dot in double quotes."
        )
    if kind in ("PLACEHOLDER", "PARAMETER", "COLON"):
        return InvalidQuery("A query must not contain parameters; write the values themselves.")
    if token.text == "[" and after is not None and _is_word(after):
        return InvalidQuery("A query must not use '['; write a name in double quotes.")
    if token.text[0] in "‘’“”„‚´":  # as a text processor writes quotation marks
        return InvalidQuery(f"A query must not use {token.text[0]!r}; write texts in straight quotation marks: 'UA'.")
    return InvalidQuery(f"A query must not use {token.text!r}{_WRITE.get(token.text, '')}.")


_WRITE = {
    "&&": "; write AND",
    "&": "; write AND",
    "|": "; write OR",
    "[": "; write a list in parentheses: carrier IN ('UA', 'AA')",
    "==": "; write =",
    "=>": "; write >=",
    "!": "; write NOT",
    "`": "; write a name in double quotes",
}
