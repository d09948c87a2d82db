"""What is said over the wire. These models check what comes in and describe, for OpenAPI, what goes out."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from holdfast.errors import InvalidArgument

MOST_IN_BATCH = 100
MOST_DRAWS = 10_000_000  # rows one question may read over HTTP
WHOLE = 2**53  # the largest whole number every JSON reader keeps


def _whole(value: Any) -> Any:
    """A whole number may be written with a point: to JSON, 3.0 is an integer."""
    return int(value) if type(value) is float and value.is_integer() else value


_AS_WHOLE = BeforeValidator(_whole)
Kind = Literal["mean", "histogram", "quantile", "flip", "flips", "minimize"]
Text = Annotated[str, StringConstraints(min_length=1, max_length=4_000)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=100)]
Word = Annotated[str, StringConstraints(max_length=20)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Pair = Annotated[list[Number], Field(min_length=2, max_length=2)]


class _In(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Loss(_In):
    """A built-in loss of a linear model; `features` are columns with bounds, or with the same bounds `within`.

    A feature that is true or false needs no bounds: null.
    """

    name: Literal["squared", "logistic", "huber", "smoothed_hinge", "quantile", "poisson"]
    features: dict[Text, Pair | None] | Annotated[list[Text], Field(min_length=1, max_length=100)]
    target: Text
    within: Pair | None = None
    target_within: Pair | None = None
    l2: Annotated[Number, Field(ge=0)] | None = None
    intercept: bool | None = None
    scale: Word | None = None
    delta: Number | None = None
    smoothing: Number | None = None
    q: Number | None = None
    most: Number | None = None

    def built(self) -> Any:
        """Return the loss itself."""
        from holdfast.optimize.named import built

        given = {name: getattr(self, name) for name in self.model_fields_set - {"name"}}
        return built(self.name, {name: value for name, value in given.items() if value is not None})


class Ask(_In):
    """One question: its kind, the query text (a loss for minimize), and that kind's options."""

    kind: Kind = "mean"
    query: Text | None = None
    loss: Loss | None = None
    radius: Annotated[Number, Field(gt=0)] | None = None
    box: Pair | Annotated[list[Pair], Field(min_length=1, max_length=101)] | None = None
    excess: Annotated[Number, Field(gt=0)] | None = None
    iterations: Annotated[int, Field(ge=1, le=100_000), _AS_WHOLE] | None = None
    rows_per_coordinate: Annotated[int, Field(ge=1, le=MOST_DRAWS), _AS_WHOLE] | None = None
    runs: Annotated[int, Field(ge=1, le=100), _AS_WHOLE] | None = None
    average: Word | None = None
    mechanism: Word | None = None
    select: Word | None = None
    within: Pair | None = None
    where: Text | None = None
    rows_per_query: Annotated[int, Field(ge=1, le=MOST_DRAWS), _AS_WHOLE] | None = None
    accuracy: Annotated[Number, Field(gt=0)] | None = None
    categories: Annotated[list[bool | int | Number | Text], Field(min_length=1, max_length=200)] | None = None
    bins: Annotated[list[Number], Field(min_length=2, max_length=200)] | None = None
    q: Annotated[Number, Field(ge=0, le=1)] | None = None
    steps: Annotated[int, Field(ge=1, le=64), _AS_WHOLE] | None = None
    count: Annotated[int, Field(ge=1, le=1_000_000), _AS_WHOLE] | None = None

    def asked(self) -> tuple[Any, str, dict[str, Any]]:
        """Return query, kind and options as `Session.ask` takes them."""
        given = ((name, getattr(self, name)) for name in self.model_fields_set - {"kind", "query", "loss"})
        options = {name: value for name, value in given if value is not None}
        if self.box is not None and not isinstance(self.box[0], list):
            options["box"] = tuple(self.box)  # one pair for every coordinate; a list has one for each
        subject: Any = self.query
        if self.kind == "minimize":
            subject = None if self.loss is None or self.query is not None else self.loss.built()
        elif self.loss is not None:
            subject = None
        if subject is None:
            raise InvalidArgument("A question must have a query; minimize must have a loss instead.", name="query")
        if self.kind == "flip":
            return subject, "flips", options | {"count": 1}
        return subject, self.kind, options


