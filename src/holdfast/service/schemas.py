"""The models of the API. Those that end in `In` validate requests; those that end in `Out` describe responses.

Each registered kind of question has one model, made from the kind's options. The models describe the API and the tools
of agents, and they refuse values that are too large or of another type. The kind itself decides what may be asked, and
its messages are the same everywhere; so if a model refuses a question, the kind's own refusal takes precedence.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError, create_model
from pydantic.json_schema import models_json_schema

from holdfast.errors import HoldfastError, InvalidArgument
from holdfast.guarantees.plan import PACES, RowsPerQuery
from holdfast.guarantees.request import Queries
from holdfast.optimize.features import Bounds, Features
from holdfast.optimize.formulas import BUILT_IN
from holdfast.queries.build import MOST_CATEGORIES
from holdfast.queries.select import LONGEST_SELECT
from holdfast.questions import KINDS, kind_named
from holdfast.questions.answer import Record
from holdfast.questions.kind import Kind
from holdfast.questions.mean import MEAN
from holdfast.questions.options import (
    BoxForm,
    Categories,
    Choice,
    Edges,
    Expressions,
    Form,
    GroupsForm,
    LossForm,
    Option,
    QuestionList,
    Real,
    RealOrWord,
    Reals,
    RealsOrWord,
    ShortText,
    Text,
    Whole,
)
from holdfast.questions.predictions import PredictionsForm
from holdfast.questions.price import Price
from holdfast.schema import Category
from holdfast.service.errors import IN_API, invalid_request
from holdfast.service.settings import DatasetSettings

MAX_BATCH = 100
MAX_TEXT = 4_000  # characters
_sorted = json.JSONEncoder(sort_keys=True).encode
MAX_INTEGER = 2**53  # the largest integer every JSON reader keeps exact


def _integer(value: Any) -> Any:
    """Accept 3.0 as an integer, as JSON Schema does."""
    return int(value) if type(value) is float and value.is_integer() else value


AsInteger = BeforeValidator(_integer)
LONGEST_NAME = 100
Name = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_NAME)]
Count = Annotated[int, Field(ge=0, le=10**9), AsInteger]
Quota = Annotated[int, Field(ge=0, le=MAX_INTEGER), AsInteger]
Number = Annotated[float, Field(allow_inf_nan=False)]
Pair = Annotated[list[Number], Field(min_length=2, max_length=2)]
QueryText = Annotated[str, StringConstraints(min_length=1, max_length=MAX_TEXT)]
CategoryValue = bool | int | Number | QueryText
Model = TypeVar("Model", bound=BaseModel)


def validate(model: type[Model], values: Any, described: str = IN_API) -> Model:
    """Validate input that did not go through FastAPI: from a form, an agent, or a route that reads its body itself."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise invalid_request(error.errors(), described) from None


class RequestModel(BaseModel):
    """A request: JSON types as they are, and nothing unknown."""

    model_config = ConfigDict(extra="forbid", strict=True)


class TokenIn(RequestModel):
    """A new token. By default it allows all datasets, has no quota and never expires."""

    name: Name
    admin: bool = False
    datasets: Annotated[list[Name], Field(max_length=100)] | None = None
    quota: Quota | None = None
    days: Annotated[Number, Field(gt=0, le=36_525)] | None = None


class TokenUpdateIn(RequestModel):
    """A new quota; null removes the limit."""

    quota: Quota | None


NOT_SENT = ("path", "ledger", "seed")  # settings that say where files are, or make draws predictable
Text400 = Annotated[str, StringConstraints(min_length=1, max_length=400)]
Many = Field(max_length=MOST_CATEGORIES)
_SETTINGS: dict[Any, Any] = {  # settings of a dataset as they are sent, by their type
    bool: bool,
    str: Name,
    bool | None: bool,
    float | None: Annotated[Number, Field(gt=0, lt=1)],
    int | None: Annotated[int, Field(ge=0, lt=2**63), AsInteger],  # snapshots of Iceberg tables are that large
    str | None: Text400,
    Queries | None: Count | Annotated[dict[Name, Count], Field(max_length=10)],
    RowsPerQuery | None: Count | Literal[tuple(PACES)],
    Sequence[str]: Annotated[list[Text400], Many],
    Mapping[str, str]: Annotated[dict[Text400, Text400], Many],
    Mapping[str, tuple[float, float]]: Annotated[dict[Text400, Pair], Many],
    Mapping[str, Sequence[Category] | str]: Annotated[dict[Text400, Annotated[list[CategoryValue], Many] | Name], Many],
}


