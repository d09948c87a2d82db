"""The session: whatever is asked of whatever plan, caching, receipts, and who may ask."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from counting_rows import CountingRows
from examples import few
from holdfast.errors import InvalidArgument, PlanInfeasible, UnknownName
from holdfast.ledger import Cost, check_receipt
from holdfast.questions.answer import Answer, AnyAnswer
from holdfast.questions.flips import FlipsAnswer
from holdfast.questions.histogram import HistogramAnswer
from holdfast.questions.mean import GroupsAnswer
from holdfast.rows.memory import memory_rows
from holdfast.session.session import Session
from ledger_writer import environment
from pairwise import pairwise

NAN, INF = float("nan"), float("inf")
vacuous = pytest.mark.filterwarnings("ignore::holdfast.guarantees.plan.VacuousPlan")  # few rows, many questions


def table(rows: int, seed: int = 1) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "b": rng.random(rows) < 0.3,
        "x": rng.random(rows),
        "g": rng.integers(0, 4, rows),
        "s": np.array(list("abcd"))[rng.integers(0, 4, rows)],
        "gone": np.full(rows, NAN),
        "same": np.full(rows, 7.0),
        "wild": np.resize([INF, -INF, 1e308, -1e308, 0.0, 5e-324], rows),
        "holes": pl.Series([None, True, False] * rows)[:rows],
    }


def ends(answer: AnyAnswer) -> list[Answer]:
    if isinstance(answer, HistogramAnswer | GroupsAnswer):
        return list(answer.values())
    if isinstance(answer, FlipsAnswer):
        assert set(answer.bits) <= {0, 1}
        return [answer.average]
    assert isinstance(answer, Answer)
    return [answer]


def sane(answer: AnyAnswer) -> bool:
    """Finite, inside the bounds, the value, if there is one, inside its interval, and plain JSON."""
    json.loads(json.dumps(answer.to_dict(), allow_nan=False))
    return all(
        one.bounds[0] <= one.low <= (one.low if one.too_few else one.value) <= one.high <= one.bounds[1]
        and np.isfinite([one.low, one.high]).all()
        for one in ends(answer)
    )


ANYTHING: list[tuple[str, Any, dict[str, Any]]] = [
    ("mean", "b", {}),
    ("mean", "holes", {}),
    ("mean", "x", {"within": (0, 1)}),
    ("mean", "x", {"within": (5, 6)}),
    ("mean", "x", {"within": (-1e300, 1e300)}),
    ("mean", "same", {"within": (7, 8)}),
    ("mean", "same", {"within": (-1e16, 7)}),
    ("mean", "gone", {"within": (-2, -1)}),
    ("mean", "wild", {"within": (-1, 1)}),
    ("mean", "wild * 1e308 - wild", {"within": (-1, 1)}),
    ("mean", "x", {"within": (0, 1), "where": "g = 17"}),
    ("mean", "b", {"where": "gone > 0"}),
    ("mean", "b", {"where": "b"}),
    ("mean", lambda rows: rows["x"] > 0.5, {}),
    ("mean", pl.col("x") * 2, {"within": (0, 2)}),
    ("mean", "b", {"by": "s", "groups": ["a", "never seen"]}),
    ("mean", "x", {"within": (0, 1), "by": ["s", "g"], "groups": [("a", 1), ("b", 17)], "where": "b"}),
    ("mean", "gone", {"within": (0, 1), "by": "b"}),
    ("difference", "b", {"group": "x > 0.5"}),
    ("count", "holes", {}),
    ("total", "gone", {"within": (1, 2), "population": 10**9}),
    ("total", "wild", {"within": (-1, 1), "where": "b"}),
    ("variance", "x", {"within": (0, 1)}),
    ("variance", "gone", {"within": (0, 1)}),
    ("std", "wild", {"within": (-1, 1)}),
    ("covariance", "b", {"other": "x > 0.5"}),
    ("correlation", "x", {"other": "same", "within": (0, 1), "other_within": (0, 8)}),
    ("slope", "x", {"other": "b", "within": (0, 1)}),
    ("slope", "same", {"other": "x", "within": (0, 8), "other_within": (0, 1)}),
    ("difference", "b", {"minus": "x > 0.5"}),
    ("difference", "x", {"group": "x > 0.5", "other": "x > 0.2 AND b", "within": (0, 1)}),
    ("histogram", "s", {"categories": ["a", "never seen"]}),
    ("histogram", "s", {"categories": ["a"], "where": "gone > 0"}),
    ("histogram", "wild", {"bins": [-1, 0, 1]}),
    ("auc", "x", {"positive": "b", "within": (0, 1), "cuts": [0.5]}),
    ("auc", "gone", {"positive": "holes", "within": (0, 1), "cuts": [0.5], "where": "b"}),
    ("top", "s", {"longest": 1, "most": 1, "alphabet": "ab"}),
    ("quantile", "x", {"q": 0, "within": (0, 1)}),
    ("quantile", "x", {"q": 1, "within": (0, 1), "steps": 1}),
    ("quantile", "x", {"q": 0.5, "within": (3, 4)}),
    ("quantile", "same", {"q": 0.5, "within": (0, 7)}),
    ("quantile", "same", {"q": 0.5, "within": (7, 14)}),
    ("quantile", "gone", {"q": 0.5, "within": (0, 1.7e308)}),
    ("quantile", "wild", {"q": 0.3, "within": (-8e307, 8e307), "where": "b"}),
]
PLANS: dict[str, dict[str, Any]] = {
    "exchange": {"guarantee": "exchange"},
    "posterior": {"guarantee": "posterior"},
    "information": {"guarantee": "information"},
    "laplace": {"guarantee": "information", "mechanism": "laplace"},
    "dp": {"guarantee": "dp"},
    "split": {"guarantee": "split"},
}


@pytest.mark.parametrize("rows", few([300, 5_000], 1))
@pytest.mark.parametrize("plan", PLANS)
@vacuous
def test_anything_can_be_asked_under_any_plan(plan: str, rows: int) -> None:
    with Session(table(rows), seed=1, queries=300, **PLANS[plan]) as session:
        for kind, query, options in ANYTHING:
            try:
                assert sane(session.dry_run(query, kind, **options)), (kind, query, options)
            except InvalidArgument as refused:  # the extra mass of so few rows leaves room for three outcomes
                assert "outcomes would be mostly noise" in str(refused)  # noqa: PT017
                assert rows == 300
                continue
            assert sane(session.ask(query, kind, **options)), (kind, query, options)
        assert session.budget.answers_given >= len(ANYTHING) - 12
        assert session.history().height > session.budget.answers_given  # histograms have several lines
        assert "nan" not in f"{session!r}"


HANDFULS = pairwise(
    [2, 3, 25], [None, 1, 1_000, 10**9, {"mean": 3, "flip": 5}], ["best", "exchange", "posterior", "dp"]
)


@pytest.mark.parametrize(("rows", "queries", "guarantee"), HANDFULS)
@vacuous
def test_a_handful_of_rows(rows: int, queries: Any, guarantee: str) -> None:
    try:
        session = Session(table(rows), seed=1, queries=queries, guarantee=guarantee)
    except PlanInfeasible:  # flips need the information guarantee, which needs twenty rows
        assert isinstance(queries, dict)
        assert guarantee != "best" or rows < 20
        return
    except InvalidArgument:  # only one guarantee goes without a plan
        assert queries is None
        assert guarantee in ("posterior", "dp")
        return
    with session:
        assert sane(session.mean("b"))
        if session.budget.answers_left is None or session.budget.answers_left > 12:
            assert sane(session.quantile("x", 0.5, within=(0, 1), steps=3))
            assert sane(session.mean("x", within=(0, 1), where="b"))
            assert sane(session.histogram("s", categories=["a"]))


@pytest.mark.parametrize("confidence", [0.5, 0.9999, 1 - 1e-9])
@pytest.mark.parametrize("plan", PLANS)
@vacuous
def test_any_confidence(confidence: float, plan: str) -> None:
    with Session(table(5_000), seed=1, queries=100, confidence=confidence, **PLANS[plan]) as session:
        few = [one for one in ANYTHING if one[0] in ("mean", "histogram", "quantile", "flips")]  # few outcomes
        for kind, query, options in few[::4]:
            answer = session.ask(query, kind, **options)
            assert sane(answer)
            assert ends(answer)[0].confidence == confidence


def test_a_constant_at_the_edge_of_its_bounds_stays_inside() -> None:
    with Session(table(20_000), seed=1, queries=20, guarantee="posterior") as session:
        for bounds in ((7, 8), (-1e16, 7), (6.9999999999999, 7), (-1e300, 7)):
            answer = session.mean("same", within=bounds)
            assert answer.low <= 7 <= answer.high


def test_more_draws_than_rows() -> None:
    with Session(table(500), seed=1, queries=30, guarantee="information") as session:
        answer = session.mean("b", rows_per_query=2_000)
        assert answer.rows_read == 2_000
        assert sane(answer)
        assert answer.high - answer.low < 1


# -- the same question ------------------------------------------------------------------------------------------

SPELLINGS: list[tuple[str, list[tuple[Any, dict[str, Any]]]]] = [
    ("mean", [("x > 0.5", {}), ("(X>.5)", {}), ('"x"  > 0.50', {}), ("x > 0.5", {"within": (0, 1)})]),
    ("mean", [("x", {"within": (0, 1), "where": "g=1"}), (" x ", {"within": [0.0, 1.0], "where": "g = 1"})]),
    ("histogram", [("s", {"categories": ["a", "b"]}), (" S", {"categories": ("a", "b")})]),
    ("histogram", [("x", {"bins": [0, 1]}), ("x", {"bins": np.array([0.0, 1.0])})]),
    ("quantile", [("x", {"q": 0.5, "within": (0, 1)}), ("(x)", {"q": 0.5, "within": (0.0, 1.0), "steps": 10})]),
]


@pytest.mark.parametrize(("kind", "spellings"), SPELLINGS)
def test_the_same_question_is_free_whoever_asks(kind: str, spellings: list[tuple[Any, dict[str, Any]]]) -> None:
    rows = CountingRows(memory_rows(table(5_000)))
    with Session(rows, seed=1, queries=200, analyst="ada") as session:
        query, options = spellings[0]
        first = session.ask(query, kind, **options)
        spent, read = session.ledger.spent, rows.rows_read
        assert not ends(first)[0].cached
        for query, options in spellings:
            assert session.price(query, kind, **options).cached
            assert session.price(query, kind, **options).affordable
            again = session.for_analyst("grace").ask(query, kind, **options)
            assert ends(again)[0].cached
            assert [(one.value, one.low, one.high, one.seq, one.receipt) for one in ends(again)] == [
                (one.value, one.low, one.high, one.seq, one.receipt) for one in ends(first)
            ]
        assert (session.ledger.spent, rows.rows_read) == (spent, read)
        assert session.history()["analyst"].unique().to_list() == ["ada"]


def test_other_questions_are_not_free() -> None:
    with Session(table(5_000), seed=1, queries=300, guarantee="posterior") as session:
        ell = session.plan.rows_per_query
        asked: list[tuple[str, Any, dict[str, Any]]] = [
            ("mean", "x > 0.5", {}),
            ("mean", "x > 0.5", {"rows_per_query": ell + 1}),
            ("mean", "x > 0.5", {"where": "b"}),
            ("mean", "x >= 0.5", {}),
            ("mean", "x", {"within": (0, 1)}),
            ("mean", "x", {"within": (0, 2)}),
            ("histogram", "s", {"categories": ["a", "b"]}),
            ("histogram", "s", {"categories": ["b", "a"]}),
            ("quantile", "x", {"q": 0.5, "within": (0, 1)}),
            ("quantile", "x", {"q": 0.5, "within": (0, 2)}),
            ("quantile", "x", {"q": 0.4, "within": (0, 1)}),
            ("quantile", "x", {"q": 0.5, "within": (0, 1), "steps": 9}),
            ("quantile", "x", {"q": 0.5, "within": (0, 1), "where": "b"}),
        ]
        for number, (kind, query, options) in enumerate(asked, 1):
            assert not ends(session.ask(query, kind, **options))[0].cached
            assert session.ledger.spent.answers == number
        assert session.mean("x > 0.5", rows_per_query=ell).cached  # the plan's own number, said aloud


def test_rows_that_were_usual_are_not_paid_for_again_when_fewer_are() -> None:
    """In a session without an end the usual number falls; an answer from as many rows is still the answer."""
    rows = {"x": [i % 10 < 3 for i in range(2_000)], "y": [i / 2_000 for i in range(2_000)]}
    with Session(rows, seed=3) as session:
        usual = session.prepare("x").rows_read
        first = session.mean("x", rows_per_query=usual)
        assert session.mean("x").cached
        session.ask_many([f"y > {i / 40}" for i in range(40)])
        assert session.prepare("x").rows_read < usual
        spent = session.ledger.spent
        for again in (session.mean("x", rows_per_query=usual), session.mean("x", rows_per_query=usual - 1)):
            assert again.cached
            assert (again.low, again.high) == (first.low, first.high)
        assert session.ask_many([{"query": "x", "rows_per_query": usual}])[0].cached
        assert session.price("x", rows_per_query=usual).cached
        assert session.ledger.spent == spent
        session.mean("y > 0.91")  # as usual by now: from fewer rows
        assert not session.mean("y > 0.91", rows_per_query=usual).cached
        assert not session.mean("x", rows_per_query=usual + 1).cached


@pytest.mark.parametrize(
    ("query", "kind", "options"),
    [
        ("x", "mean", {}),
        ("y", "mean", {"slices": [0.5]}),
        ("y", "mean", {"by": "x"}),
        ("y", "variance", {}),
        ("y", "auc", {"positive": "x"}),
        ("y", "auc", {"positive": "x", "cuts": [0.5]}),
        ("x", "histogram", {}),
        ("y > 0.5", "difference", {"minus": "x"}),
    ],
)
def test_every_kind_knows_what_it_is_called_as_usual(query: str, kind: str, options: dict[str, Any]) -> None:
    number = np.arange(400_000)
    with Session({"x": number % 10 < 3, "y": number / 400_000}, seed=3, bounds={"y": (0, 1)}) as session:
        first = session.prepare(query, kind, **options)
        session.answering.plan.begin()
        session.ledger.reserve(Cost(1, 1_000))
        later = session.prepare(query, kind, **options)
        named = session.prepare(query, kind, rows_per_query=100_000, **options)
        assert later.rows_read < first.rows_read == named.rows_read
        assert (later.identity, later.usual) == (first.identity, None)
        assert named.usual == first.identity != named.identity


def test_functions_and_flips_are_new_each_time() -> None:
    with Session(table(5_000), seed=1, queries={"mean": 20, "flip": 50}) as session:
        assert not session.mean(lambda rows: rows["b"]).cached
        assert not session.mean(lambda rows: rows["b"]).cached
        assert not session.mean("b", where=lambda rows: rows["x"] > 0.5).cached
        assert not session.mean("b", where=lambda rows: rows["x"] > 0.5).cached
        assert not session.flips("b", 5).cached
        assert not session.flips("b", 5).cached
        assert session.flip("b") in (0, 1)
        assert session.ledger.spent.answers == 7


def test_an_idempotency_key_gives_the_first_flips_again() -> None:
    with Session(table(5_000), seed=1, queries={"mean": 20, "flip": 500}) as session:
        first = session.ask("b", "flips", count=40, idempotency_key="k1")
        again = session.ask("b", "flips", count=40, idempotency_key="k1")
        other = session.ask("b", "flips", count=40, idempotency_key="k2")
        assert isinstance(first, FlipsAnswer)
        assert isinstance(again, FlipsAnswer)
        assert isinstance(other, FlipsAnswer)
        assert (again.bits, again.seq, again.cached) == (first.bits, first.seq, True)
        assert not other.cached
        assert session.ledger.spent.charge == 80
        for _ in range(2):  # half of a surrogate pair is a key like any other
            session.ask("b", "flips", count=1, idempotency_key="\udfff")
        assert session.ledger.spent.charge == 81
        ends(session.for_analyst("ada").ask("b", "flips", count=40, idempotency_key="k1"))
        ends(session.ask("x > 0.5", "flips", count=40, idempotency_key="k1"))
        assert session.ledger.spent.charge == 161  # another analyst, another question: new flips
        with pytest.raises(InvalidArgument, match="idempotency_key"):
            session.ask("b", "flips", count=1, idempotency_key=5)  # type: ignore[arg-type]


@vacuous
def test_who_comes_second_gets_the_first_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody commits the same question meanwhile: these draws are forgotten unseen, and stay paid for."""
    with Session(table(2), seed=1, queries=1_000) as session:  # every answer is [0, 1]: the answers alone do not tell
        slow = session.for_analyst("slow")
        drawn, asked = slow._rows, []

        class Meanwhile:
            """Somebody else asks the same while these rows are being drawn."""

            def __getattr__(self, name: str) -> Any:
                return getattr(drawn, name)

            def __len__(self) -> int:
                return len(drawn)

            def tally(self, *args: Any, **options: Any) -> Any:
                if not asked:  # both analysts draw from these rows
                    asked.append("b")
                    assert not session.mean("b").cached
                return drawn.tally(*args, **options)

        monkeypatch.setattr(slow.answering.plan.standing.draws, "_rows", Meanwhile())
        answer = slow.mean("b")
        assert answer.cached
        assert session.ledger.spent.answers == 1
        assert session.ledger.spent.charge == 2 * answer.rows_read


