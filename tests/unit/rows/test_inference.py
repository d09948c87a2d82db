"""Types that nobody declared: inferred where they are no matter of chance, and otherwise refused.

Exact: the counts of a column's first values (missing, and of two classes) are multinomial. For every population on a
grid, all types but one are inferred with probability 1.1e-8 at most: whichever type analysts see, it was bound to be
that, or somebody declared it. A rule that asks for 10 values instead of 100 is caught.
"""

import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

import holdfast as hf
from holdfast.cli.output import spell
from holdfast.rows.open import open_rows
from holdfast.rows.scans import inference
from holdfast.rows.scans.files import FileScan
from holdfast.rows.scans.inference import FirstRows, NumbersAsText, is_clear
from holdfast.rows.scans.scan import ColumnsLeftOut
from holdfast.rows.scans.texts import Dialect

ROWS, CHANCE = 240, 1.1e-8
MEANS = [0.0, 0.5, 2, 5, 10, 15, 18.4, 20, 25, 30, 37, 45, 50, 60, 80, 100, 120, 150, 200]


def whole_or_word(whole: int, word: int) -> str | None:
    if not word:
        return ("integer" if is_clear(whole, [], ROWS, if_any=True) else None) if whole else "text"
    return "text" if is_clear(whole + word, [word], ROWS, if_any=False) else None


def whole_or_fraction(whole: int, fraction: int) -> str | None:
    if not fraction:
        return whole_or_word(whole, 0)
    return "number" if is_clear(whole + fraction, [fraction], ROWS, if_any=True) else None


def inferred(decide: Callable[[int, int], str | None], type_: str) -> NDArray[np.bool_]:
    counts = range(ROWS + 1)
    return np.array([[a + b <= ROWS and decide(a, b) == type_ for b in counts] for a in counts])


def second_largest(decide: Callable[[int, int], str | None], types: list[str]) -> float:
    """Return the largest chance, over populations, of a type that is not the likeliest one."""
    tables, counts, worst = [inferred(decide, type_) for type_ in types], np.arange(ROWS + 1), 0.0
    for first in MEANS:
        alone = binom.pmf(counts, ROWS, first / ROWS)
        for second in MEANS:
            if first + second > ROWS:
                continue
            share = min(1.0, second / max(1e-9, ROWS - first))
            joint = alone[:, None] * binom.pmf(counts[None, :], (ROWS - counts)[:, None], share)
            worst = max(worst, sorted(float(joint[table].sum()) for table in tables)[-2])
    return worst


CASES = [(whole_or_word, ["integer", "text"]), (whole_or_fraction, ["integer", "number", "text"])]


@pytest.mark.slow
@pytest.mark.parametrize(("decide", "types"), CASES, ids=["words", "fractions"])
def test_no_two_types_are_inferred_but_by_a_rare_chance(
    decide: Callable[[int, int], str | None], types: list[str]
) -> None:
    assert second_largest(decide, types) <= CHANCE


@pytest.mark.slow
@pytest.mark.parametrize(("decide", "types"), CASES, ids=["words", "fractions"])
def test_a_rule_that_is_content_with_few_values_is_caught(
    decide: Callable[[int, int], str | None], types: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inference, "ENOUGH", 10)
    assert second_largest(decide, types) > 100 * CHANCE


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "chance"), [(100, 5e-6), (50, 1.1e-3), (20, 0.04)])
def test_the_chance_in_short_files_is_as_documented(rows: int, chance: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROWS", rows)
    monkeypatch.setattr(sys.modules[__name__], "MEANS", list(np.linspace(0, rows, 41)))
    worst = max(second_largest(*case) for case in CASES)
    assert chance / 3 < worst <= chance


def csv(tmp_path: Path, *values: str) -> Path:
    path = tmp_path / "t.csv"
    path.write_text("x,y\n" + "".join(f"{value},1\n" for value in values))
    return path


def types_in(rows: object) -> dict[str, str]:
    return {column.name: str(column.type) for column in rows.schema}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        (["4"] * 900 + ["4.5"] * 100, "number"),
        (["4"] * 900 + ["A4"] * 100, "text"),
        (["4.5"] * 99, "number"),
        ([""] * 900 + ["4"] * 100, "integer"),
        ([""] * 999 + ["a remark"], "text"),
        ([""] * 1_000, "text"),
        (["9223372036854775808"] * 60 + ["1"] * 60, "text"),
        (["true"] * 200, "boolean"),
        (["2024-01-31"] * 200, "date"),
        (["1/2/2024"] * 200, "text"),
        ([" 4", "+4", "4"] * 100, "integer"),
        (["2024-01-31 10:00"] * 100 + ["2024-01-31"] * 100, "timestamp"),
    ],
)
@pytest.mark.filterwarnings("ignore::holdfast.rows.scans.inference.UnclearDates")
def test_what_any_other_sample_would_have_shown_is_inferred(values: list[str], type_: str, tmp_path: Path) -> None:
    assert types_in(open_rows(csv(tmp_path, *values)))["x"] == type_


