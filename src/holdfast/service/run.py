"""The process: bind, say where, serve until told to stop."""

import os
import socket
from collections.abc import Callable

import uvicorn

from holdfast.errors import InvalidArgument
from holdfast.service import logs
from holdfast.service.app import SETTINGS, build, settle
from holdfast.service.settings import Settings

GRACE = 10  # seconds for requests under way when the server is told to stop
MOST_CONNECTIONS = 1_000


def serve(settings: Settings, announce: Callable[[str, str], None]) -> None:
    """Serve until SIGINT or SIGTERM. `announce` gets the address and the keeper's one-time link."""
    listening = _bind(settings)
    logs.begin()
    port = listening.getsockname()[1]
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    address = settings.public_url or f"http://{host}:{port}"
    app = build(settings)
    desk = app.state.desk
    announce(address, f"{address}/sign-in?code={desk.people.link(desk.keeper)}")
    options = {
        "access_log": False,
        "log_level": "warning",
        "timeout_graceful_shutdown": GRACE,
        "timeout_keep_alive": 30,
        "limit_concurrency": MOST_CONNECTIONS,
        "server_header": False,
        "date_header": True,
        "proxy_headers": settings.public_url is not None,
    }
    if settings.workers == 1:
        settle()
        uvicorn.Server(uvicorn.Config(app, **options)).run(sockets=[listening])  # type: ignore[arg-type]
        return
    desk.close()
    os.environ[SETTINGS] = settings.to_json()
    factory = "holdfast.service.app:from_environment"
    config = uvicorn.Config(factory, factory=True, workers=settings.workers, **options)  # type: ignore[arg-type]
    from uvicorn.supervisors import Multiprocess

    Multiprocess(config, sockets=[listening]).run()


def _bind(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
    except OSError as error:
        listening.close()
        raise InvalidArgument(
            f"port must be free; {settings.host}:{settings.port} is not ({error.strerror}). Choose one with --port.",
            name="port",
        ) from None
    listening.set_inheritable(True)
    return listening
