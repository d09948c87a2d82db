"""The table of every operation an expression may use. Any other operation is refused."""

from holdfast.queries.functions import logic, numbers, texts, times
from holdfast.queries.functions.operation import Operation

OPERATIONS: dict[str, Operation] = {**logic.OPERATIONS, **numbers.OPERATIONS, **texts.OPERATIONS, **times.OPERATIONS}

_NOT_FUNCTIONS = frozenset([
    "AND", "OR", "NOT", "IN", "IS", "LIKE", "ILIKE", "BETWEEN", "CASE", "NEG", "DATE_ADD", "DATE_SUB",
])  # fmt: skip
# Maps every name of a function to its operation. All names of one operation have the same canonical text.
FUNCTION_NAMES: dict[str, str] = {
    **{name: name for name in OPERATIONS if name.isidentifier() and name not in _NOT_FUNCTIONS},
    **{"CEILING": "CEIL", "POW": "POWER", "MOD": "%", "LOG2": "LOG", "LOG10": "LOG", "IFNULL": "COALESCE"},
    **{"TRY_CAST": "CAST", "IF": "CASE", "IIF": "CASE", "POSITION": "STRPOS", "INSTR": "STRPOS"},
    **{"CHAR_LENGTH": "LENGTH", "CHARACTER_LENGTH": "LENGTH", "LEN": "LENGTH", "SUBSTR": "SUBSTRING"},
    **dict.fromkeys(("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND"), "EXTRACT"),
    **{"DAYOFWEEK": "EXTRACT", "ISODOW": "EXTRACT", "DAYOFYEAR": "EXTRACT", "DAYOFMONTH": "EXTRACT"},
    **{"DATEDIFF": "DATE_DIFF", "DATETRUNC": "DATE_TRUNC"},
}
