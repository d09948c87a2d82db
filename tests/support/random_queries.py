"""Random expressions from the grammar, as strategies over the columns of `query_examples`."""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from examples import examples

QUICK = settings(max_examples=examples(300), deadline=None, suppress_health_check=list(HealthCheck))

number_leaf = st.one_of(
    st.sampled_from(["i", "j", "x", "y", "X", '"y"']),
    st.integers(-(2**63), 2**63 - 1).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(["0", "1", "-1", "0.5", "1e308", "length(s)", "year(d)", "cast(t as double)"]),
)
text_leaf = st.one_of(
    st.sampled_from(["s", "t", "'a'", "''", "'%'"]),
    st.text(max_size=5).map(lambda text: "'" + text.replace("'", "''") + "'"),
)
time_leaf = st.sampled_from(["d", "e", "date '2020-02-29'", "cast(s as date)", "d + i", "date_trunc('month', e)"])


def numbers(children):
    one = st.sampled_from(
        ["abs({})", "-({})", "sqrt({})", "ln({})", "exp({})", "floor({})", "round({}, 2)", "sign({})"]
    )
    two = st.sampled_from(
        ["({}) + ({})", "{} - ({})", "({}) * {}", "({}) / ({})", "{} % ({})", "power({}, {})", "coalesce({}, {})",
         "nullif({}, {})", "greatest({}, {})", "case when {} > 0 then {} end", "atan2({}, {})", "log({}, {})"]
    )  # fmt: skip
    return st.one_of(
        st.builds(lambda shape, a: shape.format(a), one, children),
        st.builds(lambda shape, a, b: shape.format(a, b), two, children, children),
    )


def texts(children):
    one = st.sampled_from(
        ["lower({})", "upper({})", "trim({})", "left({}, 2)", "substring({}, 2, 3)", "replace({}, 'a', '%')"]
    )
    two = st.sampled_from(["({}) || ({})", "concat({}, {})", "coalesce({}, {})"])
    return st.one_of(
        st.builds(lambda shape, a: shape.format(a), one, children),
        st.builds(lambda shape, a, b: shape.format(a, b), two, children, children),
    )


number = st.recursive(number_leaf, numbers, max_leaves=8)
text = st.recursive(text_leaf, texts, max_leaves=4)
compare = st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "!="])
predicate_leaf = st.one_of(
    st.sampled_from(["b", "c", "c is true", "t is null"]),
    st.builds("{} {} {}".format, number, compare, number),
    st.builds("({}) {} ({})".format, text, compare, text),
    st.builds("{} {} {}".format, time_leaf, compare, time_leaf),
    st.builds("{} like {}".format, text, st.text("ab%_\\é", max_size=6).map(lambda pattern: f"'{pattern}'")),
    st.builds("{} between {} and {}".format, number, number, number),
    st.builds("{} in ({})".format, number, st.lists(st.integers(-9, 9).map(str), min_size=1).map(", ".join)),
)
predicate = st.recursive(
    predicate_leaf,
    lambda children: st.one_of(
        st.builds("({}) and ({})".format, children, children),
        st.builds("({}) or {}".format, children, children),
        st.builds("not ({})".format, children),
        st.builds("({}) is not true".format, children),
        st.builds("coalesce({}, {})".format, children, children),
    ),
    max_leaves=5,
)
