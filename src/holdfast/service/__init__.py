"""A shared question desk: many analysts, one budget for each dataset, one page.

settings.py   what the keeper decided: datasets, address, limits; from arguments, environment and a TOML file
tables.py     what the server keeps beside the ledgers: tokens, sign-ins, retries, reservations
people.py     tokens and sign-ins: who is asking
quotas.py     one analyst's part of the budget, counted in the ledger
retries.py    idempotency keys: the same request again gets the same answer
rates.py      how fast one may ask
datasets.py   the datasets by name, each a `Session`
asking.py     one question over HTTP: checked, reserved, asked through the session
access.py     who may come in: deny by default, origins, cookies
limits.py     how large and how slow a request may be; headers every response carries
failures.py   the one shape of every refusal
shapes.py     what is said over the wire
api.py, keeping.py   the routes under /api/v1: for everyone; for the keeper
pages.py, charts.py  the same for people
agents.py     the same for agents, at /mcp
desk.py       what every request can reach
metrics.py, logs.py  for those who watch
app.py        the pieces put together;  run.py  the process
"""