def _settings_sent() -> type[RequestModel]:
    types = get_type_hints(DatasetSettings)
    sent: dict[str, Any] = {
        setting.name: (_SETTINGS[types[setting.name]] | None, None)
        for setting in fields(DatasetSettings)
        if setting.name not in NOT_SENT
    }
    return create_model("SettingsIn", __base__=RequestModel, **sent)


class DatasetIn(_settings_sent()):  # type: ignore[misc]
    """A file in the server's data folder, the name to serve it under, and settings as in the server's own file."""

    name: Name
    file: Text400


class SqlIn(RequestModel):
    """A SELECT of aggregates over the dataset, with WHERE and GROUP BY."""

    sql: Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_SELECT)]


# -- questions ----------------------------------------------------------------------------------------------------

DEFAULT_KIND = MEAN.name  # as for `Session.ask`
MAX_ITEMS = 200  # of a list, or settings of a loss
MAX_ROWS = 10_000_000  # rows one question may read over HTTP; whatever an option counts reads at least a row each
REFERENCE = "#/components/schemas/{model}"  # where OpenAPI keeps models
T = TypeVar("T")

Sized = Field(min_length=1, max_length=MAX_ITEMS)


def json_type(form: Form) -> Any:
    """Return the type of a value in JSON; of forms of other packages anything, which their own `from_json` reads."""
    match form:
        case Expressions():
            return QueryText | Annotated[list[QueryText], Sized]
        case Text():
            return QueryText
        case Choice():
            return Literal[form.words]
        case Whole():
            return Annotated[int, Field(ge=form.least, le=MAX_ROWS), AsInteger]
        case RealOrWord():
            return Literal[form.word] | Annotated[Number, Field(ge=form.least, le=form.most)]
        case Real():
            return Annotated[Number, Field(ge=form.least, le=form.most)]
        case RealsOrWord():
            return Literal[form.words] | Annotated[list[Number], Sized]
        case Edges():
            return Annotated[int, Field(ge=1, le=MAX_ITEMS)] | Annotated[list[Number], Sized]
        case Reals(count=None):
            return Annotated[list[Number], Sized]
        case Reals():
            return Annotated[list[Number], Field(min_length=form.count, max_length=form.count)]
        case GroupsForm():
            each = Annotated[list[CategoryValue], Sized]
            return Annotated[list[CategoryValue | each], Sized] | Annotated[dict[QueryText, each], Sized]
        case Categories():
            return Annotated[list[CategoryValue], Sized]
        case BoxForm():
            return Pair | Annotated[list[Pair], Sized]
        case LossForm():
            return QueryText | _loss_model()
        case ShortText():
            return Annotated[str, StringConstraints(min_length=1, max_length=MAX_ITEMS)]
        case PredictionsForm():
            return dict[str, list[Any]] | str  # as many as a request holds; the kind looks at each
        case QuestionList():
            return Annotated[list[QueryText | dict[str, Any]], Field(min_length=1, max_length=MAX_BATCH)]
    return Any


def _loss_model() -> type[BaseModel]:
    """Return the model of a built-in loss: its name, and the settings that any of them has."""
    types: dict[Any, Any] = {
        Features: Annotated[dict[QueryText, Pair | None], Sized] | Annotated[list[QueryText], Sized],
        str: QueryText,
        Bounds: Pair | None,
        float: Number,
        bool: bool,
    }
    found: dict[str, Any] = {"name": (Literal[tuple(BUILT_IN)], ...)}
    for loss in BUILT_IN.values():
        hints = get_type_hints(loss)
        for setting in fields(loss):
            type_ = types[hints[setting.name]]
            found[setting.name] = (type_, ...) if setting.default is MISSING else (type_ | None, None)
    return create_model("Loss", __base__=RequestModel, __doc__="A built-in loss of a linear model.", **found)


