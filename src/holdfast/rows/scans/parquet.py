"""What Polars leaves to do with Parquet and Arrow files: read their headers, and large row groups page by page.

Polars reads names and types but not which columns cannot have missing values, nor how large row groups are; so the
bytes that tell are parsed here: in the footer of a Parquet file (Thrift, compact), and in the first message of an Arrow
file (FlatBuffers). Most writers rule out nothing.

Polars decodes whole row groups, several at a time, so that its memory grows with what the writer of a file put into
one: PyArrow puts a million rows there, which with long texts are gigabytes. PyArrow, where it is installed, reads a row
group page by page.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import polars as pl

from holdfast.rows.scans import scan
from holdfast.rows.scans.scan import skipping

LARGE = 16 << 20  # bytes of a row group, uncompressed
_MOST_AT_ONCE = 1 << 14  # rows
_CONTINUATION = 0xFFFFFFFF
_SHORT = 1 << 18  # bytes of a footer that is parsed here; for a longer one, importing a library takes less time


def required_columns(path: Path, format_name: str) -> frozenset[str]:
    """Return the columns that the file's own header declares required; none if it cannot be parsed."""
    read: dict[str, Callable[[BinaryIO], set[str]]] = {"Parquet": _in_parquet, "Arrow": _in_arrow}
    if format_name not in read:
        return frozenset()
    try:
        with path.open("rb") as file:
            return frozenset(read[format_name](file))
    except (OSError, ValueError, IndexError, KeyError, TypeError, RecursionError, struct.error):
        return frozenset()  # damaged, or another format version: the reader of the values reports it


def row_groups(path: Path) -> list[tuple[int, int]] | None:
    """Return the bytes, uncompressed, and the rows of each row group of a Parquet file; None if its footer is long."""
    try:
        with path.open("rb") as file:
            footer = _footer(file)
            if len(footer) > _SHORT:
                return None
            return [(group[2], group[3]) for group in _Thrift(footer).struct(until=4)[4]]
    except (OSError, ValueError, IndexError, KeyError, TypeError, RecursionError, struct.error):
        return None


def may_have_large_row_groups(path: Path, size: int) -> bool:
    """Whether a Parquet file has row groups of more bytes than this, uncompressed; also if its footer is long."""
    groups = row_groups(path)
    return groups is None or any(each > size for each, _ in groups)


