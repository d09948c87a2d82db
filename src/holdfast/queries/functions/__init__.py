"""What an expression may do: for every operation its types, its NULLs and how it is evaluated."""
