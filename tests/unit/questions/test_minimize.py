"""Fits: refused before reading, priced exactly, one ledger entry, the same point when asked again, in plain units."""

import numpy as np
import polars as pl
import pytest

import holdfast as hf
from counting_rows import CountingRows
from holdfast.optimize import formulas
from holdfast.optimize.descent import runs_for
from holdfast.optimize.fit import LOOKS
from holdfast.optimize.objective import AccuracyAt, domain_of
from own_losses import MeanLoss, MedianLoss, uniform_table
from pairwise import pairwise

N = 20_000
LINEAR = {"x0": (-1, 1), "x1": (-1, 1)}


def table() -> dict[str, np.ndarray]:
    columns = uniform_table(N, 2, 1)
    late = columns["x0"] + 0.3 * columns["x1"] > 0.1
    return columns | {"late": late, "word": np.where(late, "a", "b"), "y": columns["x0"] - columns["x1"]}


@pytest.fixture
def rows() -> CountingRows:
    return CountingRows(hf.open(table()))


def session(rows: CountingRows, **options) -> hf.Session:
    return hf.Session(rows, **({"queries": 100, "seed": 1} | options))


def logistic(**options) -> hf.losses.Logistic:
    return hf.losses.Logistic(LINEAR, "late", **options)


def test_the_answer_has_everything(rows):
    s = session(rows)
    answer = s.minimize(logistic(), radius=3)
    assert len(answer.point) == 3
    assert answer.names == ("x0", "x1", "intercept")
    assert answer.loss.low <= answer.loss.value <= answer.loss.high
    assert answer.accuracy.low <= answer.accuracy.value <= answer.accuracy.high
    assert answer.excess_bound is None or 0 < answer.excess_bound < answer.loss.high
    assert answer.gradient_evaluations + 2 * s.plan.rows_per_query == answer.rows_read == rows.rows_read
    assert s.ledger.spent.charge == answer.rows_read
    assert answer.receipt
    assert "loss" in repr(answer)
    assert "<table" in answer._repr_html_()
    heading, first, *_ = repr(answer).splitlines()
    assert heading.split() == ["coefficient", "scaled"]
    assert first.split() == ["x0", f"{answer.coefficients['x0']:.3g}", f"{answer.point[0]:.3g}"]
    assert answer.details()[0] == ("x0", f"{answer.coefficients['x0']:.3g}, scaled {answer.point[0]:.3g}")
    assert answer.to_dict()["names"] == ["x0", "x1", "intercept"]
    assert answer.to_dict()["point"] == list(answer.point)
    assert answer.point[0] > answer.point[1]
    assert np.linalg.norm(answer.point) <= 3 + 1e-12


def test_one_ledger_entry_for_the_whole_query(rows):
    s = session(rows)
    question = s.prepare(logistic(), "minimize", radius=3)
    answer = s.answering.answer(question)
    spent = s.ledger.spent
    assert spent.answers == 1
    assert spent.charge == question.cost.charge == answer.rows_read
    assert spent.intervals == question.cost.intervals == 3  # the loss, the accuracy, and the excess
    assert s.history().height == 1
    assert s.history()["kind"].to_list() == ["minimize"]


def test_asked_again_it_is_free_and_the_same(rows):
    s = session(rows)
    first = s.minimize(logistic(), radius=3)
    read = rows.rows_read
    again = s.minimize(hf.losses.Logistic(["x0", "x1"], "late", within=(-1, 1)), radius=3)
    assert again.cached
    assert again.point == first.point
    assert again.excess_bound == first.excess_bound
    assert rows.rows_read == read
    assert not s.minimize(logistic(), radius=4).cached


def test_numbers_of_every_make_are_the_same_question(rows):
    s = session(rows)
    first = s.minimize(logistic(l2=1), radius=1, iterations=5, rows_per_coordinate=3, runs=2)
    numbers = {"iterations": np.int64(5), "rows_per_coordinate": np.int32(3), "runs": np.uint8(2)}
    again = s.minimize(logistic(l2=np.float64(1), intercept=np.bool_(True)), radius=np.float32(1), **numbers)
    assert (again.cached, again.point) == (True, first.point)
    assert s.minimize(logistic(l2=1.0), radius=1.0, **numbers).cached


