"""`holdfast serve`."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from holdfast.cli.command import Argument, Flag
from holdfast.cli.messages import noting_at_once
from holdfast.cli.options import Json, has_password, session_plan, with_plan
from holdfast.cli.output import say, show_json
from holdfast.errors import InvalidArgument, MissingExtra

Files = Annotated[
    list[str] | None,
    Argument(metavar="DATA", help="Parquet, CSV or Arrow files or holdfast folders, or NAME=FILE."),
]


@partial(with_plan, but="plan_mechanism")  # a server chooses the mechanism itself
def command(
    data: Files = None,
    *,
    plan: Mapping[str, Any],
    host: Annotated[str | None, Flag(help="The address to listen on; default 127.0.0.1.")] = None,
    port: Annotated[int | None, Flag(help="The port; default 8765, 0 for any free one.")] = None,
    database: Annotated[
        str | None,
        Flag(metavar="URL", help="Where ledgers and tokens are stored; default beside the data."),
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
        from holdfast.service.settings import DatasetSettings, load
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

    def announce(address: str, link: str) -> None:
        if json:
            show_json(address=address, link=link, datasets=list(settings.datasets))
            return
        say(f"Serving {', '.join(settings.datasets) or 'nothing yet'} at {address}", bold=True)
        say(f"Sign in as admin (works once, within an hour): {link}")

    with noting_at_once():
        serve(settings, announce)