@pytest.mark.parametrize(
    ("values", "what", "type_"),
    [
        (["4"] * 997 + ["4.5"] * 3, "of the 1,000 values in the first 1,000 rows, all but 3 fit integer", "number"),
        (["4"] * 997 + ["A4"] * 3, "of the 1,000 values in the first 1,000 rows, all but 3 fit integer", "text"),
        (["4.5"] * 997 + ["A4"] * 3, "of the 1,000 values in the first 1,000 rows, all but 3 fit number", "text"),
        (["true"] * 997 + ["maybe"] * 3, "all but 3 fit boolean", "text"),
        (["2024-01-31"] * 997 + ["never"] * 3, "all but 3 fit date", "text"),
        (["2024-01-31 10:00"] * 997 + ["never"] * 3, "all but 3 fit timestamp", "text"),
        (["2024-01-31"] * 997 + ["2024-01-31 10:00"] * 3, "all but 3 fit date", "timestamp"),
        (["31-01-2024"] * 3 + ["2024-01-31"] * 997, "all but 3 fit date", "text"),
        (["01-02-2024"] * 997 + ["31-01-2024"] * 3, "in only 3 of 1,000 dates the day can be no month", "date"),
        ([""] * 993 + ["4"] * 7, "only 7 of the first 1,000 rows have a value", "integer"),
    ],
)
def test_what_may_be_a_matter_of_chance_is_declared(values: list[str], what: str, type_: str, tmp_path: Path) -> None:
    path = csv(tmp_path, *values)
    with pytest.raises(hf.RowSourceError) as refused:
        open_rows(path)
    assert "the type of 'x' may be a matter of chance: " in str(refused.value)
    assert what in str(refused.value)
    assert str(refused.value).endswith(f"this would fit: types={{'x': '{type_}'}}.")
    assert not (tmp_path / "t.csv.holdfast").exists()
    assert types_in(open_rows(path, types={"x": type_}))["x"] == type_


def test_all_unclear_columns_are_named_at_once_in_the_words_of_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b,c\n" + "1,2,3\n" * 300 + "1.5,x,3\n")
    with pytest.raises(hf.RowSourceError) as refused:
        open_rows(path)
    assert spell(str(refused.value), {}) == (
        f"{path}: the type of 'a' (and 1 more column like it) may be a matter of chance: of the 301 values in the first"
        " 301 rows, all but 1 fit integer. Declare it, by what you know of it; this would fit: holdfast open DATA"
        " --types a=number,b=text."
    )