def test_the_price_is_what_is_charged(rows):
    s = session(rows)
    options = {"radius": 3, "runs": 3, "iterations": 20}
    price, before = s.price(logistic(), kind="minimize", **options), s.budget.answers_left
    assert rows.rows_read == 0
    answer = s.minimize(logistic(), **options)
    assert (price.answers, price.rows_read) == (answer.cost, answer.rows_read)
    assert price.answers == before - s.budget.answers_left
    assert rows.rows_read == answer.rows_read
    assert s.price(logistic(), kind="minimize", **options).cached


def test_a_dry_run_reads_and_spends_nothing(rows):
    s = session(rows)
    answer = s.dry_run(logistic(), kind="minimize", radius=3, runs=2)
    assert answer.loss.made_up
    assert len(answer.point) == 3
    assert rows.rows_read == s.ledger.spent.charge == 0


REFUSED = {
    "no domain": (lambda: logistic(), {}),
    "two domains": (lambda: logistic(), {"radius": 1, "box": (0, 1)}),
    "radius zero": (lambda: logistic(), {"radius": 0}),
    "radius infinite": (lambda: logistic(), {"radius": float("inf")}),
    "empty box": (lambda: logistic(), {"box": (1, 1)}),
    "box of another shape": (lambda: logistic(), {"box": [(0, 1)]}),
    "no features": (lambda: hf.losses.Logistic({}, "late"), {"radius": 1}),
    "features as text": (lambda: hf.losses.Logistic("x0", "late"), {"radius": 1}),
    "a feature twice": (lambda: hf.losses.Logistic(["x0", "x0"], "late", within=(0, 1)), {"radius": 1}),
    "unbounded column": (lambda: hf.losses.Logistic(["x0"], "late"), {"radius": 1}),
    "infinite bounds": (lambda: hf.losses.Logistic({"x0": (0, float("inf"))}, "late"), {"radius": 1}),
    "bounds that are no pair": (lambda: hf.losses.Logistic({"x0": 3}, "late"), {"radius": 1}),
    "unknown feature": (lambda: hf.losses.Logistic({"nope": (0, 1)}, "late"), {"radius": 1}),
    "a feature of text": (lambda: hf.losses.Logistic({"word": (0, 1)}, "late"), {"radius": 1}),
    "unknown target": (lambda: hf.losses.Logistic(LINEAR, "nope"), {"radius": 1}),
    "unbounded target": (lambda: hf.losses.Squared(LINEAR, "y"), {"radius": 1}),
    "target that is no name": (lambda: hf.losses.Logistic(LINEAR, 3), {"radius": 1}),
    "negative l2": (lambda: logistic(l2=-1), {"radius": 1}),
    "unknown scale": (lambda: logistic(scale="data"), {"radius": 1}),
    "no loss": (lambda: "late", {"radius": 1}),
    "unknown option": (lambda: logistic(), {"radius": 1, "speed": 2}),
    "no iterations": (lambda: logistic(), {"radius": 1, "iterations": 0}),
    "half a coin": (lambda: logistic(), {"radius": 1, "rows_per_coordinate": 0.5}),
    "both goals": (lambda: logistic(), {"radius": 1, "iterations": 5, "excess": 0.1}),
    "impossible excess": (lambda: logistic(), {"radius": 1, "excess": 1e-9}),
    "unknown average": (lambda: logistic(), {"radius": 1, "average": "last"}),
    "no runs": (lambda: logistic(), {"radius": 1, "runs": 0}),
    "noise in a posterior session": (lambda: logistic(), {"radius": 1, "mechanism": "laplace"}),
    "a private choice in a posterior session": (lambda: logistic(), {"radius": 1, "runs": 2, "select": "exponential"}),
    "counts below zero": (lambda: hf.losses.Poisson(LINEAR, "y", target_within=(-1, 2)), {"radius": 1}),
    "counts without bounds": (lambda: hf.losses.Poisson(LINEAR, "y"), {"radius": 1}),
    "no quantile": (lambda: hf.losses.Quantile(LINEAR, "y", target_within=(0, 1), q=1), {"radius": 1}),
    "own loss of the wrong shape": (lambda: Wrong(("x0",), shape=(2,)), {"radius": 1}),
    "own loss that always fails": (lambda: Failing(("x0",)), {"radius": 1}),
    "own loss of the batch": (lambda: Batchwise(("x0", "x1")), {"radius": 1}),
    "own loss of unknown columns": (lambda: MeanLoss(("x0", "nope")), {"radius": 1}),
}


