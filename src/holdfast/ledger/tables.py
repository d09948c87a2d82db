"""The two tables, the triggers that keep them append-only, and the few statements a store runs.

Statements are compiled once to text with named parameters and run on the bare driver: a commit is a handful
of them under a lock, and everyone else is waiting.
"""

from dataclasses import dataclass

from sqlalchemy import (
    BigInteger,
    Column,
    Dialect,
    Index,
    MetaData,
    String,
    Table,
    Text,
    bindparam,
    insert,
    literal_column,
    select,
    update,
)
from sqlalchemy.schema import CreateIndex, CreateTable
from sqlalchemy.sql import ClauseElement

LONGEST_DATASET = 200
ENTRIES, LEDGERS = "holdfast_entries", "holdfast_ledgers"

_metadata = MetaData()
_ledgers = Table(
    LEDGERS,
    _metadata,
    Column("dataset", String(LONGEST_DATASET), primary_key=True),
    Column("seq", BigInteger, nullable=False),
    Column("hash", String(64), nullable=False),
    Column("charge", BigInteger, nullable=False),
    Column("intervals", BigInteger, nullable=False),
)
_entries = Table(
    ENTRIES,
    _metadata,
    Column("dataset", String(LONGEST_DATASET), primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("key_digest", String(64)),
    Column("body", Text, nullable=False),
    Column("previous", String(64), nullable=False),
    Column("hash", String(64), nullable=False),
    Column("charge", BigInteger, nullable=False),
    Column("intervals", BigInteger, nullable=False),
    sqlite_with_rowid=False,  # rows lie in the order of their numbers
)
_by_key = Index("holdfast_entries_by_key", _entries.c.dataset, _entries.c.key_digest, unique=True)

_SQLITE_TRIGGER = """CREATE TRIGGER {table}_no_{act} BEFORE {act} ON {table}
BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END"""
_POSTGRES_FUNCTION = """CREATE OR REPLACE FUNCTION holdfast_append_only() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'a ledger is append-only'; END $$"""
_POSTGRES_TRIGGER = """CREATE TRIGGER {table}_no_{act} BEFORE {act} ON {table}
FOR EACH STATEMENT EXECUTE FUNCTION holdfast_append_only()"""


@dataclass(frozen=True)
class Statements:
    """SQL text for one dialect. Parameters: `name` is the dataset; the rest as the columns are called."""

    schema: tuple[str, ...]
    tip: str
    lock: str
    find: str
    read: str
    append: str
    advance: str
    begin: str
    datasets: str


def statements(dialect: Dialect) -> Statements:
    """Compile everything for this dialect."""

    def text(statement: ClauseElement) -> str:
        return str(statement.compile(dialect=dialect))

    row = [column for column in _entries.c if column.name != "dataset"]
    tip = select(_ledgers.c.seq, _ledgers.c.hash, _ledgers.c.charge, _ledgers.c.intervals).where(
        _ledgers.c.dataset == bindparam("name")
    )
    mine = select(*row).where(_entries.c.dataset == bindparam("name"))
    return Statements(
        schema=_schema(dialect),
        tip=text(tip),
        lock=text(tip.with_for_update()),
        find=text(mine.where(_entries.c.key_digest == bindparam("key_digest"))),
        read=text(
            mine.where(_entries.c.seq >= bindparam("start"))
            .order_by(_entries.c.seq)
            .limit(bindparam("count"))
            .offset(literal_column("0"))
        ),
        append=text(insert(_entries)),
        advance=text(
            update(_ledgers)
            .where(_ledgers.c.dataset == bindparam("name"))
            .values({column: bindparam(f"new_{column.name}") for column in _ledgers.c if column.name != "dataset"})
        ),
        begin=text(insert(_ledgers)),
        datasets=text(select(_ledgers.c.dataset).order_by(_ledgers.c.dataset)),
    )


def _schema(dialect: Dialect) -> tuple[str, ...]:
    tables: list[ClauseElement] = [CreateTable(_ledgers), CreateTable(_entries), CreateIndex(_by_key)]
    forbidden = [(ENTRIES, "UPDATE"), (ENTRIES, "DELETE"), (LEDGERS, "DELETE")]
    if dialect.name == "postgresql":
        forbidden += [(ENTRIES, "TRUNCATE"), (LEDGERS, "TRUNCATE")]
        function, trigger = [_POSTGRES_FUNCTION], _POSTGRES_TRIGGER
    else:
        function, trigger = [], _SQLITE_TRIGGER
    triggers = [trigger.format(table=table, act=act) for table, act in forbidden]
    return tuple([str(table.compile(dialect=dialect)) for table in tables] + function + triggers)
