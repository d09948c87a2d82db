"""Tables read once, batch by batch, in bounded memory: on their way into a column folder or a deck.

scan        what a scan is; scans of Polars' lazy frames, which read most formats themselves
files       Parquet, CSV, Arrow, JSON lines: one file, many, a folder of partitions, an object store
streams     lazy frames and anything that exports an Arrow stream: DuckDB, PyArrow, pandas, ibis, ...
lakes       Delta and Iceberg tables, at one version
postgres    a table or a query of PostgreSQL, in one snapshot
"""