class Wrong(MeanLoss):
    def __init__(self, columns, shape) -> None:
        super().__init__(columns)
        self.shape = shape

    def gradients(self, rows: pl.DataFrame, point: np.ndarray) -> np.ndarray:
        return np.zeros((rows.height, *self.shape, 1))


class Failing(MeanLoss):
    def values(self, rows: pl.DataFrame, point: np.ndarray) -> np.ndarray:
        raise ZeroDivisionError


class Batchwise(MeanLoss):
    def gradients(self, rows: pl.DataFrame, point: np.ndarray) -> np.ndarray:
        return super().gradients(rows, point) - self._x(rows).mean(axis=0)


@pytest.mark.parametrize("case", REFUSED)
def test_refused_before_any_row_is_read(rows, case):
    make, options = REFUSED[case]
    s = session(rows)
    with pytest.raises(hf.HoldfastError) as refusal:
        s.minimize(make(), **options)
    assert str(refusal.value).endswith(".")
    assert rows.rows_read == 0
    assert s.ledger.spent.charge == s.ledger.spent.intervals == 0
    assert not s.ledger.begun


def test_where_there_is_an_end_a_fit_that_takes_more_than_is_left_is_refused(rows):
    with pytest.raises(hf.BudgetExhausted):
        session(rows, end=True).minimize(logistic(), radius=1, iterations=10**6)
    assert rows.rows_read == 0


def test_splitting_cannot_descend(rows):
    """The planner splits for few questions by itself, so the refusal says how to open a session that can fit."""
    few = hf.Session(rows, queries=3, end=True, identical=True, seed=1)
    assert few.plan.guarantee == "split"
    with pytest.raises(hf.NotCovered, match="guarantee='exchange'"):
        few.minimize(logistic(), radius=1)
    assert rows.rows_read == 0
    assert session(rows, queries=3, guarantee="exchange").minimize(logistic(), radius=1, iterations=3).point


def test_an_excess_goal_sets_the_iterations(rows):
    s = session(rows, queries=5, guarantee="posterior")
    loose, tight = (s.price(MeanLoss(("x0",)), kind="minimize", box=(-1, 1), excess=e) for e in (0.4, 0.2))
    assert loose.rows_read < tight.rows_read
    assert loose.answers <= tight.answers
    assert loose.excess_bound <= 0.4
    assert tight.excess_bound <= 0.2
    answer = s.minimize(MeanLoss(("x0",)), box=(-1, 1), excess=0.2)
    assert answer.excess_bound <= 0.2


@pytest.mark.parametrize("average", ["uniform", "suffix", "weighted"])
def test_every_average_comes_near(rows, average):
    answer = session(rows, queries=20).minimize(MedianLoss(("x0", "x1")), box=(-1, 1), average=average)
    assert np.abs(answer.point).max() < 0.25  # 3,000 coins a coordinate: .25 is more than ten of their deviations
    assert type(answer.excess_bound) is float  # as the ledger gives it back


@pytest.mark.parametrize(
    ("planned", "mechanism", "select"), pairwise(*[["coins", "laplace"]] * 2, ["coins", "exponential"])
)
def test_the_information_guarantee_mixes_mechanisms(rows, planned, mechanism, select):
    s = session(rows, queries=400, guarantee="information", mechanism=planned)
    answer = s.minimize(
        MeanLoss(("x0",)),
        box=(-1, 1),
        mechanism=mechanism,
        iterations=30,
        rows_per_coordinate=500,
        runs=2,
        select=select,
    )
    assert answer.cost == 400 - s.budget.answers_left
    assert rows.rows_read == answer.rows_read
    fit = s.price(MeanLoss(("x0",)), "minimize", box=(-1, 1), mechanism=mechanism, runs=2, select=select)
    assert fit.excess_bound > 0


