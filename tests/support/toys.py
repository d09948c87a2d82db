"""The four toys of docs/explanation/extending.md, taken from the page itself: one of each thing that can be added."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from holdfast.guarantees import GUARANTEES
from holdfast.mechanisms import MECHANISMS
from holdfast.questions import KINDS
from holdfast.rows.open import ROW_SOURCES

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "extending.md"
_FILE = re.compile(r"<!-- file: (?P<name>\w+)\.py -->\n```python\n(?P<text>.*?)```", re.DOTALL)
REGISTRIES = (GUARANTEES, MECHANISMS, KINDS, ROW_SOURCES)


def files() -> dict[str, str]:
    """The files on the page, by name."""
    return {found["name"]: found["text"] for found in _FILE.finditer(PAGE.read_text())}


def write(folder: Path) -> list[str]:
    """Write the files as modules; return their names."""
    for name, text in files().items():
        (folder / f"{name}.py").write_text(text)
    return list(files())


@contextmanager
def added() -> Iterator[dict[str, ModuleType]]:
    """Run every file as a module; forget what it registered afterwards."""
    for registry in REGISTRIES:
        registry.names()  # everything of one's own is there first
    before = [set(registry) for registry in REGISTRIES]
    modules = {}
    try:
        for name, text in files().items():
            module = ModuleType(name)
            sys.modules[name] = module  # dataclasses look their module up
            exec(compile(text, f"{name}.py", "exec"), module.__dict__)
            modules[name] = module
        yield modules
    finally:
        for registry, names in zip(REGISTRIES, before, strict=True):
            for name in set(registry) - names:
                registry.pop(name)
        for name in modules:
            sys.modules.pop(name, None)
