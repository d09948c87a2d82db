"""Spark deals where the data lake is: `mapInArrow` on every partition, keyed by the partition's number.

Spark runs a partition again when a worker is lost, and reads the same rows in the same order if the table is made of
files; so a task deals the same cards. Spark's own `rand()` would draw again, and rows would be lost or doubled. A table
that was shuffled has no fixed order: write it to files first.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import polars as pl

from holdfast.errors import InvalidArgument, MissingExtra, RowSourceError
from holdfast.rows.decks.cards import PLACE
from holdfast.rows.engines import ENGINES, ROWS, SUMS, Engine, Task
from holdfast.rows.scans.scan import BATCH, Scan


class SparkScan(Scan):
    """A Spark data frame: what is known about it before it is read."""

    name = where = "data"

    def __init__(self, table: Any) -> None:
        self.table = table

    def open(self) -> None:
        """Take over the schema."""
        empty = pl.DataFrame(self.table.limit(0).toArrow())
        self.take_schema(empty.schema, [field.name for field in self.table.schema.fields if not field.nullable])

    def rows(self) -> int | None:
        """Let Spark count the rows."""
        return int(self.table.count())

    def batches(self, after: int = 0) -> Iterator[pl.DataFrame]:
        """Refuse: the rows stay where they are."""
        raise InvalidArgument("A Spark data frame must be dealt by Spark; name that engine.", name="engine")


def scan(table: Any) -> SparkScan:
    """Return what is known about a Spark data frame."""
    try:
        import pyspark.sql
    except ImportError:
        raise MissingExtra("Spark is not installed: pip install 'holdfast[spark]'.", extra="spark") from None
    if not isinstance(table, pyspark.sql.DataFrame):
        raise InvalidArgument(f"source must be a data frame of Spark; got {type(table).__name__}.", name="source")
    if "Exchange" in str(getattr(table, "_jdf", table).queryExecution().executedPlan()):
        raise InvalidArgument(
            "source must be read from files: this data frame was shuffled, and its rows come in another order when a"
            " worker is lost. Write it to files, and deal from those.",
            name="source",
        )
    return SparkScan(table)


def deal(scan: SparkScan, task: Task, out: str) -> Iterator[pl.DataFrame]:
    """Run the task on every partition, write what it yields to `out`, and read that."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import LongType, StructField, StructType

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        frames = (pl.DataFrame(batch) for batch in batches)
        for cards in task.run(str(context.partitionId()), frames):
            yield from cards.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(schema_of(cards)).to_batches()

    fields = [StructField(field.name, field.dataType, True) for field in scan.table.schema.fields]
    extra = [StructField(name, LongType(), True) for name in (PLACE, ROWS, *SUMS)]
    cards = scan.table.mapInArrow(run, StructType([*fields, *extra]))
    try:
        cards.write.mode("error").parquet(out)
    except PySparkException as problem:  # its text may quote values
        raise RowSourceError(f"Spark failed while dealing: {type(problem).__name__}.") from None
    files = pl.scan_parquet(f"{out}/*.parquet", hive_partitioning=False)
    yield from files.collect_batches(maintain_order=False, chunk_size=BATCH)


def schema_of(cards: pl.DataFrame) -> Any:
    """Return the Arrow schema that Spark expects for these columns: texts with 32-bit offsets, microseconds."""
    import pyarrow as pa

    fields = []
    for field in cards.to_arrow(compat_level=pl.CompatLevel.oldest()).schema:
        kind = field.type
        if pa.types.is_large_string(kind):
            kind = pa.string()
        elif pa.types.is_timestamp(kind):
            kind = pa.timestamp("us", kind.tz)
        fields.append(pa.field(field.name, kind))
    return pa.schema(fields)


ENGINES.register("spark", Engine(scan, deal))
