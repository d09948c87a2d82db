"""What a run of tests leaves in the checkout is noticed, whatever the tests said."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import left_behind

RUN = """
import sys
from pathlib import Path
import pytest
from left_behind import LeftBehind
sys.exit(pytest.main(["-p", "no:cacheprovider", "-p", "no:xdist", "test_it.py"], plugins=[LeftBehind(Path.cwd())]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("does", "noticed"),
    [
        ("Path('rows.holdfast').mkdir()", "rows.holdfast"),
        ("Path('kept').unlink()", "kept"),
        ("(tmp_path / 'rows.holdfast').mkdir()", None),
        ("Path('.cache').mkdir()", None),
    ],
)
def test_a_run_that_leaves_something_or_takes_something_away_fails(
    tmp_path: Path, does: str, noticed: str | None
) -> None:
    (tmp_path / "kept").touch()
    (tmp_path / "test_it.py").write_text(f"from pathlib import Path\n\n\ndef test_it(tmp_path):\n    {does}\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    environment = os.environ | {"PYTHONPATH": str(Path(left_behind.__file__).parent)}
    ran = subprocess.run(
        [sys.executable, "-c", RUN], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert "1 passed" in ran.stdout
    assert ran.returncode == (1 if noticed else 0)
    assert (f"while tests ran: {noticed}. A test" in ran.stdout) == bool(noticed)
    assert ("left behind" in ran.stdout) == bool(noticed)
