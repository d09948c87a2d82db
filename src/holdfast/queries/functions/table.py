"""The table of everything an expression may do. What is not in it is refused."""

from holdfast.queries.functions import logic, numbers, texts, times
from holdfast.queries.functions.rule import Rule

RULES: dict[str, Rule] = {**logic.RULES, **numbers.RULES, **texts.RULES, **times.RULES}

# How functions may be written. Several names for one operation share its canonical text.
WRITTEN: dict[str, str] = {
    **{name: name for name in RULES if name.isidentifier()},
    **{"CEILING": "CEIL", "POW": "POWER", "MOD": "%", "LOG2": "LOG", "LOG10": "LOG", "IFNULL": "COALESCE"},
    **{"TRY_CAST": "CAST", "IF": "CASE", "IIF": "CASE", "POSITION": "STRPOS", "INSTR": "STRPOS"},
    **{"CHAR_LENGTH": "LENGTH", "CHARACTER_LENGTH": "LENGTH", "LEN": "LENGTH", "SUBSTR": "SUBSTRING"},
    **dict.fromkeys(("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND"), "EXTRACT"),
    **{"DAYOFWEEK": "EXTRACT", "ISODOW": "EXTRACT", "DAYOFYEAR": "EXTRACT", "DAYOFMONTH": "EXTRACT"},
    **{"DATEDIFF": "DATE_DIFF", "DATETRUNC": "DATE_TRUNC"},
}
for _not_a_function in (
    "AND",
    "OR",
    "NOT",
    "IN",
    "IS",
    "LIKE",
    "ILIKE",
    "BETWEEN",
    "CASE",
    "NEG",
    "DATE_ADD",
    "DATE_SUB",
):
    del WRITTEN[_not_a_function]
