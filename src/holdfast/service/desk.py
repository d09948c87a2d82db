"""What every request can reach: the people, the datasets, and how to ask them."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from starlette.requests import Request

from holdfast.service.asking import Asking
from holdfast.service.datasets import Datasets
from holdfast.service.metrics import Metrics
from holdfast.service.people import People, Person
from holdfast.service.quotas import Quotas
from holdfast.service.rates import Rates
from holdfast.service.retries import Retries
from holdfast.service.settings import Settings
from holdfast.service.tables import Tables

# As many answers as wait for the disk together; more threads would only queue inside instead of outside.
THREADS = 8
STRANGERS_A_SECOND, STRANGERS_AT_ONCE = 10.0, 100  # failed sign-ins from one address

Result = TypeVar("Result")


class Desk:
    """Everything a process of the server holds."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.tables = Tables(settings.people())
        self.people = People(self.tables, sign_in_seconds=settings.sign_in_hours * 3_600)
        self.keeper: Person = self.people.keeper(settings.token_file)
        self.datasets = Datasets(settings, self.tables)
        self.asking = Asking(Quotas(self.tables), Retries(self.tables))
        self.rates = Rates(settings.rate, settings.burst)
        self.strangers = Rates(STRANGERS_A_SECOND, STRANGERS_AT_ONCE)
        self.metrics = Metrics()
        self.threads = ThreadPoolExecutor(THREADS, "holdfast")
        self.datasets.open_all()

    def count(self, said: dict[str, Any]) -> None:
        """Count an answer for those who watch."""
        if said["ok"]:
            answer = said["answer"]
            first = answer.get("average") or answer.get("loss") or (answer.get("categories") or [answer])[0]
            self.metrics.answer(said["dataset"], cached=first["cached"])

    def budgets(self) -> list[tuple[str, int, int]]:
        """Return dataset, answers left and answers in all."""
        found = [(served.name, served.session.budget) for served in self.datasets.visible(self.keeper)]
        return [(name, budget.queries_left, budget.queries_total) for name, budget in found]

    def ready(self) -> None:
        """Raise if a ledger or the database of tokens cannot be reached."""
        self.people.everyone()
        self.budgets()

    def close(self) -> None:
        """Let go of everything."""
        self.threads.shutdown(wait=False, cancel_futures=True)
        self.datasets.close()
        self.asking.retries.close()
        self.tables.close()


def desk_of(request: Request) -> Desk:
    """Return the desk of the application."""
    desk: Desk = request.app.state.desk
    return desk


async def in_thread(desk: Desk, work: Callable[[], Result]) -> Result:
    """Run blocking work beside the loop. If the time is over the caller leaves; the work ends by itself."""
    return await asyncio.get_running_loop().run_in_executor(desk.threads, work)
