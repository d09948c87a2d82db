"""One suite for whoever answers: a session on the data, a client of a server, and its asynchronous twin."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal

import holdfast as hf
from holdfast.service.client import connect, connect_async
from holdfast.service.settings import DatasetSettings, Settings
from serving import Running, table

QUERIES = {"mean": 60, "flip": 40}
ROWS = 4_000
MOST_TESTS = 60


class Awaited:
    """The asynchronous session, every verb awaited, so that one suite fits all."""

    def __init__(self, portal: Any, session: Any) -> None:
        self._portal, self._session = portal, session

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._session, name)
        if name in ("budget", "plan", "schema", "head"):
            return self._portal.call(verb)
        return lambda *args, **options: self._portal.call(lambda: verb(*args, **options))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One server for all tests, with a dataset and a budget for each: starting it takes longer than most of them."""
    folder = tmp_path_factory.mktemp("served")
    names = [f"flights{number}" for number in range(MOST_TESTS)]
    paths = {name: str(table(folder, ROWS, name)) for name in names}
    served = {name: DatasetSettings(path=path, queries=QUERIES, end=True) for name, path in paths.items()}
    chosen = Settings(datasets=served, port=0, rate=1e6, burst=10**6, database=f"sqlite:///{folder}/tokens.db")
    with Running(chosen) as running:
        running.unused = iter(names)
        yield running


@pytest.fixture(params=["session", "client", "async client"])
def asker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "session":
        with hf.Session(table(tmp_path, ROWS), queries=QUERIES, end=True, analyst="ana") as session:
            yield session
        return
    server = request.getfixturevalue("server")
    name = next(server.unused)
    token = server.token("ana", datasets=[name])
    if request.param == "client":
        with connect(server.url, token) as client:
            yield client
        return
    with start_blocking_portal() as portal:
        session = portal.call(connect_async, server.url, token)
        yield Awaited(portal, session)
        portal.call(session.close)


def test_a_share_is_an_answer_with_an_interval(asker: Any) -> None:
    answer = asker.mean("dep_delay > 15")
    assert isinstance(answer, hf.Answer)
    assert 0 <= answer.low <= answer.value <= answer.high <= 1
    assert not answer.cached
    assert answer.seq == 1
    assert answer.rows_read == asker.plan.rows_per_query
    assert answer.bounds == (0.0, 1.0)


def test_the_same_question_again_is_free(asker: Any) -> None:
    first = asker.mean("dep_delay > 15")
    left = asker.budget
    again = asker.mean("dep_delay  >  15")
    assert again.cached
    assert (again.value, again.low, again.high, again.seq) == (first.value, first.low, first.high, first.seq)
    assert asker.budget == left


def test_a_bounded_mean_of_a_group(asker: Any) -> None:
    answer = asker.mean("distance", within=(0, 5_000), where="carrier = 'UA'")
    assert answer.bounds == (0.0, 5_000.0)
    assert 0 <= answer.low <= answer.value <= answer.high <= 5_000


def test_more_rows_for_one_answer(asker: Any) -> None:
    assert asker.mean("weekend", rows_per_query=300).rows_read == 300


def test_a_histogram_has_every_category_and_the_rest(asker: Any) -> None:
    answer = asker.histogram("carrier", categories=["UA", "AA"])
    assert isinstance(answer, hf.HistogramAnswer)
    assert list(answer) == ["UA", "AA", "other"]
    assert answer["UA"].low <= answer["UA"].value <= answer["UA"].high


def test_a_quantile_lies_within_its_bounds(asker: Any) -> None:
    answer = asker.quantile("dep_delay", 0.5, within=(-60, 600), steps=4)
    assert -60 <= answer.low <= answer.value <= answer.high <= 600


def test_flips_are_bits_and_new_each_time(asker: Any) -> None:
    answer = asker.flips("weekend", 5)
    assert isinstance(answer, hf.FlipsAnswer)
    assert len(answer.bits) == 5
    assert set(answer.bits) <= {0, 1}
    assert asker.flip("weekend") in (0, 1)
    assert asker.flips("weekend", 5).average.seq == answer.average.seq + 2


def test_flips_under_one_key_are_tossed_once(asker: Any) -> None:
    first = asker.ask("weekend", "flips", count=20, idempotency_key="one")
    spent = asker.budget
    again = asker.ask("weekend", "flips", count=20, idempotency_key="one")
    assert again.bits == first.bits
    assert again.average.seq == first.average.seq
    assert asker.budget == spent


