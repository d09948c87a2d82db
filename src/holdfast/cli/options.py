"""What commands share: options, and how they open data."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from holdfast.cli.command import PLAN, Argument, Flag, spread
from holdfast.cli.messages import PLAN_FLAGS, in_flags, noting_warnings

if TYPE_CHECKING:
    from holdfast.session.session import Session


def plan_option(help: str) -> Any:
    """Describe an option of the plan, which help lists in a separate section."""
    return Flag(help=help, section=PLAN)


# The flag of an option is the name of the parameter, unless it is declared here.
Data = Annotated[str, Argument(metavar="DATA", help="A Parquet, CSV or Arrow file, or a holdfast folder.")]
Json = Annotated[bool, Flag("--json", help="Write one JSON document to standard output.")]
Ledger = Annotated[str | None, Flag(metavar="PATH|URL", help="Where the ledger is; if left out, beside the data.")]
Unit = Annotated[
    str | None, Flag(metavar="COLUMN", help="Which rows belong together, if rows are not independent; remembered.")
]
Analyst = Annotated[str | None, Flag(help="Your name, to be kept in the ledger.")]
Target = Annotated[str, Argument(metavar="DATA|LEDGER", help="A dataset, or a ledger's file or database URL.")]
WhichDataset = Annotated[str | None, Flag("--dataset", help="Which dataset, in a database with several.")]
Queries = Annotated[int | None, plan_option("How many questions to plan for.")]
Flips = Annotated[int | None, plan_option("How many single flips to plan for.")]
_MARGIN = "the margin (±) that every answer should have, for answers between 0 and 1."
Margin = Annotated[float | None, plan_option(_MARGIN.capitalize())]
PlanMargin = Annotated[float | None, plan_option(f"Instead of --queries: {_MARGIN}")]
Confidence = Annotated[float | None, plan_option("The probability that all answers hold at once; if left out, 0.95.")]
RowsEach = Annotated[
    str | None,
    plan_option("Rows each answer reads: a number, fast (at most 12,000), balanced (100,000; if left out) or best."),
]
End = Annotated[bool, plan_option("Refuse questions beyond the plan, instead of answering with wider margins.")]
Identical = Annotated[
    bool,
    plan_option("All rows have the same distribution; by default they may differ, and answers are about the average."),
]
ChecksShare = Annotated[
    float | None, plan_option("The share of rows that check guesses instead of answering, such as 0.2.")
]
Guarantee = Annotated[str, plan_option("best, or one of {guarantees}.")]
Mechanism = Annotated[str, plan_option("best, or one of {mechanisms}.")]
Worlds = Annotated[int, Flag(least=1, help="Independent worlds.")]
Processes = Annotated[int | None, Flag(least=1, help="Worlds to run at once; by default, as many as save time.")]


def planned(queries: int | None, flips: int | None) -> int | dict[str, int] | None:
    """Return `queries` as the planner expects it."""
    return queries if flips is None else {"mean": queries or 0, "flip": flips}


def rows_each(text: str | None) -> int | str | None:
    """Return rows per query as the planner expects it: a number or a word."""
    return int(text) if text is not None and text.isdecimal() else text


def session_plan(
    *,
    queries: Queries = None,
    flips: Flips = None,
    plan_margin: PlanMargin = None,
    confidence: Confidence = None,
    plan_rows_per_query: RowsEach = None,
    end: End = False,
    identical: Identical = False,
    checks: ChecksShare = None,
    guarantee: Guarantee = "best",
    plan_mechanism: Mechanism = "best",
) -> dict[str, Any]:
    """Return the plan as arguments of a session."""
    chosen = {"confidence": confidence, "guarantee": guarantee, "mechanism": plan_mechanism, "end": end}
    chosen |= {"identical": identical or None, "rows_per_query": rows_each(plan_rows_per_query)}
    return {"queries": planned(queries, flips), "margin": plan_margin, "checks": checks} | chosen


def with_plan(command: Callable[..., None], *, but: str = "") -> Callable[..., None]:
    """Give a command the options of `session_plan`, except `but`, in place of its parameter `plan`."""
    return spread(command, plan=[each for each in signature(session_plan).parameters.values() if each.name != but])


def _asking(*, ledger: Ledger = None, analyst: Analyst = None) -> None:
    """The options of all commands that ask, besides those of the plan."""


def that_asks(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a plan in place of its parameter `plan`, and of who asks in place of `who`."""
    return spread(with_plan(command), who=list(signature(_asking).parameters.values()))


def open_session(
    data: str, plan: Mapping[str, Any], *, ledger: str | None, analyst: str | None = None, unit: str | None = None
) -> "Session":
    """Open data under the plan whose options a command received."""
    from holdfast.session.session import Session

    with in_flags(PLAN_FLAGS):
        return Session(data, **session_plan(**plan), ledger=ledger, analyst=analyst, unit=unit)


def is_data(target: str) -> bool:
    """Whether a word names data, rather than a ledger."""
    from holdfast.rows.open import ROW_SOURCES
    from holdfast.rows.scans.files import FORMATS, REMOTE
    from holdfast.rows.scans.postgres import POSTGRES

    if target.startswith(REMOTE) or (target.startswith(POSTGRES) and ("table=" in target or "query=" in target)):
        return True
    if "://" in target:
        return False
    known = Path(target).is_dir() or Path(target).suffix.lower() in FORMATS
    return known or any(recognize(target) is not None for recognize in ROW_SOURCES.all())


def ledger_file(data: str) -> Path | None:
    """Return the ledger's file beside data on disk, if there is one."""
    from holdfast.ledger import file_beside

    path = Path(data).resolve()
    if not data or "://" in data or not path.name:
        return None
    file = file_beside(path)
    return file if file.is_file() else None


def has_password(url: str) -> bool:
    """Whether a database URL contains a password, even where `urlsplit` would not find it."""
    user, at, _ = url.partition("://")[2].rpartition("@")
    return (bool(at) and bool(user.partition(":")[2])) or "password=" in url


@contextmanager
def looking(data: str, ledger: str | None) -> Iterator["Session"]:
    """Open data for a command that asks nothing, without the warnings meant for those who ask."""
    with noting_warnings():
        session = open_session(data, {}, ledger=ledger)
    with session:
        yield session


def nothing_asked(session: "Session") -> str:
    """Return the sentence that the ledger has not begun."""
    return f"Nothing has been asked of {session.dataset} yet; its ledger begins with the first answer."