def test_boosting_gives_laplace_a_bound_that_holds_with_confidence(rows):
    s = session(rows, queries=400, guarantee="information", mechanism="laplace")
    enough = runs_for(s.plan.statements, s.plan.terms.beta2)
    options = {"kind": "minimize", "box": (-1, 1), "iterations": 5, "rows_per_coordinate": 500}

    def statements(**more) -> int:
        return s.prepare(MeanLoss(("x0",)), **options, **more).cost.intervals

    assert statements(runs=enough) == 2  # one more interval, for the excess
    assert statements(runs=enough - 1) == 1
    assert statements() == 1


def test_own_losses_are_clipped_to_what_they_declare(rows):
    class Narrow(MeanLoss):
        def __post_init__(self) -> None:
            super().__post_init__()
            self.gradient_range, self.value_range = (-0.01, 0.01), (0.0, 0.1)

    answer = session(rows).minimize(Narrow(("x0",)), box=(-1, 1))
    assert answer.loss.bounds == (0.0, 0.1)
    assert answer.loss.high <= 0.1


@pytest.mark.slow
def test_a_row_on_which_an_own_loss_fails_answers_for_itself_alone(rows):
    class Picky(MeanLoss):
        def gradients(self, rows: pl.DataFrame, point: np.ndarray) -> np.ndarray:
            if rows["x0"].fill_null(1.0).max() > 0.9:
                raise ValueError("too large")
            return super().gradients(rows, point)

    answer = session(rows).minimize(Picky(("x0",)), box=(-1, 1), iterations=3, rows_per_coordinate=10)
    assert len(answer.point) == 1


@pytest.mark.slow
def test_losses_can_depend_on_earlier_answers(rows):
    s = session(rows, queries=200)
    center = np.zeros(2)
    for _ in range(5):
        answer = s.minimize(MeanLoss(("x0", "x1"), center=center), box=(-1, 1), iterations=50)
        center = center + np.array(answer.point) / 2
    assert s.ledger.spent.answers == 5


def test_the_ledger_gives_the_answer_back_to_another_session(tmp_path):
    place = tmp_path / "x.ledger"
    with hf.Session(table(), queries=100, seed=1, ledger=place) as s:
        first = s.minimize(logistic(), radius=3)
    with hf.Session(table(), seed=2, ledger=place) as s:
        again = s.minimize(logistic(), radius=3)
    assert again.cached
    assert again.point == first.point
    assert again.loss.value == first.loss.value


# -- coefficients in the features' own units ---------------------------------------------------------------------------

BOUNDS = {"x0": (-0.5, 2.0), "x1 * 10": (-3.0, 7.0), "late": None}
BUILT_IN = {
    "squared": lambda **more: hf.losses.Squared(BOUNDS, "y", target_within=(-4, 10), **more),
    "logistic": lambda **more: hf.losses.Logistic(BOUNDS, "late", **more),
    "logistic on a number": lambda **more: hf.losses.Logistic(BOUNDS, "y", target_within=(-4, 10), **more),
    "huber": lambda **more: hf.losses.Huber(BOUNDS, "y", target_within=(-4, 10), **more),
    "smoothed_hinge": lambda **more: hf.losses.SmoothedHinge(BOUNDS, "late", **more),
    "quantile": lambda **more: hf.losses.Quantile(BOUNDS, "y", target_within=(-4, 10), **more),
    "poisson": lambda **more: hf.losses.Poisson(BOUNDS, "x1 + 1", target_within=(0, 2), **more),
}


def test_every_built_in_loss_has_coefficients_to_test():
    assert {name.partition(" ")[0] for name in BUILT_IN} == set(formulas.BUILT_IN)


