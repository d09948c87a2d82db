"""Every word of a query text is checked before it is parsed: an operator, an allowed function, a type or a column.

Any other word is refused here, by the name the caller used. So the parser sees only allowed words, which also bounds
its time: it takes exponential time to parse nested uses of some words that sqlglot accepts but a query does not (types
used as functions).
"""

import re
from difflib import get_close_matches
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

from holdfast.errors import InvalidQuery
from holdfast.queries.evaluate import check_name
from holdfast.queries.functions import EXTRACT_PARTS, FUNCTION_NAMES
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
_COMPARISONS = ("EQ", "NEQ", "LT", "GT", "LTE", "GTE")
_ENDS = ("R_PAREN", "NUMBER", "STRING", "STAR")  # what may stand at the end
_WITH_PART = frozenset((name, "(") for name in ("DATE_TRUNC", "DATETRUNC", "DATE_DIFF", "DATEDIFF"))
_BEFORE_BRACKET = RESERVED - {"NULL", "TRUE", "FALSE", "END", "ISNULL", "NOTNULL", "BOTH"}
_SYMBOLS = frozenset([
    "L_PAREN", "R_PAREN", "COMMA", "PLUS", "DASH", "STAR", "SLASH", "MOD", "DPIPE", "EQ", "NEQ", "LT", "GT",
    "LTE", "GTE", "DCOLON", "CARET", "DSTAR", "NUMBER", "STRING",
])  # fmt: skip
# The accepted names of aggregates, and the one name used here for each.
AGGREGATES = {
    "AVG": "AVG", "MEAN": "AVG", "AVERAGE": "AVG", "COUNT": "COUNT", "COUNT_IF": "COUNT_IF", "COUNTIF": "COUNT_IF",
    "SUM": "SUM", "MEDIAN": "MEDIAN", "QUANTILE": "QUANTILE", "QUANTILE_CONT": "QUANTILE",
    "APPROX_QUANTILE": "QUANTILE", "PERCENTILE_CONT": "PERCENTILE", "STDDEV": "STDDEV", "STDDEV_POP": "STDDEV",
    "STDDEV_SAMP": "STDDEV", "STD": "STDDEV", "VARIANCE": "VARIANCE", "VAR": "VARIANCE", "VAR_POP": "VARIANCE",
    "VAR_SAMP": "VARIANCE", "CORR": "CORR", "COVAR_POP": "COVAR", "COVAR_SAMP": "COVAR", "REGR_SLOPE": "SLOPE",
}  # fmt: skip
_AGGREGATES = frozenset(AGGREGATES.keys() | {
    "MIN", "MAX", "MODE", "PERCENTILE_DISC", "APPROX_COUNT_DISTINCT", "ARRAY_AGG", "STRING_AGG", "LIST",
    "GROUP_CONCAT", "BOOL_AND", "BOOL_OR", "EVERY", "FIRST", "LAST", "ANY_VALUE", "ARG_MAX", "ARG_MIN", "HISTOGRAM",
    "ENTROPY", "SKEWNESS", "KURTOSIS", "PRODUCT", "FSUM", "REGR_INTERCEPT", "REGR_R2",
})  # fmt: skip
_WINDOWS = frozenset([
    "OVER", "ROW_NUMBER", "RANK", "DENSE_RANK", "PERCENT_RANK", "CUME_DIST", "NTILE", "LAG", "LEAD",
    "FIRST_VALUE", "LAST_VALUE", "NTH_VALUE", "WINDOW", "PARTITION",
])  # fmt: skip
_NONDETERMINISTIC = frozenset([
    "RANDOM", "RAND", "RANDN", "UUID", "GEN_RANDOM_UUID", "NEWID", "NOW", "TODAY", "CURRENT_DATE",
    "CURRENT_TIME", "CURRENT_TIMESTAMP", "GETDATE", "LOCALTIME", "LOCALTIMESTAMP", "SYSDATE",
    "CLOCK_TIMESTAMP", "NEXTVAL", "CURRENT_USER", "USER", "SESSION_USER", "VERSION",
])  # fmt: skip
_CLOCKS = frozenset(word for word in _NONDETERMINISTIC if "TIME" in word or "DATE" in word) | {"NOW", "TODAY"}
STATEMENTS = frozenset([
    "SELECT", "WITH", "INSERT", "UPDATE", "DELETE", "DROP", "CREATE", "ALTER", "TRUNCATE", "MERGE", "COPY",
    "ATTACH", "DETACH", "PRAGMA", "SHOW", "DESCRIBE", "EXPLAIN", "CALL", "EXECUTE", "GRANT", "REVOKE",
    "BEGIN", "COMMIT", "ROLLBACK", "UNION", "INTERSECT", "EXCEPT", "VALUES", "WHERE", "ORDER", "GROUP",
    "HAVING", "LIMIT", "OFFSET", "JOIN", "EXISTS", "SET",
])  # fmt: skip