class Batch(_In):
    """Several questions, answered in order; each succeeds or fails by itself."""

    asks: Annotated[list[Ask], Field(min_length=1, max_length=MOST_IN_BATCH)]


class MakeToken(_In):
    """A token to make. `datasets` left out: all; `quota` left out: the whole budget; `days` left out: no end."""

    name: Name
    keeper: bool = False
    datasets: Annotated[list[Name], Field(max_length=100)] | None = None
    quota: Annotated[int, Field(ge=0, le=WHOLE), _AS_WHOLE] | None = None
    days: Annotated[Number, Field(gt=0, le=36_525)] | None = None


class ChangeToken(_In):
    """A new quota; null takes the limit away."""

    quota: Annotated[int, Field(ge=0, le=WHOLE), _AS_WHOLE] | None


class Register(_In):
    """A file in the server's data folder to be served under a name, and the plan its ledger begins with."""

    name: Name
    file: Annotated[str, StringConstraints(min_length=1, max_length=400)]
    queries: Annotated[int, Field(ge=1, le=10**9), _AS_WHOLE] | None = None
    flips: Annotated[int, Field(ge=0, le=10**9), _AS_WHOLE] | None = None
    accuracy: Annotated[Number, Field(gt=0, lt=1)] | None = None
    confidence: Annotated[Number, Field(gt=0, lt=1)] | None = None


# -- what goes out, for the description only ------------------------------------------------------------------------


class Failed(BaseModel):
    """Every refusal, on every route."""

    ok: Literal[False]
    error: str
    kind: str
    status: int
    details: dict[str, Any]


class AnswerOut(BaseModel):
    """One number about the population and its interval."""

    question: str
    value: float
    low: float
    high: float
    confidence: float
    guarantee: str
    bounds: list[float]
    rows_read: int
    cost: int
    seq: int | None
    cached: bool
    receipt: str | None
    made_up: bool


class CategoryOut(AnswerOut):
    """One bar of a histogram."""

    category: str


class HistogramOut(BaseModel):
    """One answer for each category."""

    categories: list[CategoryOut]


class FlipsOut(BaseModel):
    """Single coins and their average."""

    bits: list[int]
    average: AnswerOut


class MinimumOut(BaseModel):
    """A point of small population loss and the interval of its loss."""

    point: dict[str, float]
    loss: AnswerOut
    excess_bound: float | None
    expected_excess_bound: float | None
    iterations: int
    gradient_evaluations: int


class LeftOut(BaseModel):
    """What is left: answers of the dataset's budget, and of the asker's quota if there is one."""

    answers: int
    quota: int | None


class Asked(BaseModel):
    """An answer, committed to the ledger before it was sent."""

    ok: Literal[True]
    dataset: str
    kind: Kind
    answer: AnswerOut | HistogramOut | FlipsOut | MinimumOut
    left: LeftOut


class BatchOut(BaseModel):
    """Results in the order of the asks."""

    ok: Literal[True]
    results: list[Asked | Failed]


class QuoteOut(BaseModel):
    """What a question would cost."""

    question: str
    flips: int
    queries: int
    rows_read: int
    accuracy: float | None
    cached: bool
    affordable: bool


class Priced(BaseModel):
    """A price; nothing was read or spent."""

    ok: Literal[True]
    dataset: str
    kind: Kind
    price: QuoteOut
    said: str
    left: LeftOut


class Said(BaseModel):
    """Anything else that succeeded; `ok` and what was asked for."""

    model_config = ConfigDict(extra="allow")
    ok: Literal[True]
