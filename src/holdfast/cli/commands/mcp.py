"""`holdfast mcp`."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from holdfast.cli.command import Argument, Flag
from holdfast.cli.messages import noting_warnings
from holdfast.cli.options import Json, Ledger, open_session, with_plan
from holdfast.cli.output import note, show_json
from holdfast.errors import InvalidArgument, MissingExtra


@with_plan
def command(
    data: Annotated[list[str] | None, Argument(metavar="DATA", help="Files or folders to ask; or use --url.")] = None,
    url: Annotated[str | None, Flag(help="Ask a holdfast server instead of files.")] = None,
    token_file: Annotated[
        str | None, Flag(help="The token for --url; with --http, the token agents must send.")
    ] = None,
    *,
    plan: Mapping[str, Any],
    ledger: Ledger = None,
    analyst: Annotated[str, Flag(help="The name on the answers in the ledger.")] = "agent",
    http: Annotated[bool, Flag("--http", help="Streamable HTTP at /mcp instead of standard input.")] = False,
    host: Annotated[str, Flag(help="The address to listen on, with --http.")] = "127.0.0.1",
    port: Annotated[int, Flag(help="The port, with --http.")] = 8766,
    json: Json = False,
) -> None:
    """Offer tools to agents over the Model Context Protocol: ask, price, budget, schema and plan; submit and standings.

    Over standard input and output, or as streamable HTTP with --http. A token for --url is read from --token-file,
    or from the environment variable HOLDFAST_TOKEN.

    \b
    holdfast mcp flights.parquet --queries 10000
    holdfast mcp --url https://data.example.org --token-file token.txt
    """
    if bool(data) == bool(url):
        raise InvalidArgument("Give either files to ask or a server with --url.")
    if url is not None and http and host not in ("127.0.0.1", "::1", "localhost"):
        raise InvalidArgument("host must be this machine when --url is used; others can ask that server directly.")
    if json and not http:
        message = "--json needs --http: standard output carries the protocol, which is JSON itself."
        raise InvalidArgument(message, name="json")
    token = _token(token_file) if url is not None or http else ""
    try:
        from holdfast.service.mcp import http_app, serve_stdio
    except ModuleNotFoundError as error:
        message = f"Tools for agents need {error.name}. Install them with: pip install 'holdfast[mcp]'."
        raise MissingExtra(message, extra="mcp") from error
    sessions: dict[str, Any]
    if url is not None:
        from holdfast.service.client import connect, list_datasets

        sessions = {name: connect(url, token, dataset=name) for name in list_datasets(url, token)}
    else:
        with noting_warnings() as notes:
            opened = [open_session(one, plan, ledger=ledger, analyst=analyst) for one in data or []]
        for sentence in notes:  # for whoever starts it: standard error is not part of the protocol
            note(sentence)
        sessions = {session.dataset: session for session in opened}
    if not http:
        serve_stdio(sessions)
        return
    import uvicorn

    app = http_app(sessions, token)
    address = f"http://{host}:{port}/mcp"
    if json:
        show_json(address=address, datasets=list(sessions))
    else:
        note(f"Tools for agents at {address}")
    from holdfast.service.connections import GuardedProtocol

    uvicorn.run(app, host=host, port=port, http=GuardedProtocol, ws="none", log_level="error", server_header=False)


def _token(token_file: str | None) -> str:
    try:
        text = Path(token_file).read_text(encoding="utf-8") if token_file else os.environ.get("HOLDFAST_TOKEN", "")
    except (OSError, UnicodeDecodeError):
        raise InvalidArgument(
            f"token_file must be a file that can be read; {token_file} cannot.", name="token_file"
        ) from None
    if len(text.strip()) < 20:
        raise InvalidArgument("A token of at least 20 characters is required: use --token-file or HOLDFAST_TOKEN.")
    return text.strip()
