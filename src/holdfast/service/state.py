"""What every request can reach: settings, tokens, datasets, and the service that asks them."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from starlette.requests import Request

from holdfast.errors import HoldfastError, ServiceUnavailable
from holdfast.questions.budget import Budget
from holdfast.service.ask import AskService, write_together
from holdfast.service.database import TokenDatabase
from holdfast.service.datasets import Datasets
from holdfast.service.lanes import Lanes
from holdfast.service.limits import RateLimiter
from holdfast.service.monitoring import Metrics
from holdfast.service.schemas import QuestionModels
from holdfast.service.settings import Settings
from holdfast.service.tokens import Token, TokenStore

FAILED_SIGN_IN_RATE, FAILED_SIGN_IN_BURST = 10.0, 100  # per second, and at once, from one address
READY_SECONDS = 1.0  # how long the result of a readiness check is reused
MOST_READY_SECONDS = 3.0  # how long a check may take
PLAN_REQUESTS = 25  # requests that a plan counts as: making one takes at least as long as this many answers

Result = TypeVar("Result")


class ServerState:
    """Everything a server process holds."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.database = TokenDatabase(settings.token_database)
        self.tokens = TokenStore(self.database, sign_in_seconds=settings.sign_in_hours * 3_600)
        self.admin: Token = self.tokens.admin(settings.token_file, settings.admin_token)
        self.datasets = Datasets(settings, self.database)
        self.questions = QuestionModels()
        self.metrics = Metrics()
        self.lanes = Lanes(each=settings.asks_at_once, waiting=settings.asks_waiting, write=write_together)
        self.rate_limits = RateLimiter(settings.rate, settings.burst)
        self.service = AskService(
            settings, self.database, self.datasets, self.questions, self.metrics, self.lanes, self.rate_limits
        )
        self.readiness = Readiness(self.probe)
        self.failed_sign_ins = RateLimiter(FAILED_SIGN_IN_RATE, FAILED_SIGN_IN_BURST)
        self.datasets.open_all()
        self._warm_up()

    def _warm_up(self) -> None:
        """Compile statements and open connections, so that the first requests do not all wait for that."""
        with suppress(HoldfastError):  # reported again when somebody asks
            self.service.idempotency.find("", "", "")
            self.tokens.authenticate("")

    def count_plan(self, token: Token) -> None:
        """Count a plan as several requests, for its work; the request itself has been counted as one."""
        self.rate_limits.take(token.id, PLAN_REQUESTS - 1)

    def budgets(self) -> list[tuple[str, Budget]]:
        """Return the budget of every dataset."""
        return [(served.name, served.session.budget) for served in self.datasets.visible(self.admin)]

    def probe(self) -> None:
        """Raise if no answer could be committed now; writes nothing."""
        self.database.probe()
        for served in self.datasets.visible(self.admin):
            served.session.ledger.probe()

    def close(self, seconds: float = 0.0) -> None:
        """Close everything; before that, wait this long for answers in progress to be written."""
        self.lanes.close(seconds)
        self.readiness.close()
        self.datasets.close()
        self.service.idempotency.close()
        self.database.close()


class Readiness:
    """Whether an answer could be committed, as of a moment ago; one check at a time, in a separate thread."""

    def __init__(self, probe: Callable[[], None]) -> None:
        self._probe = probe
        self._thread = ThreadPoolExecutor(1, "holdfast ready")
        self._look: asyncio.Future[None] | None = None
        self._at = 0.0

    async def check(self) -> None:
        """Raise if no answer could be committed."""
        now = time.monotonic()
        if self._look is None or (self._look.done() and now - self._at > READY_SECONDS):
            self._look, self._at = asyncio.get_running_loop().run_in_executor(self._thread, self._probe), now
        done, _ = await asyncio.wait({self._look}, timeout=MOST_READY_SECONDS)
        error = self._look.exception() if done else None
        if error is not None and not isinstance(error, HoldfastError):
            raise error
        if error is not None or not done:  # name nothing: anyone may call this
            raise ServiceUnavailable("Not ready: no answer could be written at the moment.") from error

    def close(self) -> None:
        """Make no more checks."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def state_of(request: Request) -> ServerState:
    """Return the state of the application."""
    state: ServerState = request.scope["app"].state.server
    return state


async def in_thread(request: Request, work: Callable[[], Result]) -> Result:
    """Run a read outside the event loop: in the lane for reads, in the turn of the caller or of their address."""
    token: Token | None = request.scope["state"].get("token")
    person = token.name if token is not None else f"at {request.client.host if request.client else 'unknown'}"
    return await state_of(request).lanes.reads.run(person, work)
