"""The options of questions: how each is written in JSON, on a command line and in a form.

A kind of question is one Python signature. Every parameter is annotated with what it means and with its form, which
knows how the value is read from text; the command line, the page, the HTTP schema and the tools of agents are made
from that.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from inspect import Parameter, signature
from typing import Annotated, Any, get_type_hints

from holdfast.errors import InvalidArgument
from holdfast.optimize.formulas import read_loss, write_loss
from holdfast.optimize.losses import LinearLoss, Loss
from holdfast.queries.build import QueryLike
from holdfast.schema import Category

DEFAULT_KIND = "mean"  # the kind of a question that names none


class Form:
    """How a value is written: as text, unless a subclass says otherwise."""

    example: str = ""

    def parse(self, name: str, text: str) -> Any:
        """Read the value from what a person typed; InvalidArgument says what was expected."""
        return text

    def argument(self, name: str, text: str) -> Any:
        """Read the value from a command line, where a text may also name a file."""
        return self.parse(name, text)

    def from_json(self, value: Any) -> Any:
        """Read the value from JSON."""
        return value

    def to_json(self, name: str, value: Any) -> Any:
        """Write the value as JSON; refuse what cannot be sent (code)."""
        return plain(value)


@dataclass(frozen=True)
class Text(Form):
    """One text: an expression about one row. Functions and Polars expressions cannot be sent to a server."""

    example: str = "dep_delay > 15"

    def to_json(self, name: str, value: Any) -> str:
        """Only text can be sent."""
        if not isinstance(value, str):
            raise InvalidArgument(
                f"{name} must be text when a server is asked; got {type(value).__name__}. Expressions and functions"
                " work with a Session on the data itself.",
                name=name,
            )
        return value


@dataclass(frozen=True)
class ShortText(Form):
    """A short text in one line."""

    example: str = "baseline"


@dataclass(frozen=True)
class Choice(Form):
    """One of several words; the kind checks which."""

    words: tuple[str, ...]

    @property
    def example(self) -> str:  # type: ignore[override]
        """The words."""
        return "|".join(self.words)


@dataclass(frozen=True)
class Whole(Form):
    """A whole number."""

    least: int = 1
    example: str = "1000"

    def parse(self, name: str, text: str) -> int:
        """Thousands may be grouped: 10,000 or 10_000; or 1e6."""
        digits = text.replace(",", "").replace("_", "")
        try:
            return int(Decimal(digits)) if Decimal(digits) % 1 == 0 else int(digits)
        except (ArithmeticError, ValueError):
            raise InvalidArgument(f"{name} must be a whole number; got {text!r}.", name=name) from None


@dataclass(frozen=True)
class Real(Form):
    """A number, between `least` and `most` where given."""

    least: float | None = None
    most: float | None = None
    example: str = "0.5"

    def parse(self, name: str, text: str) -> float:
        """A number."""
        try:
            return float(text)
        except ValueError:
            raise InvalidArgument(f"{name} must be a number; got {text!r}.", name=name) from None


@dataclass(frozen=True)
class RealOrWord(Real):
    """A number, or a word that asks to find it."""

    word: str = "auto"

    def parse(self, name: str, text: str) -> float | str:  # type: ignore[override]
        """The word, or a number."""
        return self.word if text.strip() == self.word else super().parse(name, text)


@dataclass(frozen=True)
class Reals(Form):
    """Several numbers; `count` of them, if it matters."""

    count: int | None = None
    example: str = "0, 10, 100"

    def parse(self, name: str, text: str) -> tuple[float, ...] | list[float]:
        """Numbers with commas or "to" between them."""
        words = [word for word in text.replace(" to ", ",").split(",") if word.strip()]
        if self.count is not None and len(words) != self.count:
            raise InvalidArgument(
                f"{name} must be {self.count} numbers, such as {self.example}; got {text!r}.", name=name
            )
        values = [Real().parse(name, word.strip()) for word in words]
        return values if self.count is None else tuple(values)

    def from_json(self, value: Any) -> Any:
        """Pairs are tuples."""
        return tuple(value) if self.count is not None and isinstance(value, list) else value


@dataclass(frozen=True)
class RealsOrWord(Reals):
    """Several numbers, or a word instead of them."""

    words: tuple[str, ...] = ("auto",)

    def parse(self, name: str, text: str) -> Any:
        """One of the words, or numbers."""
        return text.strip() if text.strip() in self.words else super().parse(name, text)


@dataclass(frozen=True)
class Edges(Reals):
    """Where parts of a range begin and end, or how many equal parts there are."""

    def parse(self, name: str, text: str) -> Any:
        """One whole number, or several numbers."""
        return int(text) if text.strip().isdecimal() else super().parse(name, text)


@dataclass(frozen=True)
class Categories(Form):
    """Several values of a column."""

    example: str = "UA, AA, DL"

    def parse(self, name: str, text: str) -> list[Category]:
        """A JSON list, or words with commas between them: numbers, true and false, else text."""
        if text.lstrip().startswith("["):
            return _json_list(name, text, "a JSON list or words")
        return [_value(word.strip()) for word in text.split(",")]


@dataclass(frozen=True)
class Expressions(Text):
    """One expression about one row, or a list of them."""

    def parse(self, name: str, text: str) -> Any:
        """A JSON list, one expression, or several with commas between them."""
        if text.lstrip().startswith("["):
            return _json_list(name, text, "a JSON list of texts")
        several = _between_commas(text)
        return several if len(several) > 1 else text

    def to_json(self, name: str, value: Any) -> Any:
        """Only text can be sent."""
        if isinstance(value, list | tuple):
            return [super(Expressions, self).to_json(name, one) for one in value]
        return super().to_json(name, value)


@dataclass(frozen=True)
class GroupsForm(Categories):
    """Several values of one expression, or of several: lists of values, or an object with a list for each."""

    def parse(self, name: str, text: str) -> Any:
        """A JSON list or object, or words with commas between them; of several expressions: `EWR, UA; JFK, B6`."""
        if ";" in text and not text.lstrip().startswith(("{", "[")):
            return [super(GroupsForm, self).parse(name, group) for group in text.split(";") if group.strip()]
        if not text.lstrip().startswith("{"):
            return super().parse(name, text)
        try:
            return dict(json.loads(text))
        except ValueError:
            raise InvalidArgument(f"{name} must be a JSON list or object, or words; got {text!r}.", name=name) from None


@dataclass(frozen=True)
class BoxForm(Form):
    """One pair for every coordinate, or a list with a pair for each."""

    example: str = "-1, 1"

    def parse(self, name: str, text: str) -> Any:
        """One pair, or a JSON list of pairs."""
        if text.lstrip().startswith("["):
            return self.from_json(_json_list(name, text, "a JSON list of pairs"))
        return Reals(2, self.example).parse(name, text)

    def from_json(self, value: Any) -> Any:
        """One pair is a tuple; a list has one for each coordinate."""
        if isinstance(value, list) and value and not isinstance(value[0], list):
            return tuple(value)
        return value


@dataclass(frozen=True)
class LossForm(Form):
    """A built-in loss, as an object of its settings or as a formula."""

    example: str = "logistic: late ~ distance [0, 5000] + month [1, 12]"

    def parse(self, name: str, text: str) -> LinearLoss:
        """A JSON object, or a formula."""
        return read_loss(text)

    def from_json(self, value: Any) -> Any:
        """An object of settings, or a formula."""
        return read_loss(value) if isinstance(value, str | Mapping) else value

    def to_json(self, name: str, value: Any) -> Any:
        """Only built-in losses can be sent."""
        return value if isinstance(value, str) else plain(write_loss(value))


@dataclass(frozen=True)
class QuestionList(Form):
    """Several questions: texts, or objects with their kind and options."""

    example: str = "dep_delay > 15"

    def parse(self, name: str, text: str) -> list[Any]:
        """A JSON list, or a question on each line."""
        if text.lstrip().startswith("["):
            return _json_list(name, text, "a JSON list of questions")
        return [line.strip() for line in text.splitlines() if line.strip()]

    def to_json(self, name: str, value: Any) -> Any:
        """Write each question as its kind does; what is not a list is sent unchanged, for the server to refuse."""
        from holdfast.questions import kind_named

        if isinstance(value, str | Mapping) or not isinstance(value, Sequence):
            return plain(value)
        sent = []
        for one in value:
            values = dict(one) if isinstance(one, Mapping) else {}
            kind = kind_named(values.pop("kind", DEFAULT_KIND)) if values else None
            sent.append(plain(one) if kind is None else kind.to_json(values))
        return sent


@dataclass(frozen=True)
class About:
    """The annotation of a parameter: its form, and its meaning in one line."""

    form: Form
    help: str


@dataclass(frozen=True)
class Option:
    """One parameter of a kind of question."""

    name: str
    form: Form
    help: str
    default: Any
    required: bool


Query = Annotated[QueryLike, About(Text(), "A condition or a number about one row, in SQL.")]
Value = Annotated[Query, About(Text("carrier"), "A value of one row, such as a column.")]
Where = Annotated[QueryLike | None, About(Text("carrier = 'UA'"), "Only rows for which this is true count.")]
Other = Annotated[QueryLike, About(Text("distance > 1000"), "The second condition or number about one row, in SQL.")]
Within = Annotated[
    tuple[float, float] | None,
    About(
        Reals(2, "0, 100"),
        "The range of a number, low and high; left out, the one declared with the data. Values outside are clipped.",
    ),
]
By = Annotated[
    QueryLike | Sequence[QueryLike] | None,
    About(Expressions("carrier"), "One answer for each value of this, or of several together: a list."),
]
RowsPerQuery = Annotated[
    int | None, About(Whole(), "Rows this one answer reads; more make it narrower and cost more answers.")
]
Margin = Annotated[
    float | None, About(Real(0.0, None, "0.01"), "The margin this one answer should have, in its own units.")
]
Until = Annotated[
    float | None,
    About(Real(0.0, None, "0.01"), "Look again, with twice the draws each time, until the margin is this small."),
]
Slices = Annotated[
    Sequence[float] | str | None,
    About(
        RealsOrWord(None, "0, 60, 240", ("auto", "none")),
        "Where to cut the range of a number, for a narrower mean at the same price; auto finds where, none makes no"
        " cut.",
    ),
]
RowsPerUnit = Annotated[
    int | None,
    About(Whole(1, "50"), "For data with units: the most rows of one; then every row counts equally, not every unit."),
]
Weight = Annotated[QueryLike | None, About(Text("survey_weight"), "A number per row: how much it counts.")]
LargestWeight = Annotated[float | None, About(Real(0.0, None, "8"), "The largest weight; larger ones count as this.")]
ByMechanism = Annotated[
    str | None,
    About(Choice(("coins", "gaussian")), "How this one answer is made; gaussian reads all rows once and adds noise."),
]
Population = Annotated[
    int | None, About(Whole(1, "1000000"), "The size of the population; left out, the number of rows.")
]
LossLike = Annotated[Loss | LinearLoss | str, About(LossForm(), "The loss to minimize.")]


def options_of(build: Callable[..., object]) -> tuple[Option, ...]:
    """Read the options off a signature; the first parameter, the context, is not an option."""
    hints = get_type_hints(build, include_extras=True)
    found = []
    for parameter in list(signature(build).parameters.values())[1:]:
        hint = hints[parameter.name]
        # The last one is what this kind says of an option that others have, too.
        about = next((x for x in reversed(getattr(hint, "__metadata__", ())) if isinstance(x, About)), None)
        if about is None:
            raise TypeError(f"Parameter {parameter.name!r} of {build.__name__} must be Annotated with its form.")
        required = parameter.default is Parameter.empty
        default = None if required else parameter.default
        found.append(Option(parameter.name, about.form, about.help, default, required))
    return tuple(found)


def plain(value: Any) -> Any:
    """Turn tuples, dates and NumPy values into plain JSON values."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, date | datetime):
        return value.isoformat()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(one) for one in value]
    return value


def _between_commas(text: str) -> list[str]:
    """Split where commas stand outside of parentheses and quotes.

    >>> _between_commas("origin, DATE_TRUNC('month', day)")
    ['origin', "DATE_TRUNC('month', day)"]
    """
    parts, depth, quote = [""], 0, ""
    for character in text:
        if quote or character in "'\"":
            quote = "" if quote == character else quote or character
        elif character in "()":
            depth += 1 if character == "(" else -1
        elif character == "," and depth == 0:
            parts.append("")
            continue
        parts[-1] += character
    return [part.strip() for part in parts]


def _json_list(name: str, text: str, expected: str) -> list[Any]:
    try:
        return list(json.loads(text))
    except ValueError:
        raise InvalidArgument(f"{name} must be {expected}; got {text!r}.", name=name) from None


def _value(word: str) -> Category:
    if word.lower() in ("true", "false"):
        return word.lower() == "true"
    if len(word) > 1 and word[0] == word[-1] == "'":
        return word[1:-1]
    for read in (int, float):
        try:
            return read(word)
        except ValueError:
            continue
    return word
