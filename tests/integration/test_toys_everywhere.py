"""What is added in one file works everywhere: in another process, on the command line, over HTTP and for agents."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast as hf
import toys
from holdfast.service.settings import DatasetSettings, Settings
from serving import Running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    toys.write(tmp_path)
    return tmp_path


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process that imports the toys first, as a package with entry points would."""
    imports = "; ".join(f"import {name}" for name in toys.files())
    code = f"{imports}; from holdfast.cli import main; main()"
    places = [str(folder), str(Path(hf.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, places))}
    command = [sys.executable, "-c", code, *words]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, timeout=120)


def test_the_command_line_has_the_source_the_kind_the_guarantee_and_its_mechanism(folder: Path) -> None:
    plan = ("--guarantee", "declared", "--queries", "5", "--ledger", "ledger")
    asked = run(folder, "ask", "evens:100000", "even", "--kind", "percent", "--digits", "0", "--json", *plan)
    assert asked.returncode == 0, asked.stderr
    told = json.loads(asked.stdout)
    assert told["answer"]["kind"] == "percent"
    assert told["answer"]["guarantee"] == "declared"
    assert told["answer"]["rows_read"] == 100_000
    assert told["answer"]["low"] <= 50 == told["answer"]["value"] <= told["answer"]["high"]
    assert told["budget"]["answers_left"] == 4
    refused = run(folder, "ask", "evens:100000", "even", "--where", "number < 10", "--json", *plan)
    assert refused.returncode == hf.NotCovered.exit_code
    assert "says nothing about groups" in json.loads(refused.stdout)["error"]
    described = run(folder, "ask", "--help")
    assert "--digits" in described.stdout
    assert "percent" in described.stdout
    assert "declared" in run(folder, "plan", "--rows", "100000", "--queries", "5").stdout


def test_the_service_has_them_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where the tokens are kept
    with toys.added():
        served = DatasetSettings(path="evens:100000", queries=5, guarantee="declared", ledger=str(tmp_path / "ledger"))
        with Running(Settings(datasets={"evens100000": served}, port=0, token_file=str(tmp_path / "token"))) as running:
            token = running.token()
            with hf.connect(running.url, token) as remote:
                assert remote.plan.guarantee == "declared"
                answer = remote.percent("even", digits=0)
                assert (answer.kind, answer.value, answer.rows_read) == ("percent", 50.0, 100_000)
                assert remote.price("number < 10", "percent").answers == 1
                assert remote.budget.answers_left == 4
                with pytest.raises(hf.NotCovered, match="says nothing about groups"):
                    remote.mean("even", where="number < 10")
                with pytest.raises(hf.InvalidArgument, match="percent has no option 'digit'"):
                    remote.percent("even", digit=0)
            with running.client(token) as client:
                sent = {"kind": "percent", "query": "even", "digits": 0}
                said = client.post("/api/v1/datasets/evens100000/ask", json=sent).json()
                assert said["answer"]["cached"]
                assert said["answer"]["value"] == 50.0
                described = client.get("/api/v1/openapi.json").json()
                assert "digits" in json.dumps(described)
