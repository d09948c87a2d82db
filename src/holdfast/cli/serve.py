"""Commands that stay and answer others: serve, mcp."""

import os
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from holdfast.cli.options import (
    TABLES,
    Argument,
    Flag,
    Json,
    Ledger,
    has_password,
    open_session,
    session_plan,
    with_plan,
)
from holdfast.cli.output import note, noting_at_once, noting_warnings, say, show_json, show_notes
from holdfast.errors import InvalidArgument, MissingExtra, RowSourceError

Files = Annotated[list[str] | None, Argument(metavar="DATA", help=f"Tables, each {TABLES}; or NAME=DATA.")]


@partial(with_plan, but="plan_mechanism")  # a server chooses the mechanism itself
def serve(
    data: Files = None,
    *,
    plan: Mapping[str, Any],
    host: Annotated[str | None, Flag(help="The address to listen on; default 127.0.0.1.")] = None,
    port: Annotated[int | None, Flag(help="The port; default 8765, 0 for any free one.")] = None,
    database: Annotated[
        str | None, Flag(metavar="URL", help="Where ledgers and tokens are stored; default beside the data.")
    ] = None,
    token_file: Annotated[str | None, Flag(help="Holds the admin's token, or receives a new one.")] = None,
    data_folder: Annotated[str | None, Flag(help="Where the admin may register files from.")] = None,
    public_url: Annotated[str | None, Flag(help="The public address, behind a proxy: https://host.")] = None,
    workers: Annotated[int | None, Flag(help="Server processes; default 1.")] = None,
    rate: Annotated[float | None, Flag(help="Requests per second and token, on average.")] = None,
    burst: Annotated[int | None, Flag(help="Requests at once per token.")] = None,
    open_metrics: Annotated[bool, Flag("--open-metrics", help="Show /metrics to anyone, without a token.")] = False,
    config: Annotated[str | None, Flag(metavar="FILE", help="Settings in a TOML file.")] = None,
    json: Json = False,
) -> None:
    """Serve datasets to many analysts: API, web page, one budget for each dataset.

    Prints the address and a one-time link that signs the admin in. The admin creates tokens for analysts on the admin
    page. Settings can also come from the environment (HOLDFAST_PORT=80) and a TOML file.

    \b
    holdfast serve flights.parquet --queries 10000
    holdfast serve flights.parquet patients=cohort.csv --database postgresql://host/db --workers 2
    """
    try:
        from holdfast.service.app import serve
        from holdfast.service.settings import DatasetSettings, in_settings, load
    except ModuleNotFoundError as error:
        message = f"The server needs {error.name}. Install it with: pip install 'holdfast[server]'."
        raise MissingExtra(message, extra="server") from error

    if database is not None and has_password(database):
        raise InvalidArgument(
            "database must not contain a password on the command line, where every user of this machine can see it."
            " Set HOLDFAST_DATABASE, or HOLDFAST_DATABASE_FILE to the name of a file that holds it.",
            name="database",
        )
    chosen = session_plan(**plan)
    del chosen["mechanism"]
    files = {}
    for one in data or []:
        name, separator, path = one.partition("=")
        if not separator or Path(one).exists():
            name, path = Path(Path(one).name.removesuffix(".holdfast")).stem, one
        if name in files:
            raise InvalidArgument(
                f"DATA must have different names; two are {name!r}. Give one as NAME=FILE.", name="data"
            )
        files[name] = DatasetSettings(path=path, **chosen)
    settings = load(
        files,
        config=config,
        host=host,
        port=port,
        database=database,
        token_file=token_file,
        data_folder=data_folder,
        public_url=public_url,
        workers=workers,
        rate=rate,
        burst=burst,
        open_metrics=open_metrics or None,
    )
    if not settings.datasets and settings.data_folder is None:
        raise InvalidArgument("Give at least one dataset to serve, or a --data-folder to register some from.")

    # Standard output may be a log, whose readers must not become admin: there, whoever has the admin's token uses that.
    needs_link = sys.stdout.isatty() or not (settings.token_file or settings.admin_token)

    def announce(address: str, link: str) -> None:
        if json:
            show_json(address=address, link=link if needs_link else None, datasets=list(settings.datasets))
            return
        say(f"Serving {', '.join(settings.datasets) or 'nothing yet'} at {address}", bold=True)
        how = f"(works once, within an hour): {link}" if needs_link else "with the admin's token."
        say(f"Sign in as admin {how}")

    with noting_at_once():
        try:
            serve(settings, announce)
        except RowSourceError as error:
            if not data:  # all paths are in the file, and how they are written belongs beside them
                error.message = in_settings(error.message)
            raise


@with_plan
def mcp(
    data: Annotated[
        list[str] | None, Argument(metavar="DATA", help=f"Tables to ask, each {TABLES}; or use --url.")
    ] = None,
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
    sessions: dict[str, Any] = {}
    if url is not None:
        from holdfast.service.client import connect, list_datasets

        sessions = {name: connect(url, token, dataset=name) for name in list_datasets(url, token)}
    else:
        with noting_warnings() as notes:
            for one in data or []:
                session = open_session(one, plan, ledger=ledger, analyst=analyst)
                if session.dataset in sessions:
                    message = f"DATA must have different names; two are {session.dataset!r}. Rename one of the files."
                    raise InvalidArgument(message, name="data")
                sessions[session.dataset] = session
        show_notes(notes)  # for whoever starts it: standard error is not part of the protocol
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