_NO_STATEMENT = "A query must be one expression over one row, not a statement; "
_AGGREGATE = "{} is an aggregate over many rows; a query must be an expression over one row."
_CHANGES = "{} changes from call to call; a query must depend on its row alone."
_REFUSED = {  # words, and why they are refused
    ("MIN", "MAX"): f"{_AGGREGATE} LEAST(x, y) and GREATEST(x, y) compare values of one row.",
    _AGGREGATES: f"{_AGGREGATE} Leave it out: the kind of question says what is computed; sql takes a SELECT.",
    _WINDOWS: "{} is a window over other rows; a query must be an expression over one row.",
    _CLOCKS: f"{_CHANGES} Write the day or the time itself, such as DATE '2024-12-31'.",
    _NONDETERMINISTIC: _CHANGES,
    ("SELECT",): _NO_STATEMENT + "a SELECT of aggregates is asked with sql.",
    ("WHERE",): _NO_STATEMENT + "leave out WHERE. Which rows count is a condition of its own.",
    STATEMENTS: _NO_STATEMENT + "got {}.",
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
    from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise InvalidQuery("A query must be valid Unicode; got half of a surrogate pair.")
    if not text.strip():
        raise InvalidQuery("A query must not be empty; write an expression such as age > 40.")
    if len(text) > LONGEST_TEXT:
        raise InvalidQuery(f"A query must be at most {LONGEST_TEXT} characters long; got {len(text)}.")
    try:
        tokens = dialect().tokenize(text)
    except SqlglotError:
        twice = " Inside a text it is written twice: 'O''Hare'." if text.count("'") > 1 else ""
        raise InvalidQuery(
            f"A query must be complete; this one has a quotation mark that is not closed.{twice}"
        ) from None
    _check_nesting(tokens)
    tokens = _with_fractions(tokens)
    result: list[Token] = []
    for place, token in enumerate(tokens):
        if token.comments:
            raise InvalidQuery("A query must not contain comments; remove them.")
        after = tokens[place + 1] if place + 1 < len(tokens) else None
        if token.token_type is TokenType.IDENTIFIER:
            if after is not None and after.token_type is TokenType.L_PAREN:
                raise InvalidQuery(f"{token.text!r} is not a function; a name in double quotes is a column.")
            token = _quoted_column(token, schema)
        elif _is_word(token):
            opening = tuple(other.text.upper() for other in tokens[max(place - 2, 0) : place])
            if opening in _WITH_PART and token.text.upper() in EXTRACT_PARTS:
                token = Token(TokenType.STRING, token.text, token.line, token.col, token.start, token.end)
            elif opening != ("EXTRACT", "("):  # the part of a date, which is checked with the function
                token = _checked_word(tokens, place, schema)
        elif token.token_type.name not in _SYMBOLS:
            raise _refused_symbol(tokens, place, schema)
        result.append(token)
    return result


def parse_hint(tokens: "list[Token]", schema: Schema) -> str:
    """Say what may be wrong with a text of checked tokens that the parser does not understand; empty if unknown."""
    kinds = [token.token_type.name for token in tokens]
    words = [
        "" if kind in ("STRING", "IDENTIFIER") else token.text.upper()
        for kind, token in zip(kinds, tokens, strict=True)
    ]
    followed = set(pairwise(kinds))
    if kinds.count("L_PAREN") != kinds.count("R_PAREN"):
        return f" Brackets opened: {kinds.count('L_PAREN')}; closed: {kinds.count('R_PAREN')}."
    if words.count("CASE") > words.count("END"):
        return " CASE ends with END: CASE WHEN hour < 12 THEN 'am' ELSE 'pm' END."
    taken = next((name for name in schema.names if name.upper() in RESERVED and name.upper() in words), None)
    if taken is not None:
        return f' Write the column in double quotes: "{taken}".'
    if ("EQ", "LT") in followed or ("EQ", "GT") in followed:
        return " Write <= or >=, with = on the right."
    if followed & {(chain, sign) for chain in ("AND", "OR") for sign in _COMPARISONS}:
        return " Name the column in every comparison: hour >= 6 AND hour <= 18."
    if "BETWEEN" in words:
        return " BETWEEN is written hour BETWEEN 6 AND 18."
    if kinds[-1] == "MOD":
        return " Write a percentage as a number: 0.15, not 15%."
    if kinds[-1] in ("AND", "OR", "NOT") or (kinds[-1] in _SYMBOLS and kinds[-1] not in _ENDS):
        return f" Something is missing after {tokens[-1].text}."
    if ("IN", "NUMBER") in followed or ("IN", "STRING") in followed:
        return " IN takes a list in parentheses: hour IN (1, 2)."
    if "COMMA" in kinds and "L_PAREN" not in kinds:
        return " Write numbers without commas, lists as carrier IN ('UA', 'AA'), and one query at a time."
    return ""


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


def _checked_word(tokens: "list[Token]", place: int, schema: Schema) -> "Token":
    token, before = tokens[place], tokens[place - 1] if place else None
    word = token.text.upper()
    following = tokens[place + 1].token_type.name if place + 1 < len(tokens) else None
    if following == "DOT":
        raise _refused_symbol(tokens, place + 1, schema)
    if before is not None and (before.text.upper() == "AS" or before.token_type.name == "DCOLON"):
        if before.text.upper() == "AS" and not any(
            other.text.upper() in ("CAST", "TRY_CAST") for other in tokens[:place]
        ):
            raise InvalidQuery(f"A query has no name; leave out AS {token.text}.")
        if word in TYPES and following != "L_PAREN":
            return token
        got = f"{token.text}, which takes no size here" if word in TYPES else token.text
        raise InvalidQuery(f"CAST supports {', '.join(sorted(TYPES))}; got {got}.")
    if following == "L_PAREN":
        if word in FUNCTION_NAMES or word in _BEFORE_BRACKET:
            return token
        raise refused_function(token.text)
    if word in RESERVED:
        return token
    if word in ("DATE", "TIMESTAMP") and following == "STRING":
        return token
    if word not in {name.upper() for name in schema.names}:
        _refuse_known(token.text)
        if word in _OPERATORS:
            raise InvalidQuery(f"{token.text!r} is neither a column nor an operator here; write {_OPERATORS[word]}.")
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
            if re.search("[<>=]", name):
                raise InvalidQuery(
                    f"A query is written without quotation marks around all of it; got {name!r} in them."
                )
            raise schema.unknown(name, otherwise=_as_value(name))
        name = alike[0]
    check_name(name)
    return name


def _as_value(name: str) -> str:
    """Say how a word is written that is no column but may be a value."""
    if name.upper() in _MISSING:
        return " A value that is missing, or NaN, is NULL: write IS NULL or IS NOT NULL."
    if name.isdecimal():
        return f" If it is a number, write it without quotation marks: {name}."
    return f" If it is a value, write it in single quotes: {name!r}." if "'" not in name else ""


def refused_function(name: str) -> InvalidQuery:
    """Return the refusal of a function, which says why it is not allowed."""
    hint = _INSTEAD.get(name.upper(), "")
    if not hint:
        try:
            _refuse_known(name)
        except InvalidQuery as refusal:
            return refusal
        near = get_close_matches(name.upper(), FUNCTION_NAMES, n=1, cutoff=0.72)
        hint = f"{near[0]} is" if near else ""
    return InvalidQuery(f"{name} is not a function that a query can use{'; ' if hint else ''}{hint}.")


_DAYS = "YEAR(x), MONTH(x), DAY(x), HOUR(x) and DATE_TRUNC('month', x) are"
_NULL = "write x IS NULL, which is true of NaN, too"
_INSTEAD = {
    **dict.fromkeys(("STRFTIME", "DATE_FORMAT", "TO_CHAR", "DATE_PART"), _DAYS),
    "DATE": "CAST(x AS DATE) is, of a timestamp or of text such as 2013-01-31; write a date as DATE '2013-01-31'",
    **dict.fromkeys(
        ("TO_DATE", "STR_TO_DATE", "STRPTIME", "PARSE_DATE"), "CAST(x AS DATE) reads text such as 2013-01-31"
    ),
    **dict.fromkeys(("DATE_ADD", "DATEADD", "DATE_SUB"), "add whole days to a date: day + 7"),
    **dict.fromkeys(("WEEKDAY", "DAYNAME"), "DAYOFWEEK(x) is, from 0, Sunday, to 6"),
    "MONTHNAME": "MONTH(x) is, from 1 to 12",
    **dict.fromkeys(("UNIX_TIMESTAMP", "EPOCH"), "DATE_DIFF('second', TIMESTAMP '1970-01-01', x) is"),
    **dict.fromkeys(("IF", "DECODE"), "CASE WHEN ... THEN ... ELSE ... END is"),
    **dict.fromkeys(("ISNA", "ISNAN", "IS_NULL", "IS_NAN"), _NULL),
    "ISNULL": f"{_NULL}, or COALESCE(x, 0)",
    "NVL": "COALESCE(x, 0) is",
    **dict.fromkeys(("NOTNULL", "NOTNA", "IS_NOT_NULL", "IS_NOT_NAN"), "write x IS NOT NULL, which is false of NaN"),
    "ISIN": "write x IN ('a', 'b')",
    "BETWEEN": "write x BETWEEN 0 AND 15",
    **dict.fromkeys(("INT", "INTEGER"), "CAST(x AS BIGINT) is"),
    **dict.fromkeys(("FLOAT", "DOUBLE", "TO_NUMBER"), "CAST(x AS DOUBLE) is"),
    **dict.fromkeys(("STR", "STRING", "TEXT", "VARCHAR"), "CAST(x AS TEXT) is"),
    **dict.fromkeys(("TRUNC", "TRUNCATE"), "FLOOR(x), CEIL(x) and ROUND(x, 1) are"),
    "SQUARE": "POWER(x, 2) is",
    **dict.fromkeys(("GEOMETRIC_MEAN", "GEOMEAN", "GMEAN"), "ask for the mean of LN(x), whose exponential it is"),
    **dict.fromkeys(("HARMONIC_MEAN", "HMEAN"), "ask for the mean of 1 / x, whose reciprocal it is"),
    "PI": "write 3.141592653589793",
    "CHARINDEX": "STRPOS(x, 'a') is",
    "SPLIT_PART": "STRPOS(x, 'a'), LEFT(x, 2) and SUBSTRING(x, 3, 2) are",
    **dict.fromkeys(("SHARE", "P", "PROB"), "the share of a condition is asked by the condition itself"),
}
_OPERATORS = {  # words that stand between values, or at the beginning, in other languages
    "XOR": "<> between two conditions",
    "MOD": "hour % 2",
    "DIV": "FLOOR(hour / 2)",
    **dict.fromkeys(("CONTAINS", "MATCHES"), "CONTAINS(carrier, 'U') or carrier LIKE '%U%'"),
    **dict.fromkeys(("IF", "ELIF", "ELSEIF", "SWITCH"), "CASE WHEN hour < 12 THEN 1 ELSE 0 END"),
    **dict.fromkeys(("EQ", "EQUALS"), "="),
    **dict.fromkeys(("GT", "GREATER"), ">"),
    **dict.fromkeys(("LT", "LESS"), "<"),
    "DISTINCT": "<> or =",
}
_MISSING = frozenset(["NA", "NAN", "NONE", "NIL", "NAT"])


def _refuse_known(name: str) -> None:
    word = name.upper().split(" ")[0]
    for words, why in _REFUSED.items():
        if ("RLIKE" if "REGEX" in word else word) in words:
            raise InvalidQuery(why.format(name))


def _refused_symbol(tokens: "list[Token]", place: int, schema: Schema) -> InvalidQuery:
    token, after = tokens[place], tokens[place + 1] if place + 1 < len(tokens) else None
    kind = token.token_type.name
    if kind == "SEMICOLON":
        return InvalidQuery("A query must be one expression; leave out the semicolon.")
    if kind == "DOT":
        return _refused_method(tokens, place, schema)
    if kind in ("PLACEHOLDER", "PARAMETER", "COLON"):
        choice = " A choice is written CASE WHEN hour < 12 THEN 1 ELSE 0 END." if token.text == "?" else ""
        return InvalidQuery(f"A query must not contain parameters; write the values themselves.{choice}")
    listed = place > 0 and tokens[place - 1].text.upper() in ("IN", "=", "==")
    if (
        token.text == "["
        and after is not None
        and (_is_word(after) or after.token_type.name == "IDENTIFIER")
        and not listed
    ):
        return InvalidQuery("A query must not use '['; write a name in double quotes.")
    mark = token.text[:1] or "$"  # between two dollar signs there may be nothing
    if mark in "‘’“”„‚´$":  # as a text processor, or a database, writes quotation marks
        return InvalidQuery(f"A query must not use {mark!r}; write texts in straight quotation marks: 'UA'.")
    return InvalidQuery(f"A query must not use {token.text!r}{_WRITE.get(token.text, '')}.")


def _refused_method(tokens: "list[Token]", place: int, schema: Schema) -> InvalidQuery:
    """Refuse a dot: a method of a column, a function of a module, a table's name, or part of a column's name."""
    column, names = tokens[place - 1].text if place else "", [token.text for token in tokens[place + 1 :: 2]]
    around = f"{column}.{names[0] if names else ''}"
    if names[:1] in (["str"], ["dt"]):
        del names[0]
    known = {name.replace("_", ""): name for name in FUNCTION_NAMES}
    called = names[0].upper().replace("_", "") if names else ""
    if called in known:
        of = f"({column}, ...)" if column in schema else "(...)"
        return InvalidQuery(f"A query has functions, not methods; write {known[called]}{of}.")
    if called in _INSTEAD and column in schema:
        return InvalidQuery(f"A query has functions, not methods: {_INSTEAD[called]}.")
    way = f"Write {names[0]}." if names and names[0] in schema else "Put a name that has a dot in double quotes."
    return InvalidQuery(f"A column must be named without its table; got {around!r}. {way}")


_LIST = "; write a list in parentheses: carrier IN ('UA', 'AA')"
_WRITE = {
    "&&": "; write AND",
    "&": "; write AND",
    "|": "; write OR",
    "[": _LIST,
    "{": _LIST,
    "==": "; write =",
    "=>": "; write >=",
    "!": "; write NOT",
    "~": "; write NOT, or LIKE for patterns",
    "`": "; write a name in double quotes",
    "//": "; write FLOOR(x / y)",
    "<=>": "; write =, and x IS NULL for missing values",
    "#": ", and no comments; remove it",
}
