"""Translate sqlglot's parse into a checked tree. Nodes outside the grammar are refused; types come from the schema."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import isinf
from typing import TYPE_CHECKING

from holdfast.errors import InvalidQuery
from holdfast.queries import functions
from holdfast.queries.functions import CASTS, OPERATIONS, check_constants
from holdfast.queries.node import SUM, Node, common_type, time_literal, unified, with_article
from holdfast.queries.tokens import TYPES, refused_function
from holdfast.schema import Column, Schema, Type

if TYPE_CHECKING:
    from sqlglot.expressions import Expr as Parsed

MOST_NODES = 500
DEEPEST = 60
_COMPARISONS = {"EQ": "=", "NEQ": "<>", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">="}
_FROM_THE_RIGHT = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_SIGNS = {"Add": "+", "Sub": "-"}
_CHAINS = {"And": "AND", "Or": "OR", "DPipe": "||"}
_PART_NAMES = {
    "DAYOFWEEK": "DOW", "DAYOFWEEKISO": "ISODOW", "DAYOFYEAR": "DOY", "DAYOFMONTH": "DAY", "WEEKOFYEAR": "WEEK",
}  # fmt: skip


def too_deep() -> InvalidQuery:
    """Return the refusal of a text that nests too deeply."""
    return InvalidQuery(
        f"A query must not nest more than {DEEPEST} operations inside each other. Long sums, ANDs and ORs are not"
        " nested; a product of many factors is: use parentheses to split it into shorter ones."
    )


class Translator:
    """Translates one parsed text, node by node."""

    def __init__(self, schema: Schema, numbers: Mapping[str, str]) -> None:
        self.schema = schema
        self.numbers = numbers  # the number behind each placeholder
        self.columns: dict[str, Column] = {}  # the columns that the text mentions, by name
        self.nodes = 0

    def node(self, parsed: "Parsed", depth: int) -> Node:
        """Return the checked node of any parsed node, or refuse it."""
        self.count()
        if depth > DEEPEST:
            raise too_deep()
        name = type(parsed).__name__
        production = _GRAMMAR.get(name)
        if production is None:
            if name == "Anonymous":
                raise refused_function(str(parsed.name))
            raise InvalidQuery(f"{_spelled(name)} is not allowed in a query.")
        for part, value in parsed.args.items():
            if value and part not in production.parts:
                raise InvalidQuery(f"{_spelled(name)} is not allowed with {_spelled(part)}.")
        return production.read(self, parsed, depth + 1)

    def count(self) -> None:
        """Count one more part of the text."""
        self.nodes += 1
        if self.nodes > MOST_NODES:
            raise InvalidQuery(f"A query must have at most {MOST_NODES} parts; this one has more.")

    def children(self, parsed: "Parsed", depth: int, *names: str) -> list[Node]:
        """Return the checked nodes of some parts of a node, in order."""
        found: list[Node] = []
        for name in names:
            part = parsed.args.get(name)
            for one in part if isinstance(part, list) else [part] if part is not None else []:
                found.append(self.node(one, depth))
        return found

    def column(self, parsed: "Parsed", _: int) -> Node:
        """Read a column."""
        column = self.schema.by_name.get(parsed.name) or self.schema[parsed.name]
        self.columns[column.name] = column
        return Node("column", value=column.name, type=column.type, nullable=column.nullable)

    def literal(self, parsed: "Parsed", _: int) -> Node:
        """Read a number or a text."""
        if parsed.is_string:
            return Node("literal", value=parsed.this, type=Type.STRING)
        return _number(self.numbers.get(parsed.this, parsed.this))

    def negative(self, parsed: "Parsed", depth: int) -> Node:
        """Read a minus sign; before a number it belongs to the number."""
        inner = parsed.this
        while type(inner).__name__ == "Paren":
            inner = inner.this
        if type(inner).__name__ == "Literal" and not inner.is_string:
            self.node(inner, depth)
            return _number("-" + self.numbers.get(inner.this, inner.this))
        value = self.node(inner, depth)
        if value.is_literal and value.type in (Type.INT, Type.FLOAT):  # -(-(5)) is 5: a number has one canonical text
            return _number(repr(-value.value))
        return _applied("NEG", [value])

    def chain(self, parsed: "Parsed", depth: int) -> Node:
        """Read a chain of AND, OR or ||, which sqlglot nests to the left, one level per link, as one list."""
        op = _CHAINS[type(parsed).__name__]
        links: list[Parsed] = []
        while (name := type(parsed).__name__) == "Paren" or name in _CHAINS:
            if name == "Paren":
                if type(parsed.this).__name__ != "Paren" and type(parsed.this).__name__ not in _CHAINS:
                    break
                parsed = parsed.this
            elif _CHAINS[name] == op:
                links.append(parsed.expression)
                parsed = parsed.this
            else:
                break
        links.append(parsed)
        args: list[Node] = []
        for link in reversed(links):
            arg = self.node(link, depth)
            args.extend(arg.args if arg.op == op else [arg])
        return _applied(op, args)

    def comparison(self, parsed: "Parsed", depth: int) -> Node:
        """Read a comparison or BETWEEN."""
        name = type(parsed).__name__
        if name == "Between":
            op, args = "BETWEEN", _in_order(self.children(parsed, depth, "this", "low", "high"))
        else:
            op, args = _COMPARISONS[name], self.children(parsed, depth, "this", "expression")
        return _compared(op, args)

    def membership(self, parsed: "Parsed", depth: int) -> Node:
        """Read IN; the order of its list does not matter."""
        if parsed.args.get("field"):
            raise InvalidQuery("IN takes a list of constants in parentheses: carrier IN ('UA', 'AA').")
        value, *listed = self.children(parsed, depth, "this", "expressions")
        if not listed:
            raise InvalidQuery("IN takes a list of constants in parentheses.")
        for item in listed:
            if not item.is_literal or item.value is None:
                raise InvalidQuery(f"IN takes a list of constants other than NULL; got {item}.")
        value, *listed = _shortest(unified("IN", [value, *listed]))
        if len({item.type.is_number if item.type else None for item in listed}) > 1:
            raise InvalidQuery("IN takes constants of one type.")
        distinct = {item.value: item for item in listed}
        ordered = tuple(distinct[key] for key in sorted(distinct))
        if len(ordered) == 1 and value.type is not Type.BOOL:
            return _compared("=", [value, *ordered])  # one question, however it is written
        return Node("IN", (value, *ordered), type=Type.BOOL, nullable=value.nullable)

    def like(self, parsed: "Parsed", depth: int) -> Node:
        """Read LIKE and ILIKE."""
        op = {"Like": "LIKE", "ILike": "ILIKE"}[type(parsed).__name__]
        value, pattern = self.children(parsed, depth, "this", "expression")
        if not pattern.is_literal or not isinstance(pattern.value, str):
            raise InvalidQuery(f"{op} takes a constant pattern; got {pattern}.")
        made = replace(_applied(op, [value]), value=pattern.value)
        if parsed.args.get("negate"):
            return _applied("NOT", [made])
        return made

    def is_(self, parsed: "Parsed", depth: int) -> Node:
        """Read IS NULL, IS TRUE and IS FALSE."""
        value, what = self.children(parsed, depth, "this", "expression")
        if not what.is_literal or not (what.value is None or isinstance(what.value, bool)):
            raise InvalidQuery(f"IS takes NULL, TRUE or FALSE; got {what}.")
        if what.value is not None and value.type is not None and value.type is not Type.BOOL:
            raise InvalidQuery(f"IS {what} takes a boolean; '{value}' is {with_article(value.type)}.")
        if value.type is None:
            raise InvalidQuery("IS takes a column or an expression on its left; got NULL.")
        return Node("IS", (value,), value=what.value, type=Type.BOOL)

    def case(self, parsed: "Parsed", depth: int) -> Node:
        """Read CASE."""
        subject = parsed.args.get("this")
        pairs = [(branch.this, branch.args["true"]) for branch in parsed.args["ifs"]]
        return self.choice(subject, pairs, parsed.args.get("default"), depth)

    def if_(self, parsed: "Parsed", depth: int) -> Node:
        """Read IF, which is a CASE of one branch."""
        return self.choice(None, [(parsed.this, parsed.args["true"])], parsed.args.get("false"), depth)

    def choice(
        self, subject: "Parsed | None", pairs: "list[tuple[Parsed, Parsed]]", default: "Parsed | None", depth: int
    ) -> Node:
        """Return the CASE of these branches."""
        whens: list[Node] = []
        thens: list[Node] = []
        for when, then in pairs:
            condition = self.node(when, depth)
            if subject is not None:
                condition = _compared("=", [self.node(subject, depth), condition])
            if condition.type is not None and condition.type is not Type.BOOL:
                raise InvalidQuery(f"CASE WHEN takes a boolean; '{condition}' is {with_article(condition.type)}.")
            whens.append(replace(condition, type=Type.BOOL))
            thens.append(self.node(then, depth))
        thens.append(Node("literal", nullable=True) if default is None else self.node(default, depth))
        *thens, last = unified("CASE", thens)
        type_ = common_type([*thens, last])
        args = [part for pair in zip(whens, thens, strict=True) for part in pair]
        nullable = last.nullable or any(then.nullable for then in thens)
        return Node("CASE", (*args, last), type=type_, nullable=nullable)

    def cast(self, parsed: "Parsed", depth: int) -> Node:
        """Read CAST; casting a constant to a date gives the date itself, and NULL stays the bare NULL.

        A NULL with a type would decide the type of what it is combined with, and its text would not say so.
        """
        (value,) = self.children(parsed, depth, "this")
        target = _cast_target(parsed)
        if value.is_literal and value.type in (Type.STRING, Type.DATE) and target in (Type.DATE, Type.DATETIME):
            return time_literal(value.value, target)
        if value.type is None:
            return value
        if target not in CASTS[value.type]:
            raise InvalidQuery(f"CAST cannot convert '{value}', which is {with_article(value.type)}, to {target}.")
        if value.type is target:
            return value
        may_fail = value.type is Type.STRING or (value.type is Type.FLOAT and target is Type.INT)
        return Node("CAST", (value,), value=target, type=target, nullable=value.nullable or may_fail)

    def add(self, parsed: "Parsed", depth: int) -> Node:
        """Read a chain of + and -, which sqlglot nests to the left, one level per term, as one list."""
        terms: list[tuple[str, Parsed]] = []
        while (inner := _unwrapped(parsed)) is not None:
            self.count()
            terms.append((_SIGNS[type(inner).__name__], inner.expression))
            parsed = inner.this
        total = self.node(parsed, depth)
        for sign, term in reversed(terms):
            total = _added(sign, total, self.node(term, depth))
        return total

    def extract(self, parsed: "Parsed", depth: int) -> Node:
        """Read EXTRACT and its short forms."""
        name = type(parsed).__name__
        if name == "Extract":
            part, (value,) = str(parsed.this.name).upper(), self.children(parsed, depth, "expression")
        else:
            part, (value,) = name.upper(), self.children(parsed, depth, "this")
        part = _PART_NAMES.get(part, part)
        return _part_of("EXTRACT", part, value, functions.EXTRACT_PARTS, f"EXTRACT({part})")

    def truncate(self, parsed: "Parsed", depth: int) -> Node:
        """Read DATE_TRUNC."""
        (value,) = self.children(parsed, depth, "this")
        part = str(parsed.args["unit"].name).upper()
        return _part_of("DATE_TRUNC", part, value, functions.TRUNCATE_PARTS, f"DATE_TRUNC('{part.lower()}')")

    def difference(self, parsed: "Parsed", depth: int) -> Node:
        """Read DATE_DIFF."""
        unit = parsed.args.get("unit")
        part = "" if unit is None else str(unit.name).upper()
        if part not in functions.DIFF_PARTS:
            known = ", ".join(sorted(functions.DIFF_PARTS))
            raise InvalidQuery(f"DATE_DIFF takes a part ({known}), a start and an end; got {part or 'no part'}.")
        start, end = unified("DATE_DIFF", self.children(parsed, depth, "expression", "this"))
        return replace(_applied("DATE_DIFF", [start, end]), value=part)

    def logarithm(self, parsed: "Parsed", depth: int) -> Node:
        """Read LOG, to base 10 unless it names one."""
        args = self.children(parsed, depth, "this", "expression")
        base = [] if len(args) == 2 else [Node("literal", value=10, type=Type.INT)]
        return _applied("LOG", [*base, *args])

    def trim(self, parsed: "Parsed", depth: int) -> Node:
        """Read TRIM, LTRIM and RTRIM."""
        op = {"LEADING": "LTRIM", "TRAILING": "RTRIM"}.get(str(parsed.args.get("position")), "TRIM")
        return _applied(op, self.children(parsed, depth, "this", "expression"))

    def round(self, parsed: "Parsed", depth: int) -> Node:
        """Read ROUND."""
        value, *digits = self.children(parsed, depth, "this", "decimals")
        if digits and not (digits[0].is_literal and digits[0].value in range(16) and digits[0].type is Type.INT):
            raise InvalidQuery(f"ROUND takes 0 to 15 decimals, as a constant; got {digits[0]}.")
        made = _applied("ROUND", [value])
        return replace(made, args=(value, *digits)) if digits and digits[0].value else made


def _unwrapped(parsed: "Parsed") -> "Parsed | None":
    """Return this node without its parentheses if it is a + or a -, else None."""
    while type(parsed).__name__ == "Paren":
        parsed = parsed.this
    return parsed if type(parsed).__name__ in _SIGNS else None


def _added(sign: str, left: Node, right: Node) -> Node:
    """Return left + right or left - right, which also shift and subtract dates; more than two numbers are one sum."""
    if Type.DATE in (left.type, right.type):
        if sign == "-" and right.type in (Type.DATE, Type.STRING):
            start, end = unified(sign, [right, left])
            return replace(_applied("DATE_DIFF", [start, end]), value="DAY")
        if sign == "+" and right.type is Type.DATE:
            left, right = right, left
        return _applied({"+": "DATE_ADD", "-": "DATE_SUB"}[sign], [left, right])
    if sign == "-" and Type.DATETIME in (left.type, right.type):
        raise InvalidQuery("- takes numbers or dates; for timestamps use DATE_DIFF('second', start, end).")
    two = _applied(sign, [left, right])
    if left.op not in (*_SIGNS.values(), SUM):
        return two
    return Node(SUM, (*left.args, two.args[1]), (left.value or left.op) + sign, two.type, two.nullable)


def _part_of(op: str, part: str, value: Node, known: frozenset[str], called: str) -> Node:
    """Return the checked node of an operation on a part of a date or a timestamp; `called` is how it is written."""
    if part not in known:
        raise InvalidQuery(f"{op} supports {', '.join(sorted(known))}; got {part}.")
    if part in functions.CLOCK_PARTS and value.type is Type.DATE:
        raise InvalidQuery(f"{called} takes a timestamp; '{value}' is a date.")
    return replace(_applied(op, [value]), value=part)


def _applied(op: str, args: list[Node]) -> Node:
    """Return the checked node of an operation."""
    node = OPERATIONS[op].apply(op, args)
    check_constants(node)
    if node.type in (None, Type.BOOL) and op in ("GREATEST", "LEAST"):
        raise InvalidQuery(f"{op} takes numbers, text, dates or timestamps; '{node}' compares booleans.")
    return node


def _compared(op: str, args: list[Node]) -> Node:
    """Return a checked comparison."""
    for arg in args:
        if arg.is_literal and arg.value is None:
            raise InvalidQuery(f"{op} NULL is never true; write IS NULL or IS NOT NULL.")
    args = _shortest(unified(op, args))
    if op in _FROM_THE_RIGHT and args[0].is_literal and not args[1].is_literal:  # 15 < x is the question x > 15
        op, args = _FROM_THE_RIGHT[op], args[::-1]
    if args[0].type is Type.BOOL:
        if op not in ("=", "<>"):
            raise InvalidQuery(f"{op} compares numbers, text or dates; '{args[0]}' is a boolean.")
        if args[1].is_literal and not args[0].is_literal:  # late = TRUE is the question late
            return args[0] if args[1].value == (op == "=") else _applied("NOT", args[:1])
    return _applied(op, args)


def _in_order(args: list[Node]) -> list[Node]:
    """Refuse a BETWEEN whose ends are constants in the wrong order: it is never true."""
    value, low, high = unified("BETWEEN", args)
    if low.is_literal and high.is_literal and None not in (low.value, high.value) and low.value > high.value:
        raise InvalidQuery(
            f"BETWEEN {low} AND {high} is never true; write {value} BETWEEN {high} AND {low}, or {value} >= {low} OR"
            f" {value} <= {high}."
        )
    return args


def _shortest(args: list[Node]) -> list[Node]:
    """Write 15.0 as 15 where only the number matters, so that both are the same question."""
    return [
        Node("literal", value=int(arg.value), type=Type.INT)
        if arg.is_literal and isinstance(arg.value, float) and _is_short(arg.value)
        else arg
        for arg in args
    ]


def _is_short(value: float) -> bool:
    return value.is_integer() and abs(value) < 2**53


def compared_number(text: str) -> int | float:
    """Return a number that a column is compared with."""
    value = _number_of(text)
    return int(value) if isinstance(value, float) and _is_short(value) else value


def _number(text: str) -> Node:
    value = _number_of(text)
    return Node("literal", value=value, type=Type.INT if isinstance(value, int) else Type.FLOAT)


def _number_of(text: str) -> int | float:
    try:
        if "." not in text:  # looking for a dot is faster than failing
            whole = int(text)
            if -(2**63) <= whole < 2**63:
                return whole
    except ValueError:
        pass
    try:
        value = float(text)
    except ValueError:  # the parser calls 1e a number
        raise InvalidQuery(f"{text[:20]!r} is not a complete number.") from None
    if isinf(value):
        raise InvalidQuery(f"Numbers must be below 1.8e308; got {text[:20]}.")
    return value + 0.0  # -0.0 and 0.0 are one number


def _cast_target(parsed: "Parsed") -> Type:
    name = str(parsed.args["to"].this.value).upper()
    target = {"TIMESTAMPNTZ": Type.DATETIME, **TYPES}.get(name)
    if target is None or parsed.args["to"].args.get("expressions") or parsed.args["to"].args.get("nested"):
        raise InvalidQuery(f"CAST supports {', '.join(sorted(TYPES))}; got {parsed.args['to']}.")
    return target


def _spelled(name: str) -> str:
    """Spell a parser's class name as people write it: CurrentDate is CURRENT_DATE."""
    return "".join("_" + letter if letter.isupper() and place else letter for place, letter in enumerate(name)).upper()


