"""Tables read once, batch by batch, in bounded memory: on their way into a column folder or a deck.

scan        what a scan is; lazy frames, and anything that exports an Arrow stream: DuckDB, PyArrow, pandas, ibis, ...
files       Parquet, CSV, Arrow, JSON lines: one file, many, a folder of partitions, an object store
texts       what is particular to CSV and JSON lines
row_groups  Parquet files with large row groups, page by page
header      which columns cannot have missing values, as a file's own header says
objects     files in an object store: which exist, and in which state
lakes       Delta and Iceberg tables, at one version
postgres    a table or a query of PostgreSQL, in one snapshot
"""
