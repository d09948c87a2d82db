"""What every request can reach: settings, tokens, datasets, and the service that asks them."""

from collections.abc import Callable
from typing import TypeVar

from starlette.requests import Request

from holdfast.service.ask import AskService, Quotas, write_together
from holdfast.service.database import TokenDatabase
from holdfast.service.datasets import Datasets
from holdfast.service.idempotency import IdempotencyKeys
from holdfast.service.lanes import Lanes
from holdfast.service.limits import RateLimiter
from holdfast.service.monitoring import Metrics
from holdfast.service.schemas import QuestionModels
from holdfast.service.settings import Settings
from holdfast.service.tokens import Token, TokenStore

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
        self.lanes = Lanes(each=settings.asks_at_once, waiting=settings.asks_waiting, write=write_together)
        self.service = AskService(
            settings, self.datasets, Quotas(self.database), IdempotencyKeys(self.database), self.metrics, self.lanes
        )
        self.rate_limits = RateLimiter(settings.rate, settings.burst)
        self.failed_sign_ins = RateLimiter(FAILED_SIGN_IN_RATE, FAILED_SIGN_IN_BURST)
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
        self.lanes.close()
        self.datasets.close()
        self.service.idempotency.close()
        self.database.close()


def state_of(request: Request) -> ServerState:
    """Return the state of the application."""
    state: ServerState = request.app.state.server
    return state


async def in_thread(request: Request, work: Callable[[], Result]) -> Result:
    """Run a read outside the event loop: in the lane for reads, in the turn of the caller or of their address."""
    token: Token | None = getattr(request.state, "token", None)
    person = token.name if token is not None else f"at {request.client.host if request.client else 'unknown'}"
    return await state_of(request).lanes.reads.run(person, work)
