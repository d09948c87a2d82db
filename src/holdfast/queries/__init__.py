"""What may be asked: text, Polars expressions and callables become checked functions of one row."""