Read = Callable[[Translator, "Parsed", int], Node]


@dataclass(frozen=True)
class Production:
    """How one parsed node is translated; anything it holds beyond `parts` is refused."""

    read: Read
    parts: frozenset[str]


def _by(read: Read, *parts: str) -> Production:
    return Production(read, frozenset(parts))


def _operation(op: str, *parts: str) -> Production:
    """Translate a node that is an operation on its parts and nothing else."""

    def read(translator: Translator, parsed: "Parsed", depth: int) -> Node:
        return _applied(op, translator.children(parsed, depth, *parts))

    return _by(read, *parts, "safe", "coalesce", "ignore_nulls", "typed")


_ONE_ARGUMENT = (
    "Abs", "Sign", "Floor", "Ceil", "Sqrt", "Cbrt", "Exp", "Ln", "Sin", "Cos", "Tan", "Asin", "Acos",
    "Atan", "Tanh", "Degrees", "Radians", "Length", "Lower", "Upper",
)  # fmt: skip
_DATE_PARTS = (
    "Year", "Quarter", "Month", "Week", "Day", "Hour", "Minute", "Second", "DayOfWeek", "DayOfWeekIso",
    "DayOfYear", "DayOfMonth", "WeekOfYear",
)  # fmt: skip
_GRAMMAR: dict[str, Production] = {
    "Column": _by(Translator.column, "this"),
    "Literal": _by(Translator.literal, "this", "is_string"),
    "Boolean": _by(lambda _, parsed, __: Node("literal", value=bool(parsed.this), type=Type.BOOL), "this"),
    "Null": _by(lambda _, __, ___: Node("literal", nullable=True)),
    "Paren": _by(lambda translator, parsed, depth: translator.node(parsed.this, depth), "this"),
    "Neg": _by(Translator.negative, "this"),
    **{name: _by(Translator.chain, "this", "expression", "safe") for name in ("And", "Or", "DPipe")},
    "Not": _operation("NOT", "this"),
    **{name: _by(Translator.comparison, "this", "expression") for name in _COMPARISONS},
    "Between": _by(Translator.comparison, "this", "low", "high"),
    "In": _by(Translator.membership, "this", "expressions", "field"),
    "Like": _by(Translator.like, "this", "expression", "negate"),
    "ILike": _by(Translator.like, "this", "expression", "negate"),
    "Is": _by(Translator.is_, "this", "expression"),
    "Case": _by(Translator.case, "this", "ifs", "default"),
    "If": _by(Translator.if_, "this", "true", "false"),
    "Cast": _by(Translator.cast, "this", "to"),
    "TryCast": _by(Translator.cast, "this", "to", "safe"),
    "Add": _by(Translator.add, "this", "expression"),
    "Sub": _by(Translator.add, "this", "expression"),
    "Mul": _operation("*", "this", "expression"),
    "Div": _operation("/", "this", "expression"),
    "Mod": _operation("%", "this", "expression"),
    "Pow": _operation("POWER", "this", "expression"),
    "Atan2": _operation("ATAN2", "this", "expression"),
    "Log": _by(Translator.logarithm, "this", "expression"),
    "Round": _by(Translator.round, "this", "decimals"),
    "Trim": _by(Translator.trim, "this", "expression", "position"),
    **{name: _operation(name.upper(), "this") for name in _ONE_ARGUMENT},
    "Coalesce": _operation("COALESCE", "this", "expressions"),
    "Greatest": _operation("GREATEST", "this", "expressions"),
    "Least": _operation("LEAST", "this", "expressions"),
    "Nullif": _operation("NULLIF", "this", "expression"),
    "Substring": _operation("SUBSTRING", "this", "start", "length"),
    "Left": _operation("LEFT", "this", "expression"),
    "Right": _operation("RIGHT", "this", "expression"),
    "Concat": _operation("CONCAT", "expressions"),
    "Replace": _operation("REPLACE", "this", "expression", "replacement"),
    "StartsWith": _operation("STARTS_WITH", "this", "expression"),
    "EndsWith": _operation("ENDS_WITH", "this", "expression"),
    "Contains": _operation("CONTAINS", "this", "expression"),
    "StrPosition": _operation("STRPOS", "this", "substr"),
    "Extract": _by(Translator.extract, "this", "expression"),
    **{name: _by(Translator.extract, "this") for name in _DATE_PARTS},
    "TimestampTrunc": _by(Translator.truncate, "this", "unit"),
    "DateTrunc": _by(Translator.truncate, "this", "unit"),
    "DateDiff": _by(Translator.difference, "this", "expression", "unit", "date_part_boundary"),
}
