"""The models of the API. Those that end in `In` validate requests; those that end in `Out` describe responses.

Questions are modeled in `question_models`, from the kinds that are registered.
"""

from dataclasses import fields
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError, create_model

from holdfast.answer import Record
from holdfast.questions.price import Price
from holdfast.service.errors import invalid_request

MAX_BATCH = 100
MAX_INTEGER = 2**53  # the largest integer every JSON reader keeps exact


def _integer(value: Any) -> Any:
    """Accept 3.0 as an integer, as JSON Schema does."""
    return int(value) if type(value) is float and value.is_integer() else value


AsInteger = BeforeValidator(_integer)
Name = Annotated[str, StringConstraints(min_length=1, max_length=100)]
Count = Annotated[int, Field(ge=0, le=10**9), AsInteger]
Number = Annotated[float, Field(allow_inf_nan=False)]
Model = TypeVar("Model", bound=BaseModel)


def validate(model: type[Model], values: dict[str, Any]) -> Model:
    """Validate values that did not arrive as JSON: from a form or an agent."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise invalid_request(error.errors()) from None


class RequestModel(BaseModel):
    """A request: JSON types as they are, and nothing unknown."""

    model_config = ConfigDict(extra="forbid", strict=True)


class TokenIn(RequestModel):
    """A new token. By default it allows all datasets, has no quota and never expires."""

    name: Name
    admin: bool = False
    datasets: Annotated[list[Name], Field(max_length=100)] | None = None
    quota: Annotated[int, Field(ge=0, le=MAX_INTEGER), AsInteger] | None = None
    days: Annotated[Number, Field(gt=0, le=36_525)] | None = None


class TokenUpdateIn(RequestModel):
    """A new quota; null removes the limit."""

    quota: Annotated[int, Field(ge=0, le=MAX_INTEGER), AsInteger] | None


class DatasetIn(RequestModel):
    """A file in the server's data folder, the name to serve it under, and the plan its ledger starts with."""

    name: Name
    file: Annotated[str, StringConstraints(min_length=1, max_length=400)]
    queries: Count | Annotated[dict[Name, Count], Field(max_length=10)] | None = None
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


_recorded: dict[str, Any] = {name: (type_, ...) for name, type_ in get_type_hints(Record).items()}
AnswerOut = create_model(
    "AnswerOut",
    __config__=ConfigDict(extra="allow"),
    __doc__="An answer: what its kind reports, and where it comes from.",
    made_up=(bool, ...),
    **{field.name: _recorded[field.name] for field in fields(Record)},
)


class LeftOut(BaseModel):
    """The answers left in the dataset's budget, and in the token's quota if it has one."""

    answers: int
    quota: int | None


class AskOut(BaseModel):
    """An answer, committed to the ledger before it was sent."""

    ok: Literal[True]
    dataset: str
    answer: AnswerOut  # type: ignore[valid-type]
    left: LeftOut


class BatchOut(BaseModel):
    """Results in the order of the questions."""

    ok: Literal[True]
    results: list[AskOut | ErrorOut]


class PriceOut(BaseModel):
    """A price; nothing was read or spent."""

    ok: Literal[True]
    dataset: str
    price: Price
    text: str
    left: LeftOut


class OkOut(BaseModel):
    """Any other success: `ok` and what was requested."""

    model_config = ConfigDict(extra="allow")
    ok: Literal[True]