class RowGroups:
    """Files of the same columns, read page by page; the values are those that Polars would read.

    Parameters
    ----------
    paths
        The files.
    schema
        The columns to read.
    """

    def __init__(self, paths: Sequence[Path], schema: pl.Schema) -> None:
        self._paths, self._schema = paths, schema

    @classmethod
    def of(cls, paths: Sequence[Path], schema: pl.Schema) -> "RowGroups | None":
        """Return these files; None if Polars can or must read them.

        It can if their row groups are small, and must if PyArrow is not installed or sees columns of other types.
        """
        if not any(may_have_large_row_groups(path, LARGE) for path in paths):
            return None
        try:
            import pyarrow as pa
            import pyarrow.parquet  # part of it that may be missing
        except ImportError:
            return None
        try:
            large, agree = False, True
            for path in paths:  # one at a time: there may be more than a process may have open
                with _page_by_page(path) as file:
                    large, agree = large or _largest(file) > LARGE, agree and _agree(file, schema)
            if large and agree:
                return cls(paths, schema)
        except (pa.ArrowException, OSError, pl.exceptions.PolarsError):
            pass  # damaged, or not what Polars takes them for: Polars reports it
        return None

    def read(self, after: int) -> Iterator[pl.DataFrame]:
        """Yield the rows in order, without the first `after`; raises errors of PyArrow."""
        for path in self._paths:
            with _page_by_page(path) as file:
                for number in range(file.num_row_groups):
                    group = file.metadata.row_group(number)
                    if after >= group.num_rows:
                        after -= group.num_rows
                        continue
                    yield from skipping(self._read(file, number, group), after)
                    after = 0

    def _read(self, file: Any, number: int, group: Any) -> Iterator[pl.DataFrame]:
        import pyarrow as pa

        each = max(1, group.total_byte_size // max(1, group.num_rows))
        rows = max(1, min(_MOST_AT_ONCE, scan.BATCH_BYTES // 4 // each))
        for batch in file.iter_batches(rows, [number], self._schema.names()):
            yield pl.DataFrame([each.cast(self._schema[each.name]) for each in pl.DataFrame(batch)])
            del batch
            pa.default_memory_pool().release_unused()


def _page_by_page(path: Path) -> Any:
    import pyarrow.parquet as pq

    return pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20)


def _largest(file: Any) -> int:
    return max((file.metadata.row_group(i).total_byte_size for i in range(file.num_row_groups)), default=0)


def _agree(file: Any, schema: pl.Schema) -> bool:
    """Whether PyArrow sees these columns with the same types; decimals, which are stored as numbers, are cast."""
    if any("." in name for name in schema):  # by which PyArrow means a field of a record
        return False
    found = pl.DataFrame(file.schema_arrow.empty_table()).schema
    return all(
        name in found and (found[name] == dtype or (isinstance(found[name], pl.Decimal) and dtype == pl.Float64))
        for name, dtype in schema.items()
    )


def _footer(file: BinaryIO) -> bytes:
    file.seek(-8, 2)
    length, magic = struct.unpack("<I4s", file.read(8))
    if magic != b"PAR1":
        raise ValueError
    file.seek(-8 - length, 2)
    return file.read(length)


def _in_parquet(file: BinaryIO) -> set[str]:
    root, *columns = _Thrift(_footer(file)).struct(until=2)[2]
    if root[5] != len(columns):  # nested columns, which are refused elsewhere
        return set()
    return {column[4].decode() for column in columns if column[3] == 0}


class _Thrift:
    """As much of Thrift's compact protocol as a Parquet schema needs: values by field number."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def struct(self, until: int | None = None) -> dict[int, Any]:
        """Read a struct, at most up to this field."""
        found: dict[int, Any] = {}
        number = 0
        while until not in found:
            head = self._byte()
            if head == 0:
                break
            number = number + (head >> 4) if head >> 4 else self._zigzag()
            found[number] = self._value(head & 15)
        return found

    def _value(self, kind: int) -> Any:
        if kind in (1, 2):
            return kind == 1
        if kind == 3:
            return self._byte()
        if kind in (4, 5, 6):
            return self._zigzag()
        if kind == 7:
            return self._bytes(8)
        if kind == 8:
            return self._bytes(self._varint())
        if kind == 9:
            head = self._byte()
            count = self._varint() if head >> 4 == 15 else head >> 4
            if count > len(self._data):  # an item has at least a byte
                raise ValueError
            return [self._value(head & 15) for _ in range(count)]
        if kind == 12:
            return self.struct()
        raise ValueError

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _bytes(self, count: int) -> bytes:
        self._at += count
        return self._data[self._at - count : self._at]

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._byte()) & 128:
            value |= (byte & 127) << shift
            shift += 7
            if shift > 63:
                raise ValueError
        return value | byte << shift

    def _zigzag(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)


def _in_arrow(file: BinaryIO) -> set[str]:
    magic, marker = struct.unpack("<8sI", file.read(12))
    if magic != b"ARROW1\0\0":
        raise ValueError
    length = struct.unpack("<I", file.read(4))[0] if marker == _CONTINUATION else marker
    data = file.read(length)
    (root,) = struct.unpack_from("<I", data)
    fields = _follow(data, _slot(data, _follow(data, _slot(data, root, 2)), 1))  # the fields of the message's schema
    (count,) = struct.unpack_from("<I", data, fields)
    required = set()
    for place in range(count):
        field = _follow(data, fields + 4 + 4 * place)
        nullable = _slot(data, field, 1)
        if not nullable or not data[nullable]:
            text = _follow(data, _slot(data, field, 0))
            (size,) = struct.unpack_from("<I", data, text)
            required.add(data[text + 4 : text + 4 + size].decode())
    return required


def _slot(data: bytes, table: int, number: int) -> int:
    """Return the offset of a field in a FlatBuffers table; 0 if the table omits it."""
    directory = table - struct.unpack_from("<i", data, table)[0]
    (size,) = struct.unpack_from("<H", data, directory)
    place = 4 + 2 * number
    (offset,) = struct.unpack_from("<H", data, directory + place) if place < size else (0,)
    return table + offset if offset else 0


def _follow(data: bytes, place: int) -> int:
    return place + int(struct.unpack_from("<I", data, place)[0])
