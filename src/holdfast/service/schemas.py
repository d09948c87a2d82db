"""The models of the API. Those that end in `In` validate requests; those that end in `Out` describe responses."""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError

from holdfast.errors import InvalidArgument
from holdfast.service.errors import invalid_request

MAX_BATCH = 100
MAX_ROWS = 10_000_000  # rows one question may read over HTTP
MAX_INTEGER = 2**53  # the largest integer every JSON reader keeps exact


def _integer(value: Any) -> Any:
    """Accept 3.0 as an integer, as JSON Schema does."""
    return int(value) if type(value) is float and value.is_integer() else value


_AsInteger = BeforeValidator(_integer)
QuestionKind = Literal["mean", "histogram", "quantile", "flip", "flips", "minimize"]
Text = Annotated[str, StringConstraints(min_length=1, max_length=4_000)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=100)]
Word = Annotated[str, StringConstraints(max_length=20)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Pair = Annotated[list[Number], Field(min_length=2, max_length=2)]
Model = TypeVar("Model", bound=BaseModel)


def validate(model: type[Model], values: dict[str, Any]) -> Model:
    """Validate values that did not arrive as JSON: from a form or an agent."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise invalid_request(error.errors()) from None


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class LossIn(_Request):
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

    def build(self) -> Any:
        """Return the loss itself."""
        from holdfast.optimize.named import built

        given = {name: getattr(self, name) for name in self.model_fields_set - {"name"}}
        return built(self.name, {name: value for name, value in given.items() if value is not None})


class AskIn(_Request):
    """One question: its kind, the query text (a loss for minimize), and that kind's options."""

    kind: QuestionKind = "mean"
    query: Text | None = None
    loss: LossIn | None = None
    radius: Annotated[Number, Field(gt=0)] | None = None
    box: Pair | Annotated[list[Pair], Field(min_length=1, max_length=101)] | None = None
    excess: Annotated[Number, Field(gt=0)] | None = None
    iterations: Annotated[int, Field(ge=1, le=100_000), _AsInteger] | None = None
    rows_per_coordinate: Annotated[int, Field(ge=1, le=MAX_ROWS), _AsInteger] | None = None
    runs: Annotated[int, Field(ge=1, le=100), _AsInteger] | None = None
    average: Word | None = None
    mechanism: Word | None = None
    select: Word | None = None
    within: Pair | None = None
    where: Text | None = None
    rows_per_query: Annotated[int, Field(ge=1, le=MAX_ROWS), _AsInteger] | None = None
    margin: Annotated[Number, Field(gt=0)] | None = None
    categories: Annotated[list[bool | int | Number | Text], Field(min_length=1, max_length=200)] | None = None
    bins: Annotated[list[Number], Field(min_length=2, max_length=200)] | None = None
    q: Annotated[Number, Field(ge=0, le=1)] | None = None
    steps: Annotated[int, Field(ge=1, le=64), _AsInteger] | None = None
    count: Annotated[int, Field(ge=1, le=1_000_000), _AsInteger] | None = None

    def arguments(self) -> tuple[Any, str, dict[str, Any]]:
        """Return query, kind and options as `Session.ask` takes them."""
        given = ((name, getattr(self, name)) for name in self.model_fields_set - {"kind", "query", "loss"})
        options = {name: value for name, value in given if value is not None}
        if self.box is not None and not isinstance(self.box[0], list):
            options["box"] = tuple(self.box)  # one pair for all coordinates; a list has one for each
        subject: Any = self.query
        if self.kind == "minimize":
            subject = None if self.loss is None or self.query is not None else self.loss.build()
        elif self.loss is not None:
            subject = None
        if subject is None:
            raise InvalidArgument("A question must have a query; minimize must have a loss instead.", name="query")
        if self.kind == "flip":
            return subject, "flips", options | {"count": 1}
        return subject, self.kind, options


class BatchIn(_Request):
    """Several questions, answered in order; each succeeds or fails on its own."""

    asks: Annotated[list[AskIn], Field(min_length=1, max_length=MAX_BATCH)]


class TokenIn(_Request):
    """A new token. By default it allows all datasets, has no quota and never expires."""

    name: Name
    admin: bool = False
    datasets: Annotated[list[Name], Field(max_length=100)] | None = None
    quota: Annotated[int, Field(ge=0, le=MAX_INTEGER), _AsInteger] | None = None
    days: Annotated[Number, Field(gt=0, le=36_525)] | None = None


class TokenUpdateIn(_Request):
    """A new quota; null removes the limit."""

    quota: Annotated[int, Field(ge=0, le=MAX_INTEGER), _AsInteger] | None


class DatasetIn(_Request):
    """A file in the server's data folder, the name to serve it under, and the plan its ledger starts with."""

    name: Name
    file: Annotated[str, StringConstraints(min_length=1, max_length=400)]
    queries: Annotated[int, Field(ge=1, le=10**9), _AsInteger] | None = None
    flips: Annotated[int, Field(ge=0, le=10**9), _AsInteger] | None = None
    margin: Annotated[Number, Field(gt=0, lt=1)] | None = None
    confidence: Annotated[Number, Field(gt=0, lt=1)] | None = None


# -- responses, for the OpenAPI description only ---------------------------------------------------------------------


class ErrorOut(BaseModel):
    """Every error, on every route."""

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
    """Single flips and their average."""

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
    """The answers left in the dataset's budget, and in the token's quota if it has one."""

    answers: int
    quota: int | None


class AskOut(BaseModel):
    """An answer, committed to the ledger before it was sent."""

    ok: Literal[True]
    dataset: str
    kind: QuestionKind
    answer: AnswerOut | HistogramOut | FlipsOut | MinimumOut
    left: LeftOut


class BatchOut(BaseModel):
    """Results in the order of the questions."""

    ok: Literal[True]
    results: list[AskOut | ErrorOut]


class QuoteOut(BaseModel):
    """What a question would cost."""

    question: str
    answers: int
    rows_read: int
    margin: float | None
    cached: bool
    affordable: bool


class PriceOut(BaseModel):
    """A price; nothing was read or spent."""

    ok: Literal[True]
    dataset: str
    kind: QuestionKind
    price: QuoteOut
    text: str
    left: LeftOut


class OkOut(BaseModel):
    """Any other success: `ok` and what was requested."""

    model_config = ConfigDict(extra="allow")
    ok: Literal[True]