def _field(option: Option) -> tuple[Any, Any]:
    """Return type and description of one option; null is the same as leaving it out."""
    type_, example = json_type(option.form), [option.form.example] if isinstance(option.form, Text) else None
    if option.required:
        return type_, Field(description=option.help, examples=example)
    return type_ | None, Field(option.default, description=option.help, examples=example)


def model_of(kind: Kind[..., Any]) -> type[BaseModel]:
    """Return the model of the questions of a kind."""
    name: Any = (Literal[kind.name], kind.name if kind.name == DEFAULT_KIND else ...)
    options: dict[str, Any] = {option.name: _field(option) for option in kind.options}
    title = f"{kind.name.title().replace('_', '')}Question"
    return create_model(title, __base__=RequestModel, __doc__=kind.summary, kind=name, **options)


@dataclass(frozen=True)
class AskIn:
    """One question as it was received: its kind, and subject and options as JSON."""

    kind: Kind[..., Any]
    values: Mapping[str, Any]
    problem: InvalidArgument | None = None  # why it does not fit its model, if it does not

    def call(self, verb: Callable[..., T], **more: Any) -> T:
        """Return `verb(subject, kind, **options)`. If there is a `problem`, the verb must be one that spends nothing.

        The verb's own refusal takes precedence, since its message is the same everywhere. A value of another type may
        make the verb fail in any way; then the model's error is raised instead.
        """
        try:
            options = self.kind.from_json(self.values)
            result = verb(options.pop(self.kind.subject.name, None), self.kind.name, **options, **more)
        except HoldfastError:
            raise
        except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError):
            if self.problem is None:
                raise
            raise self.problem from None
        if self.problem is not None:
            raise self.problem
        return result

    @property
    def count(self) -> int:
        """How many questions it is: as many as it lists, if it registers some."""
        subject = self.kind.subject
        listed = self.values.get(subject.name) if isinstance(subject.form, QuestionList) else None
        return max(1, len(listed)) if isinstance(listed, list) else 1

    def canonical(self) -> str:
        """Return the same text for the same question."""
        return _sorted({"kind": self.kind.name, **self.values})


