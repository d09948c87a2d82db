"""Tables read once, batch by batch, in bounded memory: on their way into a column folder or a deck.

scan     what a scan is; lazy frames, and anything that exports an Arrow stream: DuckDB, PyArrow, pandas, ibis, ...
files    Parquet, CSV, Arrow, JSON lines: one file, many, a folder of partitions
texts    what is particular to CSV and JSON lines
parquet  what headers of files say besides types; Parquet files with large row groups, page by page
remote   object stores; Delta and Iceberg tables, at one version; a table or a query of PostgreSQL, in one snapshot
"""
