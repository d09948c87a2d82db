"""What may be asked: SQL text, Polars expressions and Python functions become checked functions of one row."""
