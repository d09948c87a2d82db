"""A run of tests leaves a folder as it found it."""

from pathlib import Path

import pytest

OF_TOOLS = {"__pycache__"}  # and whatever is hidden: what pytest, Hypothesis and others keep between runs


class LeftBehind:
    """A plugin: a run that adds anything to a folder, or removes anything from it, has failed."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._before, self._changed = folder, set[str](), list[str]()

    def _names(self) -> set[str]:
        return {path.name for path in self._folder.iterdir() if path.name[0] != "."} - OF_TOOLS

    def pytest_sessionstart(self) -> None:
        self._before = self._names()

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self._changed = sorted(self._names() ^ self._before)
        if self._changed and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._changed:
            terminalreporter.section("left behind", red=True)
            terminalreporter.line(
                f"Appeared in {self._folder}, or went away, while tests ran: {', '.join(self._changed)}. "
                "A test that writes by a relative path needs monkeypatch.chdir(tmp_path) or a folder of its own."
            )
