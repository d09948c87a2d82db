"""A registry: where things of one sort are found by name."""

from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from typing import Generic, TypeVar

Thing = TypeVar("Thing")


class Registry(Generic[Thing]):
    """Things by name, in the order they were registered.

    Other packages register theirs under an entry point group named after the sort, such as `holdfast.guarantees`; they
    are loaded when an unknown name is asked for, or when all names are listed.

    Parameters
    ----------
    sort
        What the things are, in one word for messages: "guarantee".
    group
        The entry point group of other packages.
    load
        Imports this package's own things; called before the first look.
    """

    def __init__(self, sort: str, *, group: str, load: Callable[[], object]) -> None:
        self.sort = sort
        self._group, self._load = group, load
        self._things: dict[str, Thing] = {}
        self._complete = self._loading = False

    def register(self, name: str, thing: Thing) -> Thing:
        """Add a thing under its name; a second one of the same name replaces the first."""
        self._things[name] = thing
        return thing

    def remove(self, name: str) -> None:
        """Forget a thing, for tests that added one."""
        self._things.pop(name, None)

    def get(self, name: object) -> Thing | None:
        """Return the thing with this name, or None."""
        if not isinstance(name, str):
            return None
        found = self._things.get(name)
        if found is None:
            self._fill()
            found = self._things.get(name)
        return found

    def names(self) -> tuple[str, ...]:
        """Return all names, in the order of registration."""
        self._fill()
        return tuple(self._things)

    def __iter__(self) -> Iterator[Thing]:
        self._fill()
        return iter(tuple(self._things.values()))

    def _fill(self) -> None:
        if self._complete or self._loading:
            return
        self._loading = True
        try:
            self._load()
            for point in entry_points(group=self._group):
                point.load()
            self._complete = True
        finally:
            self._loading = False
