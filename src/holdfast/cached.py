"""Properties that are computed once.

In Python 3.11 `functools.cached_property` holds one lock for all objects of a class while it computes. A child that is
forked meanwhile inherits the lock without the thread that would release it, and waits for ever; and threads that
compute the properties of different objects wait for each other. Later versions have no lock, and neither has this one:
threads that are equally early compute the same value twice.
"""

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property
else:
    import functools

    class cached_property(functools.cached_property):  # noqa: N801  it takes the place of that one
        """As in later versions of Python."""

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            kept = instance.__dict__
            if self.attrname not in kept:
                kept.setdefault(self.attrname, self.func(instance))
            return kept[self.attrname]


__all__ = ["cached_property"]
