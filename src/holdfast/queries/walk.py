"""One walk over a parsed text: each node becomes a checked step, its type settled from the schema."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from holdfast.errors import InvalidQuery
from holdfast.queries.functions import logic, texts, times
from holdfast.queries.functions.rule import apply, common_type, time_literal, unified
from holdfast.queries.functions.table import RULES
from holdfast.queries.node import Node
from holdfast.queries.words import TYPES, refused_function
from holdfast.schema import Schema, Type

MOST_NODES = 500
DEEPEST = 60
COMPARISON = {"EQ": "=", "NEQ": "<>", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">="}
_PART_NAMES = {
    "DAYOFWEEK": "DOW", "DAYOFWEEKISO": "ISODOW", "DAYOFYEAR": "DOY", "DAYOFMONTH": "DAY", "WEEKOFYEAR": "WEEK",
}  # fmt: skip


def too_deep() -> InvalidQuery:
    """Word the refusal of a text that nests too deeply."""
    return InvalidQuery(f"A query must not nest more than {DEEPEST} levels deep.")


@dataclass(frozen=True)
class Reading:
    """How one kind of parsed node is read; anything it says beyond `parts` is refused."""

    how: "Callable[[Walk, Any, int], Node]"
    parts: frozenset[str]


class Walk:
    """One walk over one parsed text."""

    def __init__(self, schema: Schema, grammar: Mapping[str, Reading], numbers: Mapping[str, str]) -> None:
        self.schema = schema
        self.grammar = grammar
        self.numbers = numbers  # what stands for another number
        self.nodes = 0

    def node(self, parsed: Any, depth: int) -> Node:
        """Return the checked step of any parsed node, or refuse it."""
        self.nodes += 1
        if self.nodes > MOST_NODES:
            raise InvalidQuery(f"A query must have at most {MOST_NODES} parts; this one has more.")
        if depth > DEEPEST:
            raise too_deep()
        kind = type(parsed).__name__
        reading = self.grammar.get(kind)
        if reading is None:
            if kind == "Anonymous":
                raise refused_function(str(parsed.name))
            raise InvalidQuery(f"{_spelled(kind)} may not be used in a query.")
        extra = {key for key, value in parsed.args.items() if value} - reading.parts
        if extra:
            raise InvalidQuery(f"{_spelled(kind)} may not be used with {_spelled(min(extra))}.")
        return reading.how(self, parsed, depth + 1)

    def children(self, parsed: Any, depth: int, *names: str) -> list[Node]:
        """Return the checked steps of some parts of a node, in order."""
        found: list[Node] = []
        for name in names:
            part = parsed.args.get(name)
            for one in part if isinstance(part, list) else [part] if part is not None else []:
                found.append(self.node(one, depth))
        return found

    def column(self, parsed: Any, _: int) -> Node:
        """Read a column."""
        column = self.schema[parsed.name]
        return Node("column", value=column.name, type=column.type, nullable=column.nullable)

    def literal(self, parsed: Any, _: int) -> Node:
        """Read a number or a text."""
        if parsed.is_string:
            return Node("literal", value=parsed.this, type=Type.STRING)
        return _number(self.numbers.get(parsed.this, parsed.this))

    def negative(self, parsed: Any, depth: int) -> Node:
        """Read a minus sign; before a number it belongs to the number."""
        inner = parsed.this
        while type(inner).__name__ == "Paren":
            inner = inner.this
        if type(inner).__name__ == "Literal" and not inner.is_string:
            self.node(inner, depth)
            return _number("-" + self.numbers.get(inner.this, inner.this))
        value = self.node(inner, depth)
        if value.is_literal and value.type in (Type.INT, Type.FLOAT):  # -(-(5)) is 5: a number has one text
            return _number(repr(-value.value))
        return apply("NEG", RULES["NEG"], [value])

    def flat(self, parsed: Any, depth: int) -> Node:
        """AND, OR and || chains lean to the left, one level per link: read them as one list."""
        op = {"And": "AND", "Or": "OR", "DPipe": "||"}[type(parsed).__name__]
        links: list[Any] = []
        while type(parsed).__name__ in ("Paren", "And", "Or", "DPipe"):
            if type(parsed).__name__ == "Paren":
                if type(parsed.this).__name__ not in ("Paren", "And", "Or", "DPipe"):
                    break
                parsed = parsed.this
            elif {"And": "AND", "Or": "OR", "DPipe": "||"}[type(parsed).__name__] == op:
                links.append(parsed.expression)
                parsed = parsed.this
            else:
                break
        links.append(parsed)
        args: list[Node] = []
        for link in reversed(links):
            arg = self.node(link, depth)
            args.extend(arg.args if arg.op == op else [arg])
        return self.checked(op, args)

    def comparison(self, parsed: Any, depth: int) -> Node:
        """Read a comparison or BETWEEN."""
        kind = type(parsed).__name__
        if kind == "Between":
            op, args = "BETWEEN", self.children(parsed, depth, "this", "low", "high")
        else:
            op, args = COMPARISON[kind], self.children(parsed, depth, "this", "expression")
        return compared(op, args)

    def membership(self, parsed: Any, depth: int) -> Node:
        """Read IN; the order of its list does not matter."""
        value, *listed = self.children(parsed, depth, "this", "expressions")
        if not listed:
            raise InvalidQuery("IN takes a list of constants in brackets.")
        for item in listed:
            if not item.is_literal or item.value is None:
                raise InvalidQuery(f"IN takes a list of constants other than NULL; got {item}.")
        value, *listed = _simplest(unified("IN", [value, *listed]))
        if len({item.type.is_number if item.type else None for item in listed}) > 1:
            raise InvalidQuery("IN takes constants of one type.")
        distinct = {item.value: item for item in listed}
        ordered = tuple(distinct[key] for key in sorted(distinct))
        return Node("IN", (value, *ordered), type=Type.BOOL, nullable=value.nullable)

    def like(self, parsed: Any, depth: int) -> Node:
        """Read LIKE and ILIKE."""
        op = {"Like": "LIKE", "ILike": "ILIKE"}[type(parsed).__name__]
        value, pattern = self.children(parsed, depth, "this", "expression")
        if not pattern.is_literal or not isinstance(pattern.value, str):
            raise InvalidQuery(f"{op} takes a constant pattern; got {pattern}.")
        made = replace(apply(op, RULES[op], [value]), value=pattern.value)
        if parsed.args.get("negate"):
            return self.checked("NOT", [made])
        return made

    def test(self, parsed: Any, depth: int) -> Node:
        """Read IS NULL, IS TRUE and IS FALSE."""
        value, what = self.children(parsed, depth, "this", "expression")
        if not what.is_literal or not (what.value is None or isinstance(what.value, bool)):
            raise InvalidQuery(f"IS takes NULL, TRUE or FALSE; got {what}.")
        if what.value is not None and value.type not in (Type.BOOL, None):
            raise InvalidQuery(f"IS {what} takes a boolean; '{value}' is not.")
        if value.type is None:
            raise InvalidQuery("NULL IS ... says nothing about a row.")
        return Node("IS", (value,), value=what.value, type=Type.BOOL)

    def case(self, parsed: Any, depth: int) -> Node:
        """Read CASE."""
        subject = parsed.args.get("this")
        pairs = [(branch.this, branch.args["true"]) for branch in parsed.args["ifs"]]
        return self.choice(subject, pairs, parsed.args.get("default"), depth)

    def if_(self, parsed: Any, depth: int) -> Node:
        """Read IF, which is a CASE of one branch."""
        return self.choice(None, [(parsed.this, parsed.args["true"])], parsed.args.get("false"), depth)

    def choice(self, subject: Any, pairs: list[tuple[Any, Any]], default: Any, depth: int) -> Node:
        """Return the CASE of these branches."""
        whens: list[Node] = []
        thens: list[Node] = []
        for when, then in pairs:
            condition = self.node(when, depth)
            if subject is not None:
                condition = compared("=", [self.node(subject, depth), condition])
            if condition.type not in (Type.BOOL, None):
                raise InvalidQuery(f"CASE WHEN takes a boolean; '{condition}' is not.")
            whens.append(replace(condition, type=Type.BOOL))
            thens.append(self.node(then, depth))
        thens.append(Node("literal", nullable=True) if default is None else self.node(default, depth))
        *thens, last = unified("CASE", thens)
        type_ = common_type([*thens, last])
        args = [part for pair in zip(whens, thens, strict=True) for part in pair]
        nullable = last.nullable or any(then.nullable for then in thens)
        return Node("CASE", (*args, last), type=type_, nullable=nullable)

    def cast(self, parsed: Any, depth: int) -> Node:
        """Read CAST; of a constant date it is the date itself."""
        (value,) = self.children(parsed, depth, "this")
        target = _cast_target(parsed)
        if value.is_literal and value.type in (Type.STRING, Type.DATE) and target in (Type.DATE, Type.DATETIME):
            return time_literal(value.value, target)
        if value.type is None:
            return replace(value, type=target)
        if target not in logic.CASTS[value.type]:
            raise InvalidQuery(f"CAST cannot make a {target} of '{value}', which is {value.type}.")
        if value.type is target:
            return value
        may_fail = value.type is Type.STRING or (value.type is Type.FLOAT and target is Type.INT)
        return Node("CAST", (value,), value=target, type=target, nullable=value.nullable or may_fail)

    def add(self, parsed: Any, depth: int) -> Node:
        """Read + and -, which also move and compare dates."""
        op = {"Add": "+", "Sub": "-"}[type(parsed).__name__]
        left, right = self.children(parsed, depth, "this", "expression")
        if Type.DATE in (left.type, right.type):
            if op == "-" and right.type in (Type.DATE, Type.STRING):
                start, end = unified(op, [right, left])
                return replace(apply("DATE_DIFF", RULES["DATE_DIFF"], [start, end]), value="DAY")
            if op == "+" and right.type is Type.DATE:
                left, right = right, left
            made = {"+": "DATE_ADD", "-": "DATE_SUB"}[op]
            return apply(made, RULES[made], [left, right])
        if op == "-" and Type.DATETIME in (left.type, right.type):
            raise InvalidQuery("- takes numbers or dates; for timestamps use DATE_DIFF('second', start, end).")
        return apply(op, RULES[op], [left, right])

    def extract(self, parsed: Any, depth: int) -> Node:
        """Read EXTRACT and its short forms."""
        kind = type(parsed).__name__
        if kind == "Extract":
            part, (value,) = str(parsed.this.name).upper(), self.children(parsed, depth, "expression")
        else:
            part, (value,) = kind.upper(), self.children(parsed, depth, "this")
        part = _PART_NAMES.get(part, part)
        if part not in times.EXTRACT_PARTS:
            raise InvalidQuery(f"EXTRACT knows {', '.join(sorted(times.EXTRACT_PARTS))}; got {part}.")
        if part in times.CLOCK_PARTS and value.type is Type.DATE:
            raise InvalidQuery(f"EXTRACT({part}) takes a timestamp; '{value}' is a date.")
        return replace(apply("EXTRACT", RULES["EXTRACT"], [value]), value=part)

    def truncate(self, parsed: Any, depth: int) -> Node:
        """Read DATE_TRUNC."""
        (value,) = self.children(parsed, depth, "this")
        part = str(parsed.args["unit"].name).upper()
        if part not in times.TRUNCATE_PARTS:
            raise InvalidQuery(f"DATE_TRUNC knows {', '.join(sorted(times.TRUNCATE_PARTS))}; got {part}.")
        if part in times.CLOCK_PARTS and value.type is Type.DATE:
            raise InvalidQuery(f"DATE_TRUNC('{part.lower()}') takes a timestamp; '{value}' is a date.")
        return replace(apply("DATE_TRUNC", RULES["DATE_TRUNC"], [value]), value=part)

    def difference(self, parsed: Any, depth: int) -> Node:
        """Read DATE_DIFF."""
        unit = parsed.args.get("unit")
        part = "" if unit is None else str(unit.name).upper()
        if part not in times.DIFF_PARTS:
            known = ", ".join(sorted(times.DIFF_PARTS))
            raise InvalidQuery(f"DATE_DIFF takes a part ({known}), a start and an end; got {part or 'no part'}.")
        start, end = unified("DATE_DIFF", self.children(parsed, depth, "expression", "this"))
        return replace(apply("DATE_DIFF", RULES["DATE_DIFF"], [start, end]), value=part)

    def logarithm(self, parsed: Any, depth: int) -> Node:
        """Read LOG, to base 10 unless it names one."""
        args = self.children(parsed, depth, "this", "expression")
        base = [] if len(args) == 2 else [Node("literal", value=10, type=Type.INT)]
        return apply("LOG", RULES["LOG"], [*base, *args])

    def trim(self, parsed: Any, depth: int) -> Node:
        """Read TRIM, LTRIM and RTRIM."""
        op = {"LEADING": "LTRIM", "TRAILING": "RTRIM"}.get(str(parsed.args.get("position")), "TRIM")
        return self.checked(op, self.children(parsed, depth, "this", "expression"))

    def round(self, parsed: Any, depth: int) -> Node:
        """Read ROUND."""
        value, *digits = self.children(parsed, depth, "this", "decimals")
        if digits and not (digits[0].is_literal and digits[0].value in range(16) and digits[0].type is Type.INT):
            raise InvalidQuery(f"ROUND takes 0 to 15 decimals, as a constant; got {digits[0]}.")
        made = apply("ROUND", RULES["ROUND"], [value])
        return replace(made, args=(value, *digits)) if digits and digits[0].value else made

    def checked(self, op: str, args: list[Node]) -> Node:
        """Return the checked step of an operation that needs no reading of its own."""
        made = apply(op, RULES[op], args)
        texts.check_constants(made)
        if made.type in (None, Type.BOOL) and op in ("GREATEST", "LEAST"):
            raise InvalidQuery(f"{op} takes numbers, text, dates or timestamps; '{made}' compares booleans.")
        return made


def compared(op: str, args: list[Node]) -> Node:
    """Return a checked comparison."""
    for arg in args:
        if arg.is_literal and arg.value is None:
            raise InvalidQuery(f"{op} NULL is never true; write IS NULL or IS NOT NULL.")
    args = _simplest(unified(op, args))
    if op not in ("=", "<>") and args[0].type is Type.BOOL:
        raise InvalidQuery(f"{op} compares numbers, text or dates; '{args[0]}' is a boolean.")
    return apply(op, RULES[op], args)


def _simplest(args: list[Node]) -> list[Node]:
    """Write 15.0 as 15 where only the number matters, so that both are the same question."""
    return [
        Node("literal", value=int(arg.value), type=Type.INT)
        if arg.is_literal and isinstance(arg.value, float) and arg.value.is_integer() and abs(arg.value) < 2**53
        else arg
        for arg in args
    ]


def _number(text: str) -> Node:
    try:
        whole = int(text)
    except ValueError:
        value = _fraction(text)
    else:
        if -(2**63) <= whole < 2**63:
            return Node("literal", value=whole, type=Type.INT)
        value = float(whole) if abs(whole) < 10**308 else float("inf")
    if value in (float("inf"), float("-inf")):
        raise InvalidQuery(f"Numbers must be below 1.8e308; got {text[:20]}.")
    return Node("literal", value=value + 0.0, type=Type.FLOAT)


def _fraction(text: str) -> float:
    try:
        return float(text)
    except ValueError:  # the parser calls 1e a number
        raise InvalidQuery(f"A number must be complete; got {text[:20]}.") from None


def _cast_target(parsed: Any) -> Type:
    name = str(parsed.args["to"].this.value).upper()
    target = {"TIMESTAMPNTZ": Type.DATETIME, **TYPES}.get(name)
    if target is None or parsed.args["to"].args.get("expressions") or parsed.args["to"].args.get("nested"):
        raise InvalidQuery(f"CAST knows {', '.join(sorted(TYPES))}; got {parsed.args['to']}.")
    return target


def _spelled(kind: str) -> str:
    """Spell a parser's class name as people write it: CurrentDate is CURRENT_DATE."""
    return "".join("_" + letter if letter.isupper() and place else letter for place, letter in enumerate(kind)).upper()
