"""The server: many analysts, one budget for each dataset; an API, pages, agent tools and the client.

app.py              the application and its process
settings.py         from arguments, environment and a TOML file
state.py            what every request can reach
auth.py             who may call a route: deny by default, origins, cookies
tokens.py           tokens and sign-ins
database.py         what is stored beside the ledgers: tokens, sign-ins, idempotency keys, reservations
datasets.py         the datasets by name, each a `Session`
ask.py              one question over HTTP: turn, quota, idempotency key, then the session; released on a coarse clock
lanes.py            threads in which everybody has a turn
idempotency.py      the same request again gets the same response
schemas.py          the models of questions, made from the kinds that are registered; of other requests, of responses
errors.py           errors over HTTP
api.py              routes under /api/v1 for every token
admin.py            routes and page for the admin
pages.py            pages;  forms.py  what their forms say;  charts.py  what they draw
connections.py      how many connections there are, and what they may say before anybody has signed in
limits.py           how large, slow and frequent requests may be; security headers
monitoring.py       logs and metrics
mcp.py              tools for agents, over the Model Context Protocol
calls.py            what the client can send, and how responses are read
client.py           `holdfast.connect`: the verbs of a session, from a server
"""
