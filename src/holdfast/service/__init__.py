"""The server: many analysts, one budget for each dataset; an API, pages, agent tools and the client.

app.py         the application and its process
settings.py    settings from arguments, environment and a TOML file
connections.py limits on connections, and on the heads of requests
limits.py      limits on the size and time of requests; security headers
access.py      what every request can reach, and who may call a route: deny by default, origins, cookies
tokens.py      tokens and sign-ins
database.py    the token database: tokens, sign-ins, quotas, responses under idempotency keys; a witness of ledgers
datasets.py    the datasets by name, each a `Session`; quotas: how many answers of each an analyst may use
ask.py         questions over HTTP: turn, quota, idempotency key, then the session; released on a coarse clock
lanes.py       pools of threads that serve callers in turn; turns.py: whose turn it is
schemas.py     the models of questions, made from the registered kinds; of other requests; of responses
errors.py      errors over HTTP
api.py         routes under /api/v1, for every token and for the admin
pages.py       pages, also the admin's;  charts.py  their charts;  forms.py  forms, suggestions, Python, curl, SQL
monitoring.py  logs, metrics, and spans for OpenTelemetry
mcp.py         tools for agents, over the Model Context Protocol
calls.py       the requests that the client can send, and how responses are read
client.py      `holdfast.connect`: the verbs of a session, from a server
"""
