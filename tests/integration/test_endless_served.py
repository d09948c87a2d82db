"""A dataset without an end on a server: budget, price, page and looks, over a real socket."""

from collections.abc import Iterator

import pytest

from holdfast.service.client import connect
from serving import Running, settings, table


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(settings(table(tmp_path_factory.mktemp("served")), dataset={"queries": None})) as running:
        yield running


def test_budget_and_price_say_what_comes_later(server: Running) -> None:
    with connect(server.url, server.token("ana")) as data:
        budget = data.budget
        assert (budget.answers_left, budget.answers_total, budget.ends) == (None, None, False)
        assert [more for more, _ in budget.outlook] == [0, 10, 100, 1_000]
        assert [margin for _, margin in budget.outlook] == sorted(margin for _, margin in budget.outlook)
        price = data.price("weekend")
        assert price.affordable
        assert price.later[0] < price.later[1]
        answer = data.mean("weekend")
        assert answer.margin <= budget.margin
        assert answer.population == "the average of the rows' distributions"
        assert data.budget.margin > budget.margin
    with server.client(server.token("eve")) as client:
        page = client.get("/datasets/flights", headers={"Accept": "text/html"}).text
        assert "There is no limit on questions" in page
        assert "1,000 more" in page
        left = client.post("/api/v1/datasets/flights/ask", json={"query": "dep_delay > 3"}).json()["left"]
        assert left == {"answers": None, "quota": None}
        metrics = server.state.metrics.text(server.state.budgets())
        assert 'holdfast_margin{dataset="flights"}' in metrics
        assert "holdfast_budget_left{" not in metrics


def test_looks_go_through_the_quota(server: Running) -> None:
    with connect(server.url, server.token("bob")) as data:
        answer = data.mean("dep_delay > 15", until=0.3)
        assert answer.margin <= 0.3
        assert data.mean("dep_delay > 15", until=0.3).seq == answer.seq
    token = server.token("carl", quota=3)
    with connect(server.url, token) as data:
        answer = data.mean("dep_delay > 16", until=0.06)
        assert answer.margin > 0.06  # the quota cannot pay for another look
        assert data.mean("dep_delay > 16", until=0.06).seq == answer.seq  # what it paid for can be had again
        assert not data.price("dep_delay > 16", until=0.06).cached
    assert server.state.service.quotas.lost("carl", "flights") == 0  # the look that was refused took nothing
