"""The methods of `Session` and of the client, made from kinds: one signature, typed the same everywhere."""

from collections.abc import Callable, Coroutine, Mapping
from inspect import Parameter, Signature, signature
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast, get_type_hints

from holdfast import check
from holdfast.errors import HoldfastError
from holdfast.questions.answer import Answer, AnyAnswer
from holdfast.questions.auc import AUC
from holdfast.questions.check import CHECK
from holdfast.questions.confusion import CONFUSION
from holdfast.questions.difference import DIFFERENCE
from holdfast.questions.flips import FLIPS
from holdfast.questions.histogram import HISTOGRAM
from holdfast.questions.history import REGISTER
from holdfast.questions.kind import Kind
from holdfast.questions.mean import MEAN, AskMean, GroupsAnswer
from holdfast.questions.minimize import MINIMIZE
from holdfast.questions.moments import CORRELATION, COVARIANCE, SLOPE, STD, VARIANCE
from holdfast.questions.options import Text
from holdfast.questions.quantile import QUANTILE
from holdfast.questions.submit import SUBMIT
from holdfast.questions.top import TOP
from holdfast.questions.totals import COUNT, TOTAL, UNITS

P = ParamSpec("P")
A = TypeVar("A", bound=AnyAnswer)


class Asks(Protocol):
    """An object that answers questions of a kind."""

    def _ask_kind(self, kind: Kind[..., A], args: tuple[object, ...], options: Mapping[str, object]) -> A: ...


class AsksLater(Protocol):
    """An object that answers questions of a kind, when awaited."""

    async def _ask_kind(self, kind: Kind[..., A], args: tuple[object, ...], options: Mapping[str, object]) -> A: ...


def verb(kind: Kind[P, A]) -> Callable[Concatenate[Any, P], A]:
    """Return the method that asks questions of this kind."""

    def ask(self: Asks, /, *args: P.args, **options: P.kwargs) -> A:
        __tracebackhide__ = True  # what `check.public` does, with one call less for every question
        try:
            return self._ask_kind(kind, args, options)
        except HoldfastError as error:
            check.cut(error)
            raise

    return _dressed(ask, kind)


def async_verb(kind: Kind[P, A]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, A]]:
    """Return the method that asks questions of this kind, to be awaited."""

    async def ask(self: AsksLater, /, *args: P.args, **options: P.kwargs) -> A:
        return await self._ask_kind(kind, args, options)

    return _dressed(ask, kind)


Method = TypeVar("Method", bound=Callable[..., Any])


def _dressed(method: Method, kind: Kind[..., Any]) -> Method:
    """Give a method the name, signature and description of its kind."""
    hints = get_type_hints(kind.build)
    parameters = list(signature(kind.build).parameters.values())[1:]
    queries = [option for option in kind.options if isinstance(option.form, Text)]
    named = {option.name: "QueryLike" if option.required else "QueryLike | None" for option in queries}
    shown = hints | named  # written out, the union fills a screen
    typed = [parameter.replace(annotation=shown[parameter.name]) for parameter in parameters]
    own = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
    method.__name__, method.__doc__ = kind.name, kind.build.__doc__
    method.__qualname__ = f"Session.{kind.name}"
    method.__annotations__ = {parameter.name: hints[parameter.name] for parameter in parameters}
    method.__annotations__["return"] = kind.answer
    method.__signature__ = Signature([own, *typed], return_annotation=kind.answer)  # type: ignore[attr-defined]
    return method


class Verbs:
    """A method for every built-in kind of question, for `Session` and the client."""

    mean = cast(AskMean[Answer, GroupsAnswer], verb(MEAN))
    difference = verb(DIFFERENCE)
    count = verb(COUNT)
    total = verb(TOTAL)
    variance = verb(VARIANCE)
    std = verb(STD)
    covariance = verb(COVARIANCE)
    correlation = verb(CORRELATION)
    slope = verb(SLOPE)
    histogram = verb(HISTOGRAM)
    top = verb(TOP)
    auc = verb(AUC)
    quantile = verb(QUANTILE)
    flips = verb(FLIPS)
    minimize = verb(MINIMIZE)
    check = verb(CHECK)
    submit = verb(SUBMIT)
    confusion = verb(CONFUSION)
    units = verb(UNITS)
    register = verb(REGISTER)


class AsyncVerbs:
    """The same, to be awaited."""

    mean = cast(AskMean[Coroutine[Any, Any, Answer], Coroutine[Any, Any, GroupsAnswer]], async_verb(MEAN))
    difference = async_verb(DIFFERENCE)
    count = async_verb(COUNT)
    total = async_verb(TOTAL)
    variance = async_verb(VARIANCE)
    std = async_verb(STD)
    covariance = async_verb(COVARIANCE)
    correlation = async_verb(CORRELATION)
    slope = async_verb(SLOPE)
    histogram = async_verb(HISTOGRAM)
    top = async_verb(TOP)
    auc = async_verb(AUC)
    quantile = async_verb(QUANTILE)
    flips = async_verb(FLIPS)
    minimize = async_verb(MINIMIZE)
    check = async_verb(CHECK)
    submit = async_verb(SUBMIT)
    confusion = async_verb(CONFUSION)
    units = async_verb(UNITS)
    register = async_verb(REGISTER)