@pytest.mark.parametrize(
    ("name", "scale", "intercept", "l2"), pairwise(BUILT_IN, ["symmetric", "unit"], [True, False], [0.0, 0.3])
)
def test_coefficients_are_in_the_features_own_units(rows, name, scale, intercept, l2):
    """The plain linear formula in the features' units predicts what the scaled model predicts.

    The scaled model is evaluated by the loss's own code on rows inside the declared bounds; what it predicts is then
    stretched back to the target's units where it predicts the target itself.
    """
    loss = BUILT_IN[name](scale=scale, intercept=intercept, l2=l2)
    answer = session(rows).minimize(loss, radius=1, iterations=3)
    assert set(answer.coefficients) == {*BOUNDS, "intercept"}
    assert answer.to_dict()["coefficients"] == answer.coefficients
    frame = pl.DataFrame(table()).filter(pl.col("x0") >= -0.5, (pl.col("x1") * 10).is_between(-3, 7)).head(50)
    objective = loss.bind(rows.schema, domain_of(loss.dimension, 1.0, None))
    features, _ = objective.matrix.widened(objective.matrix.of(frame))
    scaled = objective.matrix.predicted(features, np.array(answer.point))
    if loss.predicts_target:
        scaled = -4 + (10 - -4) * (scaled + 1) / 2
    plain = np.full(50, answer.coefficients["intercept"])
    for feature, values in (("x0", frame["x0"]), ("x1 * 10", frame["x1"] * 10), ("late", frame["late"].cast(float))):
        plain += answer.coefficients[feature] * values.to_numpy()
    assert np.abs(scaled).max() > 1e-3
    most = np.abs(answer.point).sum() * 14 * 2.0**-24  # features are rounded to single precision, the target spans 14
    assert plain == pytest.approx(scaled, abs=most + 1e-9)


def test_coefficients_of_the_wrong_units_are_caught(rows):
    """A mutant of the test above: the scaled point itself predicts something else."""
    loss = BUILT_IN["logistic"]()
    answer = session(rows).minimize(loss, radius=1, iterations=3)
    assert max(abs(answer.coefficients[name] - x) for name, x in zip(answer.names, answer.point, strict=True)) > 0.01


def test_losses_of_ones_own_have_no_other_units(rows):
    answer = session(rows).minimize(MeanLoss(("x0",)), box=(-1, 1), iterations=3)
    assert answer.coefficients is None
    assert answer.to_dict()["coefficients"] is None


def test_a_feature_called_intercept_is_refused(rows):
    """Its coefficient would have no name of its own."""
    with pytest.raises(hf.InvalidArgument, match="intercept"):
        hf.losses.Logistic({"intercept": (0, 1)}, "late")


def test_a_bound_is_stated_only_where_it_says_more_than_the_loss(rows):
    s = session(rows, queries=400, guarantee="exchange")
    for l2 in (0.0, 1.0):
        answer = s.minimize(logistic(l2=l2), radius=2)
        for bound in (answer.excess_bound, answer.expected_excess_bound):
            assert bound is None or bound < answer.loss.high
    assert answer.excess_bound is not None  # it says more where l2 bounds the excess
    vague = session(rows, queries=50_000, guarantee="exchange").minimize(logistic(), radius=20, iterations=2)
    assert vague.excess_bound is None
    assert "no bound" in repr(vague)
    assert f"accuracy {vague.accuracy.rounded()[0]}" in repr(vague)


def test_with_l2_the_best_point_is_known_to_be_near():
    rng = np.random.default_rng(0)
    x, n = rng.uniform(-1, 1, 400_000), 400_000
    data = {"x": x, "y": np.clip(0.5 * x + rng.uniform(-0.2, 0.2, n), -1, 1)}
    loss = hf.losses.Squared({"x": (-1, 1)}, "y", target_within=(-1, 1), intercept=False, l2=1.0)
    with hf.Session(data, queries=20, guarantee="exchange", seed=1) as s:
        answer = s.minimize(loss, radius=1, iterations=2_000, rows_per_coordinate=50)
    assert answer.distance_bound == pytest.approx(np.sqrt(2 * answer.excess_bound))
    best = 0.5 / 3 / (1 / 3 + 1)  # the population's: (E x^2 + l2) w = E x y
    low, high = answer.coefficient_intervals["x"]
    assert low < best < high
    assert high - low == pytest.approx(2 * answer.distance_bound)  # one coordinate, in its own units
    assert "from the best one" in repr(answer)
    plain = hf.losses.Squared({"x": (-1, 1)}, "y", target_within=(-1, 1), intercept=False)
    with hf.Session(data, queries=20, guarantee="exchange", seed=1) as s:
        assert s.minimize(plain, radius=1).coefficient_intervals is None  # only convex


