"""A registry: finds things of one kind by name, importing their modules when needed."""

from importlib import import_module
from threading import RLock
from typing import TypeVar

Thing = TypeVar("Thing")


class Registry(dict[str, Thing]):
    """Things by name: holdfast's own first, then others in the order they were registered.

    Importing a module registers the things in it. A holdfast module is imported when one of its things is looked up;
    all of them, and the entry points of other packages, when an unknown name is looked up or all names are listed.

    Parameters
    ----------
    group
        The entry point group of other packages; also the package of holdfast's own modules.
    own
        The names of holdfast's own things: `thing` if its module has the same name, else `module.thing`.
    """

    def __init__(self, group: str, own: tuple[str, ...] = ()) -> None:
        super().__init__()
        self._group = group
        self._own = {name.rpartition(".")[2]: name.partition(".")[0] for name in own}  # thing -> module
        self._complete = self._loading = False
        self._lock = RLock()

    def __repr__(self) -> str:
        return f"{self._group}: {', '.join(dict.fromkeys((*self._own, *self)))}"  # as far as known: imports nothing

    def register(self, name: str, thing: Thing) -> Thing:
        """Add a `thing` under its `name`; a second one of the same name replaces the first."""
        self[name] = thing
        return thing

    def find(self, name: object) -> Thing | None:
        """Return the thing with this name, or None."""
        if not isinstance(name, str):
            return None
        if name not in self and name in self._own:
            import_module(f"{self._group}.{self._own[name]}")  # only this one: short commands need no others
        return self[name] if name in self or name in self.names() else None

    def names(self) -> tuple[str, ...]:
        """Return all names: holdfast's own first, then in the order of registration."""
        self._fill()
        return tuple(name for name in dict.fromkeys((*self._own, *self)) if name in self)

    def all(self) -> tuple[Thing, ...]:
        """Return all things, in the order of their names."""
        return tuple(self[name] for name in self.names())

    def __missing__(self, name: str) -> Thing:
        self._fill()
        if name not in self:
            raise KeyError(name)
        return self[name]

    def _fill(self) -> None:
        if self._complete:
            return
        with self._lock:
            if self._complete or self._loading:  # _loading: a module being imported below looks something up
                return
            self._loading = True
            try:
                for name in dict.fromkeys(self._own.values()):
                    import_module(f"{self._group}.{name}")
                from importlib.metadata import entry_points  # slow to import, and most sessions need no plug-ins

                for point in entry_points(group=self._group):
                    thing = point.load()  # may register itself
                    if point.name not in self:
                        self.register(point.name, thing)
                self._complete = True
            finally:
                self._loading = False