def test_json_lines_leave_out_what_is_missing_so_a_column_must_be_there_often(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    lines = ['{"a": 1, "b": 2.0}'] * 300 + ['{"a": 2, "b": 3.5, "error": "disk"}'] * 5
    path.write_text("\n".join(lines))
    with pytest.raises(hf.RowSourceError, match=r"only 5 of the first 305 rows have a value.*\{'error': 'text'\}"):
        open_rows(path)
    rows = open_rows(path, types={"error": "text", "later": "number"})
    assert types_in(rows) == {"a": "integer", "b": "number", "error": "text", "later": "number"}
    assert types_in(open_rows(path)) == types_in(rows)  # the folder remembers
    with pytest.raises(hf.InvalidArgument, match=r"separator must be left out: t\.jsonl is not a CSV file"):
        open_rows(path, separator=";")


def test_a_few_fractions_in_json_lines_are_declared(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join(['{"a": 1, "b": "1"}'] * 300 + ['{"a": 1.5, "b": "x"}']))
    with pytest.raises(hf.RowSourceError, match=r"'a' may be .* all but 1 fit integer.*\{'a': 'number'\}"):
        open_rows(path)
    assert types_in(open_rows(path, types={"a": "number"})) == {"a": "number", "b": "text"}


def test_a_value_of_json_lines_that_does_not_fit_is_refused_by_place(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join(['{"a": 1, "b": 2}'] * 20_000 + ['{"a": 1, "b": 2.5}']))
    with pytest.raises(hf.RowSourceError) as refused:
        open_rows(path)
    assert str(refused.value) == (
        f"{path}, row 20,001: the value of 'b' is not of type integer, as its first 10,000 rows suggest. Declare what"
        " fits all values, for example types={'b': 'text'}."
    )
    assert types_in(open_rows(path, types={"b": "number"})) == {"a": "integer", "b": "number"}


# -- One value decides nothing ----------------------------------------------------------------------------------------

WRITTEN = ["4", "4.5", "x", "true", "9223372036854775808", "NA", "NaN", "1/2/2024", "31/01/2024"]
WRITTEN += ["2024-01-31", "31-01-2024", "01-02-2024", "31-01-24", "2024-01-31 10:00:00", "2024-01-31T10:00:00Z"]
RECORDED = ["1", "1.5", "true", '"a"', '"2024-01-31"', '"4"', '{"b": 1}', "[1]", "9223372036854775808"]


def mixtures(values: list[str]) -> list[tuple[list[str], str, str]]:
    """Return columns of one or two kinds of values, 200 each, and one value more, of any kind and at either end."""
    pairs = itertools.combinations_with_replacement(values, 2)
    return [([a] * 100 + [b] * 100, one, end) for a, b in pairs for one in values for end in ("first", "last")]


def with_one(values: list[str], one: str, end: str) -> list[str]:
    return [one, *values] if end == "first" else [*values, one]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_one_value_of_a_csv_file_never_decides_between_two_types(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = mixtures(WRITTEN)
    without = {values[0] + values[-1]: [*values, ""] for values, _, _ in kinds}
    columns = [with_one(*kind) for kind in kinds] + list(without.values())
    path = tmp_path / "t.csv"
    lines = [",".join(f"c{number}" for number in range(len(columns))), *map(",".join, zip(*columns, strict=True))]
    path.write_text("\n".join(lines) + "\n")
    refused: dict[str, object] = {}
    monkeypatch.setattr(FirstRows, "_refuse", lambda rows: refused.update(rows._odd))
    monkeypatch.setattr(FirstRows, "_spellings", lambda *args: [])
    scan = FileScan(path, [path], Dialect())
    scan.open()
    found = [None if name in refused else storage.type for name, storage in scan.columns.items()]
    alone = dict(zip(without, found[len(kinds) :], strict=True))
    for (values, one, end), type_ in zip(kinds, found[: len(kinds)], strict=True):
        none = alone[values[0] + values[-1]]
        assert type_ is None or none is None or type_ == none, (values[0], values[-1], one, end, none, type_)
    assert {str(kind) for kind in alone.values()} == {"integer", "number", "boolean", "date", "timestamp", "text"}
    assert found[: len(kinds)].count(None) < len(kinds) / 4  # most are not refused


def records(path: Path, values: list[str]) -> object:
    """Return the type of a column of JSON lines; False if it is left out, None if the file is refused."""
    path.write_text("\n".join(f'{{"y": 1, "x": {value}}}' for value in values))
    scan = FileScan(path, [path], Dialect())
    try:
        scan.open()
    except hf.RowSourceError:
        return None
    return scan.columns["x"].type if "x" in scan.columns else False


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::holdfast.rows.scans.scan.ColumnsLeftOut")
def test_one_value_of_json_lines_never_decides_between_two_types(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    alone: dict[str, object] = {}
    for values, one, end in mixtures(RECORDED):
        key = values[0] + values[-1]
        alone[key] = none = alone[key] if key in alone else records(path, values)
        found = records(path, with_one(values, one, end)) if none is not None else None
        assert found is None or found == none, (values[0], values[-1], one, end, none, found)
    assert {str(kind) for kind in alone.values()} == {"integer", "number", "boolean", "text", "False", "None"}


def test_dates_of_json_lines_are_texts_unless_declared(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join(['{"day": "2024-01-31"}'] * 300))
    assert types_in(open_rows(path)) == {"day": "text"}
    assert types_in(open_rows(path, types={"day": "date"})) == {"day": "date"}


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_the_first_rows_are_those_of_all_files(suffix: str, tmp_path: Path) -> None:
    """If only the first file counted, its few rows would decide."""
    for number in range(8):
        values = ["1"] * 50 if number == 0 else ["1"] * 25 + ["1.5"] * 25
        lines = ["x", *values] if suffix == "csv" else [json.dumps({"x": float(value)}) for value in values]
        if suffix == "jsonl" and number == 0:
            lines = ['{"y": 1}'] * 50
        (tmp_path / f"{number}.{suffix}").write_text("\n".join(lines) + "\n")
    if suffix == "jsonl":
        with pytest.raises(hf.RowSourceError, match="only 50 of the first 400 rows have a value"):
            open_rows(str(tmp_path / f"*.{suffix}"), folder=tmp_path / "f.holdfast")
    types = {} if suffix == "csv" else {"y": "integer"}
    rows = open_rows(str(tmp_path / f"*.{suffix}"), folder=tmp_path / "f.holdfast", types=types)
    assert types_in(rows)["x"] == "number"


@pytest.mark.parametrize("place", ["0", "2"])
def test_empty_files_of_json_lines_say_nothing(place: str, tmp_path: Path) -> None:
    (tmp_path / "1.jsonl").write_text('{"x": 1}\n' * 300)
    (tmp_path / f"{place}.jsonl").touch()
    rows = open_rows(str(tmp_path / "*.jsonl"), folder=tmp_path / "f.holdfast")
    assert types_in(rows) == {"x": "integer"}
    assert len(rows) == 300


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_one_unit_with_many_rows_does_not_decide_a_type(ending: str, tmp_path: Path) -> None:
    people = [*range(300), *[300] * 200]
    frame = pl.DataFrame({"person": people, "x": [1.0] * 300 + [1.5] * 200, "n": [2] * 500})
    path = tmp_path / f"t.{ending}"
    if ending == "csv":
        path.write_text("person,x,n\n" + "".join(f"{one},{x:g},{n}\n" for one, x, n in frame.iter_rows()))
    else:
        path.write_text("".join(f'{{"person": {one}, "x": {x:g}, "n": {n}}}\n' for one, x, n in frame.iter_rows()))
    with pytest.raises(hf.RowSourceError, match=r"of the 301 values in the first 301 units, all but 1 "):
        open_rows(path, unit="person")
    with pytest.raises(hf.RowSourceError, match=r"all but 1 "):
        hf.deal(path, tmp_path / "t.deck", cards=1_000, unit="person")
    rows = open_rows(path, unit="person", types={"x": "number"})
    assert types_in(rows) == {"x": "number", "n": "integer"}
    assert types_in(open_rows(path, folder=tmp_path / "by_row.holdfast"))["x"] == "number"  # 200 rows of their own


@pytest.mark.parametrize(
    ("value", "what"),
    [("2024-01-31", "dates"), ("2024-01-31 10:00:00", "dates"), ("true", "yes-or-no values"), ("4", "numbers")],
)
@pytest.mark.parametrize("missing", [3, 300])
def test_a_word_for_what_is_missing_is_named_in_columns_of_every_type(
    value: str, what: str, missing: int, tmp_path: Path
) -> None:
    path = csv(tmp_path, *[value] * 700, *["NA"] * missing)
    with pytest.warns(NumbersAsText) if missing == 300 else pytest.raises(hf.RowSourceError) as told:
        open_rows(path)
    message = str(told.value if isinstance(told, pytest.ExceptionInfo) else told[0].message)
    assert f"{what} are " in message
    assert message.endswith("null_values=['NA'].")
    assert types_in(open_rows(path, null_values=["NA"]))["x"] not in ("text", "?")


LINES = [f"{n};{n % 7},5;{'-' if n % 50 == 0 else n};{'1,5' if n == 3 else ''};2024-01-31" for n in range(300)]


def test_all_that_must_be_said_of_a_file_is_said_at_once_and_right_as_typed(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["id;share;pages;fine;day", *LINES]))
    with pytest.raises(hf.RowSourceError) as refused:
        open_rows(path)
    message = str(refused.value)
    assert message.startswith(f"{path} has only one column, 'id;share;pages;fine;day'.")
    assert message.count("After that, because of ") == 2
    assert message.count("After that, the type of 'fine' may be a matter of chance: only 1 of the first 300") == 1
    options = "separator=';', null_values=['-'], decimal=',', types={'fine': 'number'}"
    assert message.endswith(f" All together: {options}.")
    typed = "holdfast open DATA --separator ';' --null-values - --decimal ',' --types fine=number"
    assert spell(message, {}).endswith(f" All together: {typed}.")
    assert message.count(" say it when opening. All together: ") == 1
    assert spell(spell(message, {}), {}) == spell(message, {})  # commands in groups word it twice
    assert not (tmp_path / "t.csv.holdfast").exists()
    rows = open_rows(path, separator=";", null_values=["-"], decimal=",", types={"fine": "number"})
    assert types_in(rows) == {"id": "integer", "share": "number", "pages": "integer", "fine": "number", "day": "date"}


def test_words_for_what_is_missing_and_types_are_asked_for_in_one_round(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    lines = [f"{n},{'.' if n % 50 == 0 else n},{'1.5' if n == 3 else 1}" for n in range(300)]
    path.write_text("\n".join(["id,pages,fine", *lines]))
    with pytest.raises(
        hf.RowSourceError, match=r"All together: null_values=\['\.'\], types=\{'fine': 'number'\}\.$"
    ) as told:
        open_rows(path)
    assert spell(str(told.value), {}).endswith(
        "All together: holdfast open DATA --null-values '.' --types fine=number."
    )
    assert types_in(open_rows(path, null_values=["."], types={"fine": "number"}))["pages"] == "integer"


def test_what_follows_from_advice_is_said_with_it(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["id,pages,age", *(f"{n},{n if n < 9 else 'NA'},{n % 3 or 'NA'}" for n in range(300))]))
    options = {"null_values": ["NA"], "types": {"pages": "integer"}}
    together = f"All together: null_values=['NA'], types={options['types']!r}."
    with pytest.warns(NumbersAsText) as told:
        open_rows(path)
    assert [str(each.message).endswith(together) for each in told] == [True]
    rows = open_rows(path, **options)  # type: ignore[arg-type]
    assert types_in(rows) == {"id": "integer", "pages": "integer", "age": "integer"}


def test_texts_with_a_few_commas_are_declared(tmp_path: Path) -> None:
    path = csv(tmp_path, *["4"] * 300, '"4,6"')
    with pytest.raises(hf.RowSourceError, match=r"If they are texts, declare .* types=\{'x': 'text'\}\.$") as told:
        open_rows(path)
    assert "If they are texts, declare that: holdfast open DATA --types x=text." in spell(str(told.value), {})
    assert types_in(open_rows(path, types={"x": "text"}))["x"] == "text"


def test_of_many_columns_the_first_are_named(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(
        "\n".join([",".join(f"c{n}" for n in range(40)), *[",".join(["1"] * 40)] * 300, ",".join(["NA"] * 40)])
    )
    with pytest.raises(hf.RowSourceError, match="in 'c0', 'c1', 'c2', 'c3', 'c4' and 35 more columns"):
        open_rows(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1,0,0,5\n1,2,3,4\n", "two columns named '0'; rename one of them. If line 1 does not name"),
        ("3,2,a,b\n" + "1,2,3,4,5\n" * 3, "line 2: 5 values, where the header has 4 columns. If a .* If line 1 does"),
        ("# Data source: https://x.org\n" + "a,b\n1,2\n", "line 2: 2 values, .* 1 column. If a .* If line 1 does not"),
        ("Series:\nof:\n\na,b\n1,2\n", "one column, 'Series:'. If its values are separated by ':', say so: sep"),
        ("a:b\n1:2\n", "one column, 'a:b'. If its values are separated by ':', say so: separator=':'"),
        (f"a{'b' * 900};c\n1;2\n", r"one column, 'a(b{59})\.\.\.'\. If"),
    ],
)
def test_a_first_line_that_is_no_header_is_said_to_be_none(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(hf.RowSourceError, match=said):
        open_rows(path)


def test_what_was_said_before_is_kept_and_not_asked_again(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["id;share;pages;fine;day", *LINES]))
    with pytest.raises(hf.RowSourceError, match=r"All together: null_values=\['-'\], types=\{'fine': 'number'\}\.$"):
        open_rows(path, separator=";", decimal=",")
    with pytest.raises(hf.RowSourceError, match=r"this would fit: types=\{'fine': 'number'\}\.$"):
        open_rows(path, separator=";", decimal=",", null_values=["-"])


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        (['"4"'] * 997 + ['""'] * 3, "integer"),
        (['"4.5"'] * 300 + ['""'] * 700, "number"),
        (['"2024-01-31"'] * 300 + ['""'] * 3, "date"),
        (['"true"'] * 300 + ['""'] * 3, "boolean"),
        (['"a"'] * 3 + ['""'] * 997, "text"),
        (['""'] * 1_000, "text"),
    ],
)
def test_nothing_in_quotation_marks_is_a_missing_value(values: list[str], type_: str, tmp_path: Path) -> None:
    assert types_in(open_rows(csv(tmp_path, *values)))["x"] == type_


