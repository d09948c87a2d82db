"""A registry: found by name, in an order that does not depend on who was imported first, complete for every thread."""

import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from holdfast import guarantees, registry
from holdfast.mechanisms import MECHANISMS
from holdfast.questions import KINDS
from holdfast.registry import Registry
from ledger_writer import environment

ORDER = """
import sys
for name in sys.argv[1:]:
    __import__(name)
from holdfast.guarantees import GUARANTEES
from holdfast.mechanisms import MECHANISMS
from holdfast.questions import KINDS
from holdfast.questions import KINDS
print(GUARANTEES.names(), MECHANISMS.names(), KINDS.names())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "first", [[], ["holdfast.mechanisms.fresh_rows", "holdfast.questions.quantile"], ["holdfast.guarantees.split"]]
)
def test_the_order_does_not_depend_on_what_was_imported_first(first: list[str]) -> None:
    command = [sys.executable, "-c", ORDER, *first]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, env=environment()).stdout
    own = tuple(name.rpartition(".")[2] for name in guarantees.OWN)  # without their modules
    assert shown.strip() == f"{own} {MECHANISMS.names()} {KINDS.names()}"


def filled(monkeypatch: pytest.MonkeyPatch, load: object) -> Registry[int]:
    """A registry whose own things are registered by `load`."""
    found: Registry[int] = Registry("numbers", ("one", "two"))
    monkeypatch.setattr(registry, "import_module", lambda name: load(found, name.rpartition(".")[2]))  # type: ignore[operator]
    return found


def test_own_things_come_first_and_others_as_they_were_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = filled(monkeypatch, lambda found, name: found.register(name, len(name)))
    numbers.register("ten", 10)
    numbers.register("two", 2)
    assert numbers.find("one") == 3
    assert numbers.names() == ("one", "two", "ten")
    assert numbers.find("three") is None
    assert numbers.find(["one"]) is None
    with pytest.raises(KeyError):
        numbers["three"]


def test_entry_points_of_other_packages_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [SimpleNamespace(name="nine", load=lambda: 9)]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: points if group == "numbers" else [])
    numbers = filled(monkeypatch, lambda found, name: found.register(name, len(name)))
    assert numbers["nine"] == 9
    assert numbers.all() == (3, 3, 9)


def test_who_looks_while_another_thread_fills_it_sees_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slowly(found: Registry[int], name: str) -> None:
        begun.set()
        assert go_on.wait(60)
        found.register(name, len(name))

    numbers = filled(monkeypatch, slowly)
    seen: list[tuple[str, ...]] = []
    threads = [threading.Thread(target=lambda: seen.append(numbers.names())) for _ in range(2)]
    threads[0].start()
    assert begun.wait(60)
    threads[1].start()
    threads[1].join(0.1)  # it waits
    go_on.set()
    for thread in threads:
        thread.join(60)
    assert seen == [("one", "two")] * 2
