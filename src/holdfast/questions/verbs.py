"""The methods of `Session` and of the client, made from kinds: one signature, typed the same everywhere."""

from collections.abc import Callable, Coroutine, Mapping
from inspect import Parameter, Signature, signature
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, get_type_hints

from holdfast.answer import AnyAnswer
from holdfast.questions.options import Text
from holdfast.questions.question import Kind

P = ParamSpec("P")
A = TypeVar("A", bound=AnyAnswer)


class Asks(Protocol):
    """What answers by kind."""

    def _ask_kind(self, kind: Kind[..., A], args: tuple[object, ...], options: Mapping[str, object]) -> A: ...


class AsksLater(Protocol):
    """What answers by kind, when awaited."""

    async def _ask_kind(self, kind: Kind[..., A], args: tuple[object, ...], options: Mapping[str, object]) -> A: ...


def verb(kind: Kind[P, A]) -> Callable[Concatenate[Any, P], A]:
    """Return the method that asks questions of this kind."""

    def ask(self: Asks, /, *args: P.args, **options: P.kwargs) -> A:
        return self._ask_kind(kind, args, options)

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