def test_a_loss_is_minimized(asker: Any) -> None:
    loss = hf.losses.Logistic({"distance": (0, 5_000)}, target="weekend")
    answer = asker.minimize(loss, radius=1.0, iterations=2, rows_per_coordinate=50)
    assert isinstance(answer, hf.MinimumAnswer)
    assert answer.names == ("distance", "intercept")
    assert answer.loss.low <= answer.loss.value <= answer.loss.high
    assert asker.minimize(loss, radius=1.0, iterations=2, rows_per_coordinate=50).cached
    boxed = asker.minimize(loss, box=(-0.5, 0.5), iterations=2, rows_per_coordinate=50, runs=2, select="coins")
    assert all(abs(coordinate) <= 0.5 for coordinate in boxed.point)


def test_price_reads_and_spends_nothing(asker: Any) -> None:
    left = asker.budget
    quote = asker.price("dep_delay > 15")
    assert isinstance(quote, hf.Price)
    assert (quote.answers, quote.cached, quote.affordable) == (1, False, True)
    assert quote.rows_read == asker.plan.rows_per_query
    assert asker.budget == left
    asker.mean("dep_delay > 15")
    assert asker.price("dep_delay > 15").cached


def test_a_dry_run_is_made_up_and_free(asker: Any) -> None:
    left = asker.budget
    answer = asker.dry_run("carrier", "histogram", categories=["UA"])
    assert answer.made_up
    assert asker.budget == left
    with pytest.raises(hf.InvalidArgument, match="no receipt"):
        asker.receipt(asker.dry_run("weekend"))


def test_schema_plan_and_budget_are_the_same_objects(asker: Any) -> None:
    assert asker.schema.names == ("dep_delay", "distance", "carrier", "weekend")
    assert isinstance(asker.plan, hf.Plan)
    assert asker.plan.queries == QUERIES["mean"]
    assert isinstance(asker.budget, hf.Budget)
    assert asker.budget.answers_left <= asker.budget.answers_total


def test_history_has_one_row_for_each_interval(asker: Any) -> None:
    asker.mean("dep_delay > 15")
    asker.histogram("carrier", categories=["UA"])
    frame = asker.history()
    assert frame["seq"].to_list() == [1, 2, 2]
    assert frame["category"].to_list() == [None, "UA", "other"]
    assert frame["analyst"].to_list() == ["ana"] * 3


def test_a_receipt_can_be_checked_by_others(asker: Any) -> None:
    answer = asker.mean("dep_delay > 15")
    asker.mean("dep_delay > 16")
    receipt = asker.receipt(answer)
    hf.check_receipt(receipt, receipt.head.hash)
    with pytest.raises(hf.LedgerDamaged):
        hf.check_receipt(receipt, "0" * 64)
    assert receipt.seq == answer.seq == 1


@pytest.mark.parametrize(
    ("verb", "arguments", "options", "error"),
    [
        ("mean", ["dep_dela > 15"], {}, hf.UnknownName),
        ("mean", ["sum(dep_delay) > 15"], {}, hf.InvalidQuery),
        ("mean", ["dep_delay >"], {}, hf.InvalidQuery),
        ("mean", ["distance"], {}, hf.InvalidArgument),
        ("mean", ["distance"], {"within": (5, 1)}, hf.InvalidArgument),
        ("mean", ["weekend"], {"rows_per_query": 10, "margin": 0.1}, hf.InvalidArgument),
        ("quantile", ["dep_delay", 1.5], {"within": (0, 1)}, hf.InvalidArgument),
        ("histogram", ["carrier"], {}, hf.InvalidArgument),
        ("flips", ["distance", 3], {}, hf.InvalidArgument),
        ("flips", ["weekend", 0], {}, hf.InvalidArgument),
        ("price", ["weekend", "median"], {}, hf.InvalidArgument),
        ("price", ["weekend"], {"color": 1}, hf.InvalidArgument),
        ("receipt", [99], {}, hf.UnknownName),
    ],
)
def test_errors_are_the_same(
    asker: Any, verb: str, arguments: list[Any], options: dict[str, Any], error: type[Exception]
) -> None:
    before = asker.budget
    with pytest.raises(error):
        getattr(asker, verb)(*arguments, **options)
    assert asker.budget == before


def test_an_exhausted_budget_says_what_is_left(asker: Any) -> None:
    with pytest.raises(hf.BudgetExhausted) as refused:
        asker.mean("weekend", rows_per_query=9_999_999)
    assert refused.value.fields["left"] == asker.budget.answers_left < refused.value.fields["cost"]
    assert refused.value.fields["unit"] == "answers"
