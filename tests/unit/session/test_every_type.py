"""Whatever a session accepts of a column, of whatever type, it answers: nothing is paid for and then fails.

Every kind of question that compares or counts values is asked about columns of every type, in a session, over HTTP and
in SQL; groups are found again by the values they were asked with, also in a stored answer.
"""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from starlette.testclient import TestClient

import holdfast as hf
from holdfast.errors import InvalidArgument
from holdfast.queries.node import literal_text
from holdfast.questions import KINDS
from holdfast.questions.mean import GroupsAnswer
from holdfast.service.app import build
from holdfast.service.calls import read_answer
from holdfast.service.settings import DatasetSettings, Settings

pytestmark = pytest.mark.slow  # together they take seconds

ROWS = 60_000
DAYS = [date(2020, 1, 30), date(2020, 1, 31), date(2020, 2, 1)]
HOURS = [datetime(2020, 1, 31, 0), datetime(2020, 1, 31, 12), datetime(2020, 1, 31, 13, 30, 5)]
ELSEWHERE = timezone(timedelta(hours=2))
VALUES: dict[str, list[Any]] = {
    "day": DAYS,
    "hour": HOURS,
    "zoned": HOURS,
    "price": [0.25, 1.5, 2.0],
    "kind": ["a", "b, c", "2020-01-31"],
    "level": ["low", "mid", "high"],
    "flag": [True, False],
    "count": [-1, 0, 7],
    "x": [0.0, 0.5, 1e-300],
    "text": ["ü", "it's", "z"],
}


