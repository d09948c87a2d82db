"""What a kind of question is.

A `Kind` is one Python function, `build(context, query, *, options) -> Question`, and the class of its answers. The
verbs of `Session` and of the client, the options of the command line, the HTTP schema, the page's form and the tools of
agents are all made from its signature.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from inspect import Parameter, signature
from re import sub
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from holdfast.cached import cached_property
from holdfast.errors import InvalidArgument
from holdfast.questions import OPTIONS_OTHERWISE_CALLED
from holdfast.questions.answer import AnyAnswer, Record
from holdfast.questions.options import Option, options_of
from holdfast.questions.question import Context, Question

ROWS = "rows_per_query"  # the option of kinds that says how many rows one answer reads

P = ParamSpec("P")
A = TypeVar("A", bound=AnyAnswer)

_BY_PLACE = Parameter.POSITIONAL_OR_KEYWORD
_signature = cache(signature)  # every question over HTTP is checked against it


@dataclass(frozen=True)
class Kind(Generic[P, A]):
    """A kind of question: one signature, from which every surface is made, and the class of its answers.

    Parameters
    ----------
    name
        Its name, which is also that of the verb.
    build
        The function that checks and prices a question: `build(context, subject, *, options)`.
    answer
        The class of its answers.
    options
        Its options; the first is the subject, what is asked about.
    grouped
        The class of its answers for several groups, whose results have `groups`; None if it has none.
    """

    name: str
    build: Callable[Concatenate[Context, P], Question]
    answer: type[A]
    options: tuple[Option, ...]
    grouped: type[AnyAnswer] | None = None

    @property
    def subject(self) -> Option:
        """What is asked about: a query, or a loss."""
        return self.options[0]

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(option.name for option in self.options)

    @cached_property
    def _required(self) -> frozenset[str]:
        return frozenset(option.name for option in self.options if option.required)

    @property
    def summary(self) -> str:
        """The first sentence of its description."""
        return (self.build.__doc__ or "").strip().partition("\n")[0]

    def question(self, context: Context, *args: P.args, **options: P.kwargs) -> Question:
        """Return the question, checked and priced.

        Parameters
        ----------
        context
            The guarantee in force and the schema of the data.
        *args, **options
            The subject and the options of the kind; options that it does not have are refused.
        """
        try:
            question = self.build(context, *args, **options)
        except TypeError:
            self.check_options(args, options)
            raise
        if options.get(ROWS) is not None and question.usual is None and context.reads_fewer and question.finish is None:
            # An earlier answer from the usual number of rows will do if it read no fewer rows. Not for a check, which
            # reads all rows, or other rows.
            usual = self.build(context, *args, **(options | {ROWS: None}))  # type: ignore[arg-type]
            question = replace(question, usual=usual.identity)
        unit = context.schema.unit
        if unit is not None and not question.whole:
            question = replace(question, text=f"{question.text}, every unit ({unit}) alike")
        terms = context.guarantee.terms
        return question if question.terms is terms else question.under(terms)

    def check_options(
        self, args: Sequence[object], options: Mapping[str, object], spell: Callable[[str], str] | None = None
    ) -> None:
        """Raise InvalidArgument if the arguments do not fit the signature.

        Parameters
        ----------
        args, options
            What the caller gives, by position and by name.
        spell
            Writes a name as the caller does, for messages.
        """
        if not args and self._required <= options.keys() <= self._names:
            return  # nearly every question ends here
        known, quote = [option.name for option in self.options], spell or repr
        for name in options:
            if name not in known:
                near = [meant] if (meant := OPTIONS_OTHERWISE_CALLED.get(name)) in known else None
                near = near or get_close_matches(name, known, n=1, cutoff=0.7)
                listed = ", ".join(map(spell or str, known))
                hint = f" Did you mean {quote(near[0])}?" if near else f" It has: {listed}."
                fact = f"{self.name} has no option {quote(name)}."
                raise InvalidArgument(f"{fact}{hint}", name=name, options=known) from None
        try:
            _signature(self.build).bind(None, *args, **options)
        except TypeError as wrong:
            lacking = [option for option in self.options[len(args) :] if option.required and option.name not in options]
            if lacking:
                needed, example = quote(lacking[0].name), lacking[0].form.example
                raise InvalidArgument(f"{self.name} needs {needed}, such as {example}.", name=lacking[0].name) from None
            unnamed = [each.name for each in _signature(self.build).parameters.values() if each.kind is _BY_PLACE][1:]
            if len(args) > len(unnamed):
                raise InvalidArgument(
                    f"{self.name} takes only {' and '.join(unnamed)} without writing a name; write those of the others,"
                    f" such as {known[len(unnamed)]}=.",
                    name="options",
                ) from None
            reason = sub(r"'(\w+)'", lambda match: quote(match[1]), str(wrong))
            raise InvalidArgument(f"{self.name} cannot be asked this way: {reason}.", name="options") from None

    def read(self, result: Mapping[str, Any], record: Record) -> AnyAnswer:
        """Rebuild an answer.

        Parameters
        ----------
        result
            What its `result` returned.
        record
            Where the answer comes from.

        Returns
        -------
        AnyAnswer
            An answer of this kind.
        """
        answer = self.answer if self.grouped is None or "groups" not in result else self.grouped
        return answer.read(result, record)

    def to_json(self, values: Mapping[str, object]) -> dict[str, Any]:
        """Write what is asked as JSON.

        Parameters
        ----------
        values
            The subject and the options, by name.

        Returns
        -------
        dict
            The values as JSON, without those that are None; what cannot be sent is refused.
        """
        return {"kind": self.name} | {
            option.name: option.form.to_json(option.name, values[option.name]) for option in self._given(values)
        }

    def from_json(self, values: Mapping[str, object]) -> dict[str, Any]:
        """Read what is asked from JSON.

        Parameters
        ----------
        values
            What `to_json` wrote.

        Returns
        -------
        dict
            The subject and the options, by name.
        """
        return {option.name: option.form.from_json(values[option.name]) for option in self._given(values)}

    def _given(self, values: Mapping[str, object]) -> list[Option]:
        """Return the options that have a value; None counts as one only for a required option, which refuses it."""
        self.check_options((), values)
        named = [option for option in self.options if option.name in values]
        return [option for option in named if option.required or values[option.name] is not None]


def kind_of(
    build: Callable[Concatenate[Context, P], Question], answer: type[A], grouped: type[AnyAnswer] | None = None
) -> Kind[P, A]:
    """Return the kind made from a function, the class of its answers, and that of answers for several groups."""
    return Kind(build.__name__, build, answer, options_of(build), grouped)