def test_how_far_coefficients_move_with_the_point():
    data = {"a": np.zeros(10), "b": np.zeros(10), "y": np.zeros(10)}
    schema = hf.open(data).schema
    loss = hf.losses.Squared({"a": (0, 10), "b": (-1, 3)}, "y", target_within=(0, 8))
    objective, rng = loss.bind(schema, domain_of(3, 1.0, None)), np.random.default_rng(1)
    slack, start = objective.slack(0.5), objective.coefficients(np.zeros(3))
    steps = rng.normal(size=(500, 3))
    steps *= 0.5 / np.linalg.norm(steps, axis=1, keepdims=True)
    moved = [objective.coefficients(step) for step in steps]
    for name in start:
        farthest = max(abs(one[name] - start[name]) for one in moved)
        assert 0.9 * slack[name] < farthest <= slack[name] * (1 + 1e-12)


def test_accuracy_counts_rows_that_are_on_their_side_and_missing_ones_as_wrong():
    data = {"x": np.array([0.5, -0.5, np.nan, 0.5] * 50), "y": np.array([True, False, True, False] * 50)}
    objective = hf.losses.Logistic({"x": (-1, 1)}, "y", intercept=False).bind(
        hf.open(data).schema, domain_of(1, 1.0, None)
    )
    query = AccuracyAt(objective, np.array([1.0]))
    assert query.evaluate(pl.DataFrame(data)).tolist() == [True, True, False, False] * 50


def test_a_radius_is_found_on_the_way(rows):
    s = session(rows, queries=400, guarantee="exchange")
    price = s.price(logistic(), "minimize", radius="auto")
    answer = s.minimize(logistic(), radius="auto")
    assert answer.domain in {f"norm at most {2**look}" for look in range(LOOKS)}
    assert answer.cost <= price.answers
    assert answer.rows_read >= rows.rows_read  # looks that were not needed are paid for
    assert answer.expected_excess_bound is None
    assert s.minimize(logistic(), radius="auto").cached
    assert not s.minimize(logistic(), radius=1).cached
    for options in ({"runs": 2}, {"excess": 0.1}, {"box": (-1, 1)}):
        with pytest.raises(hf.InvalidArgument, match="must be left out when radius is 'auto'"):
            s.minimize(logistic(), radius="auto", **options)
    with pytest.raises(hf.InvalidArgument, match="radius must be"):
        s.minimize(logistic(), radius="large")


def test_the_radius_follows_the_loss():
    """Where the best point is far, the ball grows; where it is zero, it does not."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, 100_000)
    far = {"x": x, "y": x > 0}
    near = {"x": x, "y": rng.random(100_000) < 0.5}
    found = {}
    for name, data in (("far", far), ("near", near)):
        with hf.Session(data, queries=300, guarantee="exchange", seed=3) as s:
            found[name] = float(s.minimize(hf.losses.Logistic({"x": (-1, 1)}, "y"), radius="auto").domain.split()[-1])
    assert found["near"] <= 2
    assert found["far"] >= 4


@pytest.mark.parametrize(
    ("loss", "where", "said"),
    [
        ("squared: y [0, 1e300] ~ x0 [0, 1]", {"radius": 1e20}, "coefficients could overflow"),
        ("squared: y [0, 1] ~ x0 [0, 1e-300]", {"box": (-1e20, 1e20)}, "coefficients could overflow"),
        ("logistic: late ~ x0 [0, 1]", {"radius": 1e200}, "radius must be at most"),
        ("logistic: late ~ x0 [0, 1]", {"box": (-1e200, 1)}, "box must be at most"),
    ],
)
def test_a_fit_whose_numbers_could_overflow_is_refused_before_reading(rows, loss, where, said):
    with pytest.raises(hf.InvalidArgument, match=said):
        session(rows).minimize(loss, iterations=2, **where)
    assert rows.rows_read == 0
