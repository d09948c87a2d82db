"""A registry: where things of one sort are found by name."""

from importlib import import_module
from typing import TypeVar

Thing = TypeVar("Thing")


class Registry(dict[str, Thing]):
    """Things by name: this package's own first, then those that others added.

    Other packages offer theirs as entry points of a group named after the sort, such as `holdfast.guarantees`; they are
    loaded when an unknown name is asked for, or when all names are listed.

    Parameters
    ----------
    sort
        What the things are, for messages: "guarantee".
    group
        The entry point group of other packages.
    own
        The names of this package's own things, in order; the module `<group>.<name>` registers each.
    """

    def __init__(self, sort: str, *, group: str, own: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.sort = sort
        self._group, self._own = group, own
        self._complete = self._loading = False

    def register(self, name: str, thing: Thing) -> Thing:
        """Add a thing under its name; a second one of the same name replaces the first."""
        self[name] = thing
        return thing

    def find(self, name: object) -> Thing | None:
        """Return the thing with this name, or None."""
        return self[name] if isinstance(name, str) and (name in self or name in self.names()) else None

    def names(self) -> tuple[str, ...]:
        """Return all names."""
        self._fill()
        return (*self._own, *(name for name in self if name not in self._own))

    def all(self) -> tuple[Thing, ...]:
        """Return all things, in the order of their names."""
        return tuple(self[name] for name in self.names())

    def __missing__(self, name: str) -> Thing:
        self._fill()
        if name not in self:
            raise KeyError(name)
        return self[name]

    def _fill(self) -> None:
        if self._complete or self._loading:
            return
        self._loading = True
        try:
            for name in self._own:
                import_module(f"{self._group}.{name}")
            from importlib.metadata import entry_points  # takes its time, and most sessions need no other packages

            for point in entry_points(group=self._group):
                thing = point.load()  # may register itself
                if point.name not in self:
                    self.register(point.name, thing)
            self._complete = True
        finally:
            self._loading = False