ASK = """
import sys
from holdfast import Session
session = Session(sys.argv[1], analyst="other process")
answer = session.mean("(x) > .5")
print(answer.cached, answer.value, answer.low, answer.high, answer.receipt)
"""


@pytest.mark.slow
def test_another_process_finds_the_ledger_beside_the_data_and_the_answer_in_it(tmp_path: Path) -> None:
    path = tmp_path / "flights.parquet"
    pl.DataFrame(table(5_000)).write_parquet(path)
    with Session(path, queries=100) as session:
        first = session.mean("x > 0.5")
        assert Path(session.ledger.location).parent == tmp_path
    command = [sys.executable, "-W", "error", "-c", ASK, str(path)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, env=environment()).stdout.split()
    assert shown == ["True", str(first.value), str(first.low), str(first.high), str(first.receipt)]


# -- receipts, analysts, other verbs ------------------------------------------------------------------------------


def test_receipts_of_all_kinds() -> None:
    with Session(table(5_000), seed=1, queries={"mean": 50, "flip": 50}) as session:
        answers: list[AnyAnswer] = [
            session.mean("b"),
            session.histogram("s", categories=["a"]),
            session.flips("b", 3),
            session.quantile("x", 0.5, within=(0, 1)),
        ]
        head = session.ledger.head.hash
        for number, answer in enumerate(answers, 1):
            receipt = session.receipt(answer)
            check_receipt(receipt, head)
            assert receipt == session.receipt(number)
            entry = next(session.ledger.entries(number, 1))
            assert ends(answer)[0].receipt == f"{number}:{entry.hash}"
        with pytest.raises(InvalidArgument, match="dry run"):
            session.receipt(session.dry_run("b"))
        with pytest.raises(UnknownName):
            session.receipt(99)
        with pytest.raises(InvalidArgument):
            session.receipt("1:abc")  # type: ignore[arg-type]