def test_few_values_among_empty_quotation_marks_are_few(tmp_path: Path) -> None:
    with pytest.raises(hf.RowSourceError, match="only 7 of the first 1,000 rows have a value"):
        open_rows(csv(tmp_path, *['"4"'] * 7, *['""'] * 993))


def test_an_empty_column_of_json_lines_is_kept_if_it_is_declared(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"a": 1, "b": null}\n' * 10)
    with pytest.warns(ColumnsLeftOut) as told:
        assert types_in(open_rows(path)) == {"a": "integer"}
    (warning,) = told
    assert str(warning.message) == (
        f"{path}: left out, because they have no values: 'b'. To keep them, declare their types."
    )
    assert types_in(open_rows(path, types={"b": "text"})) == {"a": "integer", "b": "text"}


# -- What is counted --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rest", [{}, {"x": None}])
def test_a_column_that_few_units_have_is_declared_wherever_their_rows_are(
    rest: dict[str, None], tmp_path: Path
) -> None:
    """If only the first row of each unit counted, one later row would decide whether analysts see a column."""
    path = tmp_path / "t.jsonl"
    first = [{"person": one, "n": 2} | rest for one in range(300)]
    path.write_text("\n".join(map(json.dumps, [*first, {"person": 7, "n": 2, "x": 4}])))
    with pytest.raises(hf.RowSourceError, match=r"'x' may be .*: only 1 of the first 300 units have a value\."):
        open_rows(path, unit="person")


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_columns_that_are_empty_in_the_first_row_of_each_unit_have_the_type_of_later_rows(
    ending: str, tmp_path: Path
) -> None:
    path = tmp_path / f"t.{ending}"
    visits = [(one, "" if visit == 0 else "4") for visit in range(3) for one in range(300)]
    if ending == "csv":
        path.write_text("person,since\n" + "".join(f"{one},{since}\n" for one, since in visits))
    else:
        path.write_text("".join(f'{{"person": {one}, "since": {since or "null"}}}\n' for one, since in visits))
    assert types_in(open_rows(path, unit="person")) == {"since": "integer"}


