"""What every request can reach: settings, tokens, datasets, and the service that asks them."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from starlette.requests import Request

from holdfast.service.ask import AskService, Quotas
from holdfast.service.database import TokenDatabase
from holdfast.service.datasets import Datasets
from holdfast.service.idempotency import IdempotencyKeys
from holdfast.service.limits import RateLimiter
from holdfast.service.monitoring import Metrics
from holdfast.service.schemas import QuestionModels
from holdfast.service.settings import Settings
from holdfast.service.tokens import Token, TokenStore

# As many answers as wait for one disk sync together; with more threads requests would only queue elsewhere.
THREADS = 8
FAILED_SIGN_IN_RATE, FAILED_SIGN_IN_BURST = 10.0, 100  # per second, and at once, from one address

Result = TypeVar("Result")


class ServerState:
    """Everything a server process holds."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.database = TokenDatabase(settings.token_database)
        self.tokens = TokenStore(self.database, sign_in_seconds=settings.sign_in_hours * 3_600)
        self.admin: Token = self.tokens.admin(settings.token_file)
        self.datasets = Datasets(settings, self.database)
        self.questions = QuestionModels()
        self.metrics = Metrics()
        self.service = AskService(Quotas(self.database), IdempotencyKeys(self.database), self.metrics)
        self.rate_limits = RateLimiter(settings.rate, settings.burst)
        self.failed_sign_ins = RateLimiter(FAILED_SIGN_IN_RATE, FAILED_SIGN_IN_BURST)
        self.threads = ThreadPoolExecutor(THREADS, "holdfast")
        self.datasets.open_all()

    def budgets(self) -> list[tuple[str, int, int]]:
        """Return (dataset, answers left, answers in total) for every dataset."""
        found = [(served.name, served.session.budget) for served in self.datasets.visible(self.admin)]
        return [(name, budget.answers_left, budget.answers_total) for name, budget in found]

    def check_ready(self) -> None:
        """Raise if a ledger or the token database cannot be reached."""
        self.tokens.all()
        self.budgets()

    def close(self) -> None:
        """Close everything."""
        self.threads.shutdown(wait=False, cancel_futures=True)
        self.datasets.close()
        self.service.idempotency.close()
        self.database.close()


def state_of(request: Request) -> ServerState:
    """Return the state of the application."""
    state: ServerState = request.app.state.server
    return state


async def in_thread(state: ServerState, work: Callable[[], Result]) -> Result:
    """Run blocking work outside the event loop. After a timeout the caller leaves; the work still finishes."""
    return await asyncio.get_running_loop().run_in_executor(state.threads, work)
