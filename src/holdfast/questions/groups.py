"""A share or a mean in every declared group, in the fewest passes over drawn rows that keep the noise small.

One pass serves several groups: a draw lands in one of them, or outside. A pass is charged as if each group had been
asked in a pass of its own, since it reveals as much, but it reads the rows of one. More groups in a pass also mean more
random outcomes among its draws, so there are enough passes that three quarters of the draws stay unchanged.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from holdfast import notebook
from holdfast.answer import (
    Answer,
    AnyAnswer,
    Estimate,
    Interval,
    Record,
    interval_bar,
    rounded_alike,
    write_bound,
    write_estimate,
)
from holdfast.ledger import Cost
from holdfast.queries.groups import Grouped
from holdfast.questions.question import RELEASE_WORK, Context, Drawing, Question, Result, identity_of


@dataclass(frozen=True, repr=False)
class GroupsAnswer(AnyAnswer, Mapping[Any, Answer]):
    """One answer for each group: a mapping from a group, or its label, to its answer. All intervals hold at once.

    Parameters
    ----------
    by
        The expressions that define the groups.
    groups
        The values of each group.
    answers, shares
        For each group its answer, and the interval for its share of the rows.
    record
        Where the answers come from.
    bounds
        The declared range, in which values and intervals lie.
    """

    by: tuple[str, ...]
    groups: tuple[tuple[Any, ...], ...]
    answers: tuple[Answer, ...]
    shares: tuple[Interval, ...]
    record: Record
    bounds: Interval = (0.0, 1.0)

    @property
    def labels(self) -> tuple[str, ...]:
        """What each group is called."""
        return tuple(", ".join(map(str, group)) for group in self.groups)

    def __getitem__(self, group: object) -> Answer:
        requested = group if isinstance(group, tuple) else (group,)
        for values, label, answer in zip(self.groups, self.labels, self.answers, strict=True):
            if values == requested or label == str(group):
                return answer
        raise KeyError(group)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.labels)

    def __len__(self) -> int:
        return len(self.groups)

    @property
    def frame(self) -> pl.DataFrame:
        """One row for each group: its values, value, low and high of the answer, and the ends of its share."""
        columns = {name: [group[place] for group in self.groups] for place, name in enumerate(self.by)}
        numbers = {name: [each.get(name) for each in self.result()["groups"]] for name in NUMBERS}
        return pl.DataFrame(columns | numbers, strict=False)

    def result(self) -> dict[str, Any]:
        """A list of groups, each with value, low, high and the ends of its share; what they are by; the bounds."""
        lines = [
            {"group": list(group)}
            | Estimate(each.value, each.low, each.high).to_json()
            | {"share_low": share[0], "share_high": share[1]}
            for group, each, share in zip(self.groups, self.answers, self.shares, strict=True)
        ]
        return {"by": list(self.by), "groups": lines, "bounds": list(self.bounds)}

    @classmethod
    def read(cls, result: Mapping[str, Any], record: Record) -> "GroupsAnswer":
        """Rebuild the answer from what `result` returned, and its `record`."""
        lines, (low, high) = result["groups"], result["bounds"]
        estimates = [Estimate.from_json(one) for one in lines]
        return cls(
            tuple(result["by"]),
            tuple(tuple(one["group"]) for one in lines),
            tuple(Answer(one.value, one.low, one.high, record, (low, high)) for one in estimates),
            tuple((one["share_low"], one["share_high"]) for one in lines),
            record,
            (low, high),
        )

    def rows(self) -> list[tuple[str | None, Estimate]]:
        """One interval for each group."""
        found = [Estimate(each.value, each.low, each.high) for each in self.answers]
        return list(zip(self.labels, found, strict=True))

    def __repr__(self) -> str:
        width = max(map(len, self.labels))
        texts = rounded_alike([estimate for _, estimate in self.rows()])
        widest = max(len(value) for value, _, _ in texts)
        lines = [
            f"{label.ljust(width)}  {value.rjust(widest)}  [{low}, {high}]"
            for label, (value, low, high) in zip(self.labels, texts, strict=True)
        ]
        return "\n".join([*lines, self.record.small_print])

    def _repr_html_(self) -> str:
        scale = "from {} to {}".format(*map(write_bound, self.bounds))
        headings = (", ".join(self.by), "value", "interval", scale, "share of rows")
        rows = []
        texts = rounded_alike([estimate for _, estimate in self.rows()])
        for (label, one), share, (value, low, high) in zip(self.rows(), self.shares, texts, strict=True):
            _, least, most = write_estimate(Estimate(share[0], *share), 4)
            bar = interval_bar(one, self.bounds)
            rows.append((label or "", value, f"[{low}, {high}]", bar, f"[{least}, {most}]"))
        return notebook.table(headings, rows) + notebook.small(self.record.small_print)


NUMBERS = ("value", "low", "high", "share_low", "share_high")


def in_groups(kind: str, context: Context, grouped: Grouped, rows_per_query: int | None) -> Question:
    """Return the question that asks for every group, in as many passes as it takes.

    Parameters
    ----------
    kind
        The kind of the question.
    context, rows_per_query
        As for every question; the rows are those of one pass.
    grouped
        The query about all groups.
    """
    draws = context.draws(grouped, rows_per_query)
    together = max(1, (context.guarantee.most_at_once - 1) // 2)
    count = len(grouped.groups)
    passes = -(-count // together)
    parts = grouped.in_passes(passes)
    prices = [context.price(part, draws) for part in parts]
    cost = Cost(sum(one.charge for one, _ in prices), sum(one.intervals for one, _ in prices))
    rows_read = sum(rows for _, rows in prices)

    def run(drawing: Drawing) -> Result:
        drawing, lines = drawing.under(context.guarantee), []
        releases = [(drawing.release(part, draws), len(part.groups)) for part in parts]
        known = drawing.guarantee.groups_of_all(releases)
        values = [value for release, _ in releases for value in release.values]
        for group, value, (interval, (low, high)) in zip(grouped.groups, values, known, strict=True):
            one = Estimate.within(grouped.bounds, value, interval).to_json()
            lines.append({"group": list(group)} | one | {"share_low": low, "share_high": high})
        return {"by": [key.text for key in grouped.keys], "groups": lines, "bounds": list(grouped.bounds)}

    how = "in one pass" if passes == 1 else f"in {passes} passes"
    saved = f"{count} groups {how}, where {count} questions would read {count * draws:,} rows"
    question = Question(
        kind=kind,
        text=grouped.text,
        identity=identity_of(grouped, None if draws == context.rows_per_query else draws, context.mechanism),
        cost=cost,
        rows_read=rows_read,
        run=run,
        work=len(parts) * (RELEASE_WORK + draws * grouped.work),
        cheaper=saved if count > 1 else None,
        widths=context.group_widths(parts[0], draws),
    )
    return context.said_published(question, [name for key in grouped.keys for name in key.columns])