def counts(path: Path, columns: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Return for each column how many values there are, and how many do not fit each type."""
    found: list[list[int]] = []

    def noted(
        first: FirstRows, name: str, misfits: list[tuple[pl.DataType, int]], *args: object, **named: bool
    ) -> object:
        found.append([first._present[name], *(count for _, count in misfits)])
        return pl.String()

    monkeypatch.setattr(FirstRows, "_decide", noted)
    monkeypatch.setattr(FirstRows, "_spellings", lambda *args: [])
    rows = itertools.zip_longest(*columns, fillvalue="")
    path.write_text("\n".join([",".join(f"c{n}" for n in range(len(columns))), *map(",".join, rows)]), newline="")
    FileScan(path, [path], Dialect()).open()
    return found


SPELLINGS = [*WRITTEN, "+5", " 4", "4 ", "007", "1e5", "1e400", "inf", "-", "1_000", "0x1F", "TRUE", "yes", "9" * 400]
SPELLINGS += [
    "٣٤",
    "\u00a04",
    "\v4",
    '"\n4"',
    '"4"',
    '""',
    '"1,5"',
    "2024-01-31T10:00:00.5",
    "1.2.2024 10:00",
    "2024-02-30",
]


@pytest.mark.filterwarnings("ignore")
def test_each_value_counts_once_whatever_the_others_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """The statement is about sums of independent indicators."""
    rng = np.random.default_rng(seed)
    columns = [list(rng.choice(SPELLINGS, rng.integers(2, 30))) for _ in range(300)]
    alone = counts(tmp_path / "alone.csv", [[each] for each in SPELLINGS], monkeypatch)
    assert all(0 <= count <= present for present, *misfits in alone for count in misfits)
    of = dict(zip(SPELLINGS, map(np.array, alone), strict=True))
    together = counts(tmp_path / "together.csv", columns, monkeypatch)
    assert together == [sum(of[each] for each in column).tolist() for column in columns]


def test_digits_of_other_scripts_are_no_dates(tmp_path: Path) -> None:
    path = csv(tmp_path, *["\u0661/\u0662/\u0662\u0660\u0662\u0664"] * 200)
    with pytest.raises(hf.RowSourceError, match=r"row 1: the value of 'x' is not of type date, as declared"):
        open_rows(path, types={"x": "date"})


# -- What cannot be read ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 300])
@pytest.mark.parametrize("other", ["[1]", '{"a": 1}'])
def test_lists_among_other_values_are_texts_if_they_are_declared(other: str, count: int, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"x": 1, "y": 2}\n' * 300 + f'{{"x": {other}, "y": 2}}\n' * count)
    with pytest.raises(hf.RowSourceError, match=r"'x' may be .*: its values are of several kinds.*\{'x': 'text'\}"):
        open_rows(path)
    assert types_in(open_rows(path, types={"x": "text"})) == {"x": "text", "y": "integer"}


@pytest.mark.filterwarnings("ignore::holdfast.rows.scans.scan.ColumnsLeftOut")
@pytest.mark.parametrize("lists", [1, 300])
def test_columns_of_lists_and_records_are_left_out(lists: int, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    large = 2**70
    lines = [f'{{"x": {{"a": 1}}, "y": 2, "z": {large}}}'] * 300 + [f'{{"x": [1], "y": 2, "z": {large}}}'] * lists
    path.write_text("\n".join(lines))
    assert types_in(open_rows(path)) == {"y": "integer"}


def test_large_integers_that_are_left_out_are_called_so_and_kept_if_they_are_declared(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(f'{{"x": {2**70}, "y": 2}}\n' * 200)
    with pytest.warns(ColumnsLeftOut) as told:
        assert types_in(open_rows(path)) == {"y": "integer"}
    assert str(told[0].message) == (
        f"{path}: left out, because of their types: 'x' (integers of more than 64 bits). To keep them, declare their"
        " types."
    )
    assert types_in(open_rows(path, types={"x": "text"})) == {"x": "text", "y": "integer"}


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (f'{{"x": {2**140}}}', "a number is too large to be read. Integers of more than 128 bits"),
        ('{"x": 1E400}', "a number is too large to be read."),
        ('{"x": NaN}', "it is no record of JSON. Write one in each line"),
        ('{"x": 1', "it is no record of JSON."),
        ("[1]", "it is no record of JSON."),
        ("5", "it is no record of JSON."),
        ('{"x": ' + "[" * 100_000, "it is no record of JSON."),
        ('\ufeff{"x": 1}', "it begins with a byte-order mark, which JSON has not."),
        ('{"x": "\udcff"}', "its text is not utf-8."),
    ],
)
@pytest.mark.parametrize("before", [0, 300, 12_000])
def test_a_line_of_json_that_cannot_be_read_is_named(line: str, what: str, before: int, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(('{"x": 1}\n' * before + line + "\n").encode("utf-8", "surrogateescape"))
    with pytest.raises(hf.RowSourceError) as refused:
        open_rows(path)
    assert str(refused.value).startswith(f"{path}, line {before + 1}: {what}")


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_an_empty_file_of_json_lines_is_called_empty(text: str, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(text)
    with pytest.raises(hf.RowSourceError, match=r"t\.jsonl is empty; holdfast needs at least one row\.$"):
        open_rows(path)


@pytest.mark.parametrize("header", ["y,x", "x", "x,y,z", "x,z", "secret,value"])
def test_csv_files_whose_columns_differ_are_named_without_their_values(header: str, tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("x,y\n" + "1,2\n" * 300)
    (tmp_path / "2.csv").write_text(header + "\n" + ",".join("3" * len(header.split(","))) + "\n")
    with pytest.raises(hf.RowSourceError) as refused:
        open_rows(str(tmp_path / "*.csv"), folder=tmp_path / "f.holdfast")
    assert str(refused.value) == (
        f"{tmp_path / '2.csv'}: its first line does not name the same columns, in the same order, as that of"
        f" {tmp_path / '1.csv'}. Files that are read together must."
    )


@pytest.mark.parametrize("place", ["0", "2"])
def test_an_empty_csv_file_among_others_is_named(place: str, tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("x,y\n" + "1,2\n" * 300)
    (tmp_path / f"{place}.csv").touch()
    with pytest.raises(hf.RowSourceError, match=rf"{place}\.csv is empty, without even a header\. Remove it"):
        open_rows(str(tmp_path / "*.csv"), folder=tmp_path / "f.holdfast")


@pytest.mark.parametrize("declared", [False, True])
@pytest.mark.parametrize(("one", "other"), [("2024-01-31", "01/02/2024"), ("31.01.2024 10:00", "2024-01-02 10:00")])
def test_files_that_write_dates_in_two_orders_are_refused(one: str, other: str, declared: bool, tmp_path: Path) -> None:
    """The first rows, of the first file alone, say nothing of them, and Polars reads each file as it begins."""
    kind = {"types": {"d": "timestamp" if ":" in one else "date"}} if declared else {}
    (tmp_path / "1.csv").write_text("d,y\n" + f"{one},1\n" * 10_000)
    (tmp_path / "2.csv").write_text('d,y\n"",1\n' + f"{other},1\n" * 300)
    with pytest.raises(hf.RowSourceError, match=r"2\.csv: dates of 'd' are not written in the same order as in .*1\."):
        open_rows(str(tmp_path / "*.csv"), folder=tmp_path / "f.holdfast", **kind)  # type: ignore[arg-type]
    (tmp_path / "2.csv").write_text('d,y\n"",1\n' + f"{one},1\n" * 300)
    assert len(open_rows(str(tmp_path / "*.csv"), folder=tmp_path / "f.holdfast", **kind)) == 10_301  # type: ignore[arg-type]
