"""Files of evaluation harnesses: those in tests/data/evaluations were written by the tools themselves.

lm-evaluation-harness 0.4.13, its dummy model, a task of five questions with two metrics, and one with two filters.
Inspect 0.3.285, six samples, two epochs, three scorers: grades, two numbers each, and one that leaves a sample unscored
in one epoch; as an archive and, shortened to its samples' scores, as JSON. Every Eval Ever 0.3.0, from logs of the same
two tools: six questions with two metrics; three samples, two epochs, two scorers. Lines without a result's id, which it
does not write, follow its schema.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import holdfast as hf
from holdfast.board.evaluations import is_evaluation, read_evaluation
from holdfast.sklearn import board_scorer

FILES = Path(__file__).parents[2] / "data" / "evaluations"
ROOT = Path(__file__).parents[3]


def scores(path: Path, **chosen: str) -> dict[Any, float]:
    table = read_evaluation(path, **chosen)
    assert table.columns == ["id", "score"]
    return dict(table.iter_rows())


def test_lm_evaluation_harness() -> None:
    path = FILES / "samples_demo.jsonl"
    assert scores(path, metric="acc") == {0: 0.0, 1: 0.0, 2: 1.0, 3: 0.0, 4: 1.0}
    with pytest.raises(hf.InvalidArgument, match="metric must be one of acc, acc_norm"):
        read_evaluation(path)


def test_filters_of_lm_evaluation_harness() -> None:
    path = FILES / "samples_demo_gen.jsonl"
    assert set(scores(path, part="strict")) == set(range(5))
    with pytest.raises(hf.InvalidArgument, match="part must be one of strict, loose"):
        read_evaluation(path)


@pytest.mark.parametrize("name", ["inspect.eval", "inspect.json"])
def test_inspect(name: str) -> None:
    path = FILES / name
    odd = {"q1": 1.0, "q3": 1.0, "q5": 1.0}
    assert scores(path, metric="match") == odd | {"q0": 0.5, "q2": 0.5, "q4": 0.5}  # epochs are averaged
    assert scores(path, metric="parts/right") == scores(path, metric="match")
    assert scores(path, metric="sometimes")["q2"] == 0.5  # partly right
    assert scores(path, metric="sometimes")["q3"] == 1.0  # the epoch that was not scored is left out
    with pytest.raises(hf.InvalidArgument, match="metric must be one of match, parts/length, parts/right, sometimes"):
        read_evaluation(path)


def test_every_eval_ever() -> None:
    """A sample has a line for each result: they are metrics, and not repeats that could be averaged."""
    path = FILES / "every_eval_ever_lm_eval.jsonl"
    assert is_evaluation(path)
    assert scores(path, metric="acc") == {"0": 1.0, "1": 0.0, "2": 0.0, "3": 0.0, "4": 0.0, "5": 1.0}
    assert set(scores(path, metric="acc_norm").values()) == {0.0}
    with pytest.raises(hf.InvalidArgument, match=r"metric must be one of acc, acc_norm, which"):
        read_evaluation(path)
    path = FILES / "every_eval_ever_inspect.jsonl"
    assert scores(path, metric="match:accuracy") == {"q0": 1.0, "q1": 1.0, "q2": 0.0}  # of two epochs
    assert scores(path, metric="graded:mean")["q2"] == pytest.approx(0.87, abs=0.01)


def line(sample: str, score: float, **more: Any) -> str:
    known = {"schema_version": "0.3.0", "evaluation_id": "e", "model_id": "m", "sample_id": sample}
    asked = {"interaction_type": "single_turn", "input": {"raw": "?", "reference": ["!"]}, "output": {"raw": ["!"]}}
    judged = {"answer_attribution": [], "evaluation": {"score": score, "is_correct": score > 0.5}}
    return json.dumps(known | {"evaluation_name": "GSM8K"} | asked | judged | more)


def test_every_eval_ever_without_ids_of_results(tmp_path: Path) -> None:
    path = tmp_path / "instances.jsonl"
    path.write_text("\n".join([line("a", 0.25), line("b", 1.0), line("a", 0.75)]) + "\n")
    assert scores(path, metric="score") == {"a": 0.5, "b": 1.0}
    assert scores(path, metric="is_correct") == {"a": 0.5, "b": 1.0}
    path.write_text("\n".join([line("a", 0.25), line("a", 1.0, evaluation_name="MMLU")]))
    assert scores(path, metric="score", part="MMLU") == {"a": 1.0}
    with pytest.raises(hf.InvalidArgument, match="part must be one of GSM8K, MMLU"):
        read_evaluation(path, metric="score")
    path.write_text("\n".join([line("a", 0.25), line("a", 1.0, evaluation_id="another model's")]))
    with pytest.raises(hf.InvalidArgument, match=r"instances\.jsonl has 2 runs; a submission is one"):
        read_evaluation(path, metric="score")


@pytest.mark.parametrize(
    "content", ["", "not json", '{"x": 1}', "[1, 2]", '{"doc_id": 1, "doc": {}, "metrics": ["a"]}']
)
@pytest.mark.parametrize("ending", [".jsonl", ".json", ".eval"])
def test_other_files_are_refused_in_a_sentence(tmp_path: Path, content: str, ending: str) -> None:
    path = tmp_path / f"x{ending}"
    path.write_text(content)
    with pytest.raises(hf.InvalidArgument, match=r"x\.\w+ (cannot be read|has no scores)"):
        read_evaluation(path)
    assert is_evaluation(path) == (ending != ".jsonl" or "doc_id" in content)


def test_a_metric_without_one_number_for_each_case_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "samples_x.jsonl"
    path.write_text(json.dumps({"doc_id": 0, "doc": {}, "filter": "none", "metrics": ["bleu"], "bleu": [1, 2]}))
    with pytest.raises(hf.InvalidArgument, match="one number for each case"):
        read_evaluation(path)


def test_a_harness_file_is_submitted_to_a_board_of_scores() -> None:
    ids = {"id": [f"q{number}" for number in range(6)]}
    with hf.Board(ids, metric="score", within=(0, 1), about="population", step=0.25) as board:
        answer = board.submit(read_evaluation(FILES / "inspect.eval", metric="match"), by="ci")
        assert answer.cell == (0.75, 1.0)
        assert answer.about == "population"


@pytest.mark.parametrize("id", ["id", "doc_id"])
def test_a_board_of_scores_is_made_of_a_harness_file(tmp_path: Path, id: str) -> None:
    path = Path(shutil.copy(FILES / "samples_demo_gen.jsonl", tmp_path))  # every case twice: two filters
    with hf.Board(path, id=id, metric="score", within=(0, 1), step=0.2) as board:
        assert board.session.plan.rows == 5
        answer = board.submit(read_evaluation(path, part="strict"))
    assert answer.cell == (0.0, 0.2)
    with pytest.raises(hf.InvalidArgument, match="labels must have a column 'label'"):
        hf.Board(path, id="doc_id", metric="accuracy")


def test_a_board_takes_the_file_of_a_harness_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "samples_x.jsonl"
    lines = ({"doc_id": n, "doc": {}, "target": "", "resps": [], "acc": n % 2, "f1": 0.5} for n in range(8))
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    with hf.Board(path, metric="score", within=(0, 1), step=0.25) as board:
        with pytest.raises(hf.InvalidArgument, match=r"metric must be one of acc, f1, which samples_x\.jsonl has"):
            board.submit(path)
        assert board.submit(path, metric="acc").cell == (0.5, 0.75)
        with pytest.raises(hf.InvalidArgument, match="metric and part must be left out unless"):
            board.submit({"id": [1], "score": [1.0]}, metric="acc")


def test_epochs_are_averaged_by_case_and_cases_by_unit() -> None:
    """Two epochs of six questions about three documents of unlike length: documents count alike."""
    found = read_evaluation(FILES / "inspect.eval", metric="match")
    documents = {"q0": "a", "q1": "a", "q2": "a", "q3": "b", "q4": "b", "q5": "c"}
    said = dict(found.iter_rows())
    means = [np.mean([said[id] for id in documents if documents[id] == name]) for name in "abc"]
    labels = {"id": list(documents), "document": list(documents.values())}
    with hf.Board(labels, unit="document", metric="score", within=(0, 1), step=0.01) as board:
        low, high = board.submit(found).cell
    assert low <= np.mean(means) <= high
    assert not low <= np.mean(list(said.values())) <= high


# -- the other ways in -----------------------------------------------------------------------------------------------


class Runner:
    """Runs a composite action as GitHub does: steps in order, expressions put in, files for summary and outputs."""

    def __init__(self, action: Path, folder: Path) -> None:
        self.action, self.folder = action, folder
        self.read = yaml.safe_load((action / "action.yml").read_text())
        command = folder / "bin" / "holdfast"
        command.parent.mkdir()
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -c "from holdfast.cli import main; main()" "$@"\n')
        python = command.with_name("python")  # which installs nothing here, and notes what it should
        python.write_text(
            f'#!/bin/sh\n[ "$1 $2" = "-m pip" ] && echo "$@" >>{folder}/installed && exit\nexec {sys.executable} "$@"\n'
        )
        for each in (command, python):
            each.chmod(0o755)

    def run(self, **inputs: str) -> tuple[int, dict[str, str]]:
        """Run all steps; return how it ended, and the outputs of the action."""
        declared = self.read["inputs"]
        assert inputs.keys() <= declared.keys()
        assert all(name in inputs for name, about in declared.items() if about.get("required"))
        known = {f"inputs.{name}": inputs.get(name, about.get("default")) for name, about in declared.items()}
        known = {"github.sha": "0123abcd"} | known
        known["inputs.name"] = known["github.sha"] if "name" not in inputs else inputs["name"]

        def filled(text: str) -> str:
            return re.sub(r"\$\{\{\s*(\S+)\s*\}\}", lambda found: known[found[1]], text)  # what is unknown fails

        for number, step in enumerate(self.read["runs"]["steps"]):
            assert step.keys() <= {"id", "if", "shell", "env", "run"}
            if "if" in step:
                name, operator, value = step["if"].split()
                assert (operator, value) == ("!=", "''")
                if known[name] == "":
                    continue
            assert step["shell"] == "bash"
            assert "${{" not in step["run"]  # nothing from outside is read as a command
            script, output = self.folder / f"step{number}.sh", self.folder / f"output{number}"
            script.write_text(step["run"])
            output.touch()
            own = {name: filled(value) for name, value in step["env"].items()}
            environment = own | {
                "PATH": f"{self.folder}/bin:/usr/bin:/bin",
                "PYTHONPATH": str(Path(hf.__file__).parents[1]),
                "HOME": str(self.folder),
                "GITHUB_ACTION_PATH": str(self.action),
                "GITHUB_STEP_SUMMARY": str(self.folder / "summary.md"),
                "GITHUB_OUTPUT": str(output),
            }
            command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)]
            done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True)
            lines = (line.split("=", 1) for line in output.read_text().splitlines())
            known |= {f"steps.{step.get('id')}.outputs.{name}": value for name, value in lines}
            if done.returncode:
                return done.returncode, {}
        return 0, {name: filled(about["value"]) for name, about in self.read["outputs"].items()}


@pytest.mark.slow
def test_every_step_of_the_action_runs_and_writes_summary_receipt_and_outputs(tmp_path: Path) -> None:
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    (tmp_path / "ids.csv").write_text("id\n" + "\n".join(f"q{number}" for number in range(6)) + "\n")
    hf.Board(tmp_path / "ids.csv", metric="score", within=(0, 1), step=0.25).close()
    shutil.copy(FILES / "inspect.eval", tmp_path)
    runner = Runner(ROOT / ".github" / "actions" / "submit", tmp_path)
    given = {"board": str(tmp_path / "ids.board.holdfast"), "predictions": "inspect.eval", "metric": "match"}
    ended, outputs = runner.run(**given, name="$(touch owned) `touch owned`")
    assert ended == 0
    assert outputs.keys() == {"improved", "low", "high", "seq"}
    assert (outputs["improved"], outputs["seq"]) == ("true", "1")
    assert float(outputs["low"]) < float(outputs["high"])
    summary = (tmp_path / "summary.md").read_text()
    assert "better than all before" in summary
    assert "labels were drawn anew" in summary
    assert not (tmp_path / "owned").exists()
    assert (tmp_path / "installed").read_text() == "-m pip install --quiet holdfast[client,evaluations]\n"
    receipt = json.loads((tmp_path / "receipt.json").read_text())
    assert receipt["head"]["hash"] in summary
    ended, outputs = runner.run(**given, package="")  # installed already; the same again, under the commit's name
    assert (ended, outputs["seq"]) == (0, "1")
    assert len((tmp_path / "installed").read_text().splitlines()) == 1
    ended, _ = runner.run(**given | {"metric": "nothing"}, package="")
    assert ended == 1
    assert "Submission refused" in (tmp_path / "summary.md").read_text()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_search_climbs_the_board() -> None:
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, ShuffleSplit

    rng = np.random.default_rng(3)
    cases = rng.normal(size=(400, 3))
    truth = (cases @ [1.0, -1.0, 0.5] + rng.normal(size=400)) > 0
    with hf.Board({"id": np.arange(200), "label": truth[:200]}, metric="brier") as board:
        scoring = board_scorer(board, cases[:200], range(200), by="search")
        grid = {"C": [1e-6, 1e-3, 1.0]}
        search = GridSearchCV(LogisticRegression(), grid, scoring=scoring, cv=ShuffleSplit(1, random_state=0))
        search.fit(cases[200:], truth[200:])
        best = board.standings()
    assert search.best_params_["C"] == 1.0
    assert repr(scoring) == "BoardScorer(positive=True, by='search')"  # neither cases nor answers
    assert len(scoring.answers) == best.height + sum(answer.cached for answer in scoring.answers)
    assert set(best["by"]) == {"search"}
    assert search.best_score_ == pytest.approx(-best["cell_high"][0])