@pytest.mark.parametrize("analyst", [5, "x" * 1_000, "\ud800", b"ada"])
def test_an_analyst_whose_name_the_ledger_cannot_write_is_refused(analyst: Any) -> None:
    with Session(table(100), queries=5) as session, pytest.raises(InvalidArgument, match="analyst"):
        session.for_analyst(analyst)


def test_a_dry_run_has_the_shape_of_the_answer_and_leaves_no_trace() -> None:
    rows = CountingRows(memory_rows(table(5_000)))
    with Session(rows, seed=1, queries=200) as session:
        for kind, query, options in ANYTHING:
            made_up = session.dry_run(query, kind, **options)
            assert all(one.made_up and one.cost == one.rows_read == 0 and one.receipt is None for one in ends(made_up))
            assert "made up" in repr(made_up)
        assert rows.rows_read == session.ledger.spent.answers == 0


@pytest.mark.parametrize(
    ("guarantee", "options"), [("best", {}), ("best", {"mechanism": "gaussian"}), ("gaussian", {}), ("split", {})]
)
def test_a_dry_run_is_as_wide_as_the_answer_will_be(guarantee: str, options: dict[str, Any]) -> None:
    rows = {"b": np.random.default_rng(7).random(100_000) < 0.5}
    with Session(rows, seed=1, queries=20 if guarantee == "split" else 200, guarantee=guarantee) as session:
        made_up, price = session.dry_run("b", **options), session.price("b", **options)
        assert price.margin is not None
        assert price.rows_read > 4_000  # draws, more than there are made-up rows
        assert (made_up.high - made_up.low) / 2 <= price.margin  # type: ignore[attr-defined]
        answer = session.mean("b", **options)
        assert answer.high - answer.low == pytest.approx(made_up.high - made_up.low, rel=0.05)  # type: ignore[attr-defined]


def test_a_dry_run_of_a_check_is_as_wide_as_the_check_will_be() -> None:
    rows = {"b": np.random.default_rng(7).random(100_000) < 0.5}
    with Session(rows, seed=1, guarantee="checks") as session:
        guess = {"guess": 0.5, "margin": 0.2}
        made_up, price = session.dry_run("b", "check", **guess), session.price("b", "check", **guess)
        assert made_up.holds  # type: ignore[attr-defined]
        assert price.margin == max(made_up.high - 0.5, 0.5 - made_up.low)  # type: ignore[attr-defined]


def test_what_is_known_without_asking() -> None:
    with Session(table(100), queries=5) as session:
        assert session.schema.names == ("b", "x", "g", "s", "gone", "same", "wild", "holes")
        session.verify_data()
        assert session.history().is_empty()
