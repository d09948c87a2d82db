"""The two tables of a database that holds ledgers, and the statements about them."""

from holdfast.ledger.store import MAX_DATASET_NAME, Row, Tip

ENTRIES, LEDGERS = "holdfast_entries", "holdfast_ledgers"

_TIP, _ROW = ", ".join(Tip._fields), ", ".join(Row._fields)
TABLES = (
    f"""CREATE TABLE {LEDGERS} (
        dataset VARCHAR({MAX_DATASET_NAME}) NOT NULL PRIMARY KEY, seq BIGINT NOT NULL, hash VARCHAR(64) NOT NULL,
        charge BIGINT NOT NULL, intervals BIGINT NOT NULL, peaks TEXT NOT NULL, taken_charge BIGINT NOT NULL,
        taken_intervals BIGINT NOT NULL, places BIGINT NOT NULL, secret VARCHAR(64) NOT NULL,
        content VARCHAR(64) UNIQUE)""",
    f"""CREATE TABLE {ENTRIES} (
        dataset VARCHAR({MAX_DATASET_NAME}) NOT NULL, seq BIGINT NOT NULL, key_digest VARCHAR(64), body TEXT NOT NULL,
        previous VARCHAR(64) NOT NULL, hash VARCHAR(64) NOT NULL, charge BIGINT NOT NULL, intervals BIGINT NOT NULL,
        PRIMARY KEY (dataset, seq))""",
    f"CREATE UNIQUE INDEX {ENTRIES}_by_key ON {ENTRIES} (dataset, key_digest)",
)


class Statements:
    """The SQL of one dialect: `mark` stands for a parameter."""

    def __init__(self, mark: str, *, lock: str, tables: tuple[str, ...]) -> None:
        row, tip = (", ".join([mark] * len(kind._fields)) for kind in (Row, Tip))
        self.tables = tables
        self.tip = f"SELECT {_TIP} FROM {LEDGERS} WHERE dataset = {mark}"
        self.lock = f"{self.tip}{lock}"
        self.find = f"SELECT {_ROW} FROM {ENTRIES} WHERE dataset = {mark} AND key_digest = {mark}"
        self.read = f"SELECT {_ROW} FROM {ENTRIES} WHERE dataset = {mark} AND seq >= {mark} ORDER BY seq LIMIT {mark}"
        self.hash_at = f"SELECT hash FROM {ENTRIES} WHERE dataset = {mark} AND seq = {mark}"
        self.insert = f"INSERT INTO {ENTRIES} (dataset, {_ROW}) VALUES ({mark}, {row})"
        self.append = f"{self.insert} ON CONFLICT (dataset, key_digest) DO NOTHING"  # a question is answered once
        self.advance = (
            f"UPDATE {LEDGERS} SET {', '.join(f'{name} = {mark}' for name in Tip._fields)} WHERE dataset = {mark}"
        )
        self.begin = f"INSERT INTO {LEDGERS} (dataset, {_TIP}, secret, content) VALUES ({mark}, {tip}, {mark}, {mark})"
        self.private = f"SELECT secret, content FROM {LEDGERS} WHERE dataset = {mark}"
        self.owner = f"SELECT dataset FROM {LEDGERS} WHERE content = {mark}"
        self.datasets = f"SELECT dataset FROM {LEDGERS} ORDER BY dataset"