def table() -> pl.DataFrame:
    rng = np.random.default_rng(5)
    drawn = {name: [values[i] for i in rng.integers(0, len(values), ROWS)] for name, values in VALUES.items()}
    zoned = pl.Series(drawn.pop("zoned"), dtype=pl.Datetime("us")).dt.replace_time_zone("UTC")
    return pl.DataFrame(drawn, strict=False).with_columns(
        zoned.alias("zoned"),
        pl.Series("price", drawn["price"], dtype=pl.Float32),  # a table with decimals is refused when it is opened
        pl.Series("kind", drawn["kind"], dtype=pl.Categorical),
        pl.Series("level", drawn["level"], dtype=pl.Enum(VALUES["level"])),
        pl.Series("y", rng.random(ROWS)),
        pl.Series("b", rng.random(ROWS) < 0.3),
        pl.Series("person", np.arange(ROWS) // 2),
    )


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("types") / "rows.parquet"
    table().write_parquet(path)
    return path


@pytest.fixture(scope="module")
def sessions(rows: Path) -> Iterator[list[hf.Session]]:
    """Rows on disk and in memory; their categories are declared."""
    of_memory = hf.Session(table(), categories=VALUES, queries=1_000, seed=1)
    with of_memory, hf.Session(rows, categories=VALUES, queries=1_000, seed=1) as of_file:
        yield [of_memory, of_file]


def about(name: str) -> list[tuple[str, dict[str, Any]]]:
    """Return a question of every kind that accepts this column."""
    values, within = VALUES[name], {"within": (-1, 7)}
    is_first = f"{name} = {literal_text(values[0])}"
    asked: list[tuple[str, dict[str, Any]]] = [
        ("mean", {"query": is_first}),
        ("mean", {"query": "b", "where": is_first}),
        ("mean", {"query": "b", "by": name}),
        ("mean", {"query": "b", "by": name, "groups": values[:2]}),
        ("mean", {"query": "y", "within": (0, 1), "by": name, "slices": [0.25]}),
        ("mean", {"query": "y", "within": (0, 1), "by": name, "slices": "auto"}),
        ("mean", {"query": "b", "by": [name, "flag" if name != "flag" else "level"]}),
        ("mean", {"query": "b", "by": [name, "hour" if name != "hour" else "day"], "mechanism": "gaussian"}),
        ("difference", {"query": "b", "group": is_first}),
        ("count", {"query": is_first}),
        ("total", {"query": "y", "within": (0, 1), "where": is_first}),
        ("histogram", {"query": name}),
        ("histogram", {"query": name, "categories": values[:1], "where": "b"}),
        ("histogram", {"query": name, "mechanism": "gaussian"}),
        ("top", {"query": name}),
        ("register", {"questions": [{"query": "b", "by": name}, {"kind": "histogram", "query": name}]}),
    ]
    if name in ("price", "count", "x"):
        other = {"other": "y", "other_within": (0, 1), **within}
        asked += [(kind, {"query": name, **within}) for kind in ("mean", "total", "variance", "std")]
        asked += [(kind, {"query": name, **other}) for kind in ("covariance", "correlation", "slope")]
        asked += [("quantile", {"query": name, "q": 0.5, **within})]
        asked += [("auc", {"query": name, "positive": "b", **within})]
        asked += [("histogram", {"query": name, "bins": [-1, 0.3, 8]})]
    return asked


@pytest.mark.parametrize("name", VALUES)
def test_what_is_asked_is_answered_and_found_again(sessions: list[hf.Session], name: str) -> None:
    for session in sessions:
        for kind, options in about(name):
            subject, *others = options.items()
            tried = session.dry_run(subject[1], kind, **dict(others))
            answer, again = (session.ask(subject[1], kind, **dict(others)) for _ in range(2))
            assert again.cached, (kind, options)
            assert again.result() == answer.result() == read_answer(answer.to_dict()).result()
            assert tried.result().keys() == answer.result().keys()
            assert "<" in answer._repr_html_()
    assert sessions[0].history().height == sessions[1].history().height


@pytest.mark.parametrize("name", VALUES)
def test_groups_and_categories_are_found_by_their_values(sessions: list[hf.Session], name: str) -> None:
    session, values = sessions[0], VALUES[name]
    for _ in ("asked", "asked before"):
        groups, shares = session.mean("b", by=name), session.histogram(name)
        for value, answer in zip(values, groups.answers, strict=True):
            for known in (value, (value,), str(value)):
                assert groups[known] is answer
            assert shares[value] is shares[str(value)]
        assert list(groups.values()) == list(groups.answers)
        assert groups.frame.height == len(values)
        both = session.mean("b", by=[name, "count" if name != "count" else "x"])
        other = VALUES["count" if name != "count" else "x"][1]
        for place, value in enumerate(values):
            assert both[value, other] is both.answers[3 * place + 1]


def test_dates_and_timestamps_are_texts_in_answers(sessions: list[hf.Session]) -> None:
    for session in sessions:
        days, hours = session.mean("b", by="day"), session.mean("b", by="hour")
        shares = session.histogram("hour")
        assert list(days) == days.frame["day"].to_list() == ["2020-01-30", "2020-01-31", "2020-02-01"]
        assert list(hours) == ["2020-01-31 00:00:00", "2020-01-31 12:00:00", "2020-01-31 13:30:05"]
        assert days[np.datetime64("2020-01-31")] is days[date(2020, 1, 31)] is days.answers[1]
        for noon in ("2020-01-31T12:00", datetime(2020, 1, 31, 14, tzinfo=ELSEWHERE), "2020-01-31T13:00+01:00"):
            assert hours[noon] is hours.answers[1]
            assert shares[noon] is shares["2020-01-31 12:00:00"]
        assert hours[date(2020, 1, 31)] is hours["2020-01-31"] is hours.answers[0]
        assert "2020-02-02" not in days
        assert date(2020, 2, 2) not in hours
        found = session.sql(f"SELECT day, AVG(b) AS share, COUNT(*) AS n FROM {session.schema.dataset} GROUP BY day")
        assert found["day"].to_list() == DAYS
        assert all(low < 0.3 < high for low, high in found.select("share_low", "share_high").rows())


def test_a_text_is_not_mistaken_for_a_timestamp() -> None:
    texts = ["2020-01-31 00:00:00", "2020-01-31"]
    with hf.Session({"t": texts * 3_000, "b": [True, False] * 3_000}, queries=50, seed=1) as session:
        for found in (session.mean("b", by="t", groups=texts), session.histogram("t", categories=texts)):
            assert [found[text] is one for text, one in zip(texts, found.values(), strict=False)] == [True, True]
        assert session.mean("b", by="t", groups=texts)["2020-01-31"].value < 0.5


def test_a_server_answers_for_every_type(rows: Path) -> None:
    token = "t" * 40
    served = DatasetSettings(
        path=str(rows), queries=1_000, categories=VALUES, ledger=str(rows.with_name("served.ledger"))
    )
    app = build(Settings(datasets={"rows": served}, admin_token=token, rate=1e6, burst=10**6))
    with TestClient(app, "http://127.0.0.1", headers={"Authorization": f"Bearer {token}"}) as client:
        for name, values in VALUES.items():
            sent = [str(value) if isinstance(value, date) else value for value in values]
            body = {"query": "b", "by": name, "groups": sent}
            found = [client.post("/api/v1/datasets/rows/ask", json=body).json() for _ in range(2)]
            assert [one["answer"]["cached"] for one in found] == [False, True]
            answer = read_answer(found[1]["answer"])
            assert isinstance(answer, GroupsAnswer)
            assert [answer[value] for value in values] == list(answer.answers)
            sql = client.post(
                "/api/v1/datasets/rows/sql", json={"sql": f"SELECT {name}, AVG(b) FROM rows GROUP BY {name}"}
            )
            assert sql.status_code == 200, sql.text


def test_a_dry_run_fails_where_the_answer_could_not_be_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = KINDS["mean"]

    def unwritable(*args: Any, **options: Any) -> Any:
        question = kind.question(*args, **options)
        object.__setattr__(question, "run", lambda _: {"value": date(2020, 1, 1)})
        return question

    with hf.Session({"b": [True, False] * 500}, seed=1) as session:
        monkeypatch.setattr("holdfast.session.session.kind_named", lambda _: _Kind(kind, unwritable))
        with pytest.raises(InvalidArgument, match="must be plain JSON"):
            session.dry_run("b")


class _Kind:
    def __init__(self, kind: Any, question: Any) -> None:
        self.kind, self.question = kind, question


def test_the_same_instant_twice_is_refused_before_it_is_paid_for() -> None:
    noon = datetime(2020, 1, 31, 12)
    with hf.Session(table(), seed=1) as session:
        for same in (noon.replace(tzinfo=UTC), noon.replace(hour=14, tzinfo=ELSEWHERE), "2020-01-31T12:00:00Z"):
            for ask in (
                lambda: session.histogram("hour", categories=[noon, same]),  # noqa: B023
                lambda: session.mean("b", by="hour", groups=[noon, same]),  # noqa: B023
                lambda: session.mean("b", by=["hour", "flag"], groups=[(noon, True), (same, True)]),  # noqa: B023
            ):
                with pytest.raises(InvalidArgument, match="must be distinct"):
                    ask()
        assert session.ledger.taken.charge == 0
        first = session.histogram("hour", categories=[noon.replace(hour=14, tzinfo=ELSEWHERE)])
        assert session.histogram("hour", categories=[noon]).cached
        assert list(first) == ["2020-01-31 12:00:00", "other"]
        with pytest.raises(hf.errors.InvalidQuery, match="must be a timestamp such as"):
            session.histogram("hour", categories=[datetime(1, 1, 1, tzinfo=ELSEWHERE)])