class QuestionModels:
    """The models of every kind that was registered when this was made."""

    def __init__(self) -> None:
        self.kinds = KINDS.all()
        self._models = {kind.name: model_of(kind) for kind in self.kinds}

    def read(self, values: object) -> AskIn:
        """Read one question from JSON values."""
        if not isinstance(values, dict):
            raise InvalidArgument(f"A question must be a JSON object; got {type(values).__name__}.", name="question")
        kind = kind_named(values.get("kind", DEFAULT_KIND))
        model = self._models.get(kind.name) or model_of(kind)
        try:
            fitting = model.model_validate(values)
        except ValidationError as error:
            given = {name: value for name, value in values.items() if name != "kind"}
            for option in kind.options:
                _check_size(option, given.get(option.name))
            return AskIn(kind, given, invalid_request(error.errors()))
        return AskIn(kind, {name: _plain(getattr(fitting, name)) for name in fitting.model_fields_set - {"kind"}})

    def read_batch(self, values: object) -> list[AskIn]:
        """Read several questions from JSON values."""
        asks = values.get("asks") if isinstance(values, dict) and len(values) == 1 else None
        if not isinstance(asks, list) or not 1 <= len(asks) <= MAX_BATCH:
            raise InvalidArgument(f'A batch must be {{"asks": [...]}} with 1 to {MAX_BATCH} questions.', name="asks")
        found = [self.read(one) for one in asks]
        if (count := sum(one.count for one in found)) > MAX_BATCH:
            raise InvalidArgument(
                f"A batch must be at most {MAX_BATCH} questions, also those in lists to be registered; got {count:,}."
                " Send several batches.",
                name="asks",
            )
        return found

    # -- descriptions ---------------------------------------------------------------------------------------------

    def openapi(self) -> dict[str, Any]:
        """Return the models as OpenAPI keeps them, and `AskIn` and `BatchIn`, which refer to them."""
        pairs: Any = [(model, "validation") for model in self._models.values()]
        references, described = models_json_schema(pairs, ref_template=REFERENCE)
        each = {name: references[model, "validation"]["$ref"] for name, model in self._models.items()}
        models: dict[str, Any] = described["$defs"]
        return models | {
            "AskIn": {
                "title": "AskIn",
                "description": "One question: its kind, and that kind's options.",
                "oneOf": [{"$ref": reference} for reference in each.values()],
                "discriminator": {"propertyName": "kind", "mapping": each},
            },
            "SqlIn": SqlIn.model_json_schema(),
            "BatchIn": {
                "title": "BatchIn",
                "description": "Several questions: all of them are answered, or none.",
                "type": "object",
                "properties": {
                    "asks": {
                        "type": "array",
                        "items": {"$ref": REFERENCE.format(model="AskIn")},
                        "minItems": 1,
                        "maxItems": MAX_BATCH,
                    }
                },
                "required": ["asks"],
                "additionalProperties": False,
            },
        }

    def tool_schema(self) -> dict[str, Any]:
        """Return one flat object with the options of all kinds: what agents' frameworks accept as arguments."""
        properties: dict[str, Any] = {}
        definitions: dict[str, Any] = {}
        owners: dict[str, list[str]] = {}
        for kind in self.kinds:
            described = self._models[kind.name].model_json_schema()
            definitions |= described.get("$defs", {})
            for name, one in described["properties"].items():
                owners.setdefault(name, []).append(kind.name)
                known = properties.setdefault(name, one)
                if name != "kind" and known != one:
                    choices = known.get("anyOf", [known])
                    properties[name] = {"anyOf": [*choices, *(x for x in one.get("anyOf", [one]) if x not in choices)]}
                    properties[name]["description"] = known["description"]
        for name, one in properties.items():
            one["description"] = f"For {', '.join(owners[name])}. {one.get('description', '')}"
        names = [kind.name for kind in self.kinds]
        properties["kind"] = {"type": "string", "enum": names, "default": DEFAULT_KIND}
        return {"type": "object", "properties": properties, "additionalProperties": False, "$defs": definitions}


def _plain(value: Any) -> Any:
    return value.model_dump(exclude_unset=True) if isinstance(value, BaseModel) else value


def _check_size(option: Option, value: Any) -> None:
    """Refuse a value that is too large before anything else processes it."""
    if isinstance(option.form, PredictionsForm):
        return  # limited only by the size of a request
    if isinstance(value, str):
        _check_limit(option, len(value), MAX_TEXT, " characters long")
    elif isinstance(value, list | dict):
        _check_limit(option, len(value), MAX_ITEMS, " items long")
        for one in value.values() if isinstance(value, dict) else value:
            _check_size(option, one)
    elif isinstance(option.form, Whole) and isinstance(value, int | float):
        _check_limit(option, value, MAX_ROWS, " over HTTP")


def _check_limit(option: Option, size: float, limit: int, unit: str) -> None:
    if size > limit:
        raise InvalidArgument(f"{option.name} must be at most {limit:,}{unit}; got {size:,}.", name=option.name)


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
    **{name: _recorded[name] for name in Record._fields},
)


class LeftOut(BaseModel):
    """The answers left in the dataset's budget, if it has an end, and in the token's quota if it has one."""

    answers: int | None
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
    results: list[AskOut]


class PriceOut(BaseModel):
    """A price; nothing was read or spent."""

    ok: Literal[True]
    dataset: str
    price: Price
    text: str
    left: LeftOut


class PricesOut(BaseModel):
    """What questions cost together, and each of them; nothing was read or spent."""

    ok: Literal[True]
    dataset: str
    answers: int
    rows_read: int
    affordable: bool
    prices: list[Price]
    text: str
    left: LeftOut


class SqlOut(BaseModel):
    """The table of a SELECT: for an aggregate called x, columns x, x_low and x_high; and the answers in it."""

    ok: Literal[True]
    dataset: str
    columns: list[str]
    rows: list[list[str | float | bool | None]]
    results: list[AskOut]
    left: LeftOut


class OkOut(BaseModel):
    """Any other success: `ok` and what was requested."""

    model_config = ConfigDict(extra="allow")
    ok: Literal[True]
