"""Places that this process has taken ahead, so that most questions need not wait for the disk twice.

A question takes three amounts: a share of each of the two caps, and a number. Amounts that were taken from the ledger
and not handed out yet are kept as ranges, the *stock*. A place is cut from the beginning of a range.

Nothing may ever be handed out twice, although a signal handler, a destructor or another thread may run between any two
steps. So whoever needs the stock removes all of it in one atomic step (`deque.pop`) and puts the rest back afterwards:
an interrupt in between can lose places but never duplicate them. (No generators: an interrupt while a generator closes
would be swallowed.) A forked child starts without its parent's stock.

Places are not always used in the order in which they were taken, since several processes may hold some. Where order
matters, a place records how far all questions begun before it can have come (`Place.reached`): to the end of what this
process has handed out, or to the end of everything taken if another process has taken more since.
"""

import threading
from collections import deque
from collections.abc import Sequence
from itertools import repeat
from operator import attrgetter
from time import monotonic
from typing import NamedTuple

from holdfast.errors import BudgetExhausted
from holdfast.ledger.concurrency import OfOneProcess
from holdfast.ledger.store import APART, APART_CHARGE, LARGEST, Cost, Place, Reach, Tip
from holdfast.ledger.underway import UnderWay

Ranges = tuple[range, ...]

MOST_AHEAD = 64  # ordinary answers
SHARE_AHEAD = 100  # take at most this fraction, 1/100, of what is left
SHARE_OF_TAKEN = 10  # without a cap: at most 1/10 of what was taken so far
FAST = 1.0  # seconds: take places ahead only while questions are at most this far apart
REMEMBERED = 16  # more than signal handlers and destructors can add between two steps of one thread
MOST_RANGES = 16  # older remainders, too small for recent questions, are abandoned

_INSTEAD = "Ask for less, or repeat an earlier question for free."
_NO_CHARGE = (
    "The budget cannot pay for answer {answer}: it takes {cost:,} of what the guarantee can carry, and {left:,} of"
    f" {{total:,}} is left. {_INSTEAD}"
)
_NO_ANSWERS = (
    "The budget cannot pay for answer {answer}: it counts as {cost:,} answers, and {left:,} of {total:,} are left."
    f" {_INSTEAD}"
)
_NO_ROWS = "There are not enough rows yet for this question: it takes {cost:,} of {left:,} that are left."


class Stock(NamedTuple):
    """Free ranges of the three amounts."""

    charge: Ranges = ()
    intervals: Ranges = ()
    numbers: Ranges = ()

    def __add__(self, other: "Stock") -> "Stock":  # type: ignore[override]
        if not any(other):
            return self
        return Stock(*map(_joined, self, other))

    def cut(self, cost: Cost, process: int) -> tuple[Place, "Stock"] | None:
        """Return a place of this process for this cost, and the remaining stock; None if the cost does not fit."""
        charge, intervals, number = _cut(self[0], cost.charge), _cut(self[1], cost.intervals), _cut(self[2], 1)
        if charge is None or intervals is None or number is None:
            return None
        (start, charges), (statement, statements), (before, numbers) = charge, intervals, number
        return Place(before + 1, start, statement, start + cost.charge, process), Stock(charges, statements, numbers)

    def answers(self, cost: Cost) -> int:
        """Return how many places for this cost can be cut."""
        counts = [
            sum([len(each) // need for each in ranges]) for ranges, need in zip(self, _needs(cost), strict=True) if need
        ]
        return min(counts)


NOTHING = Stock()
EVERYWHERE = Reach(LARGEST, LARGEST)


def grant(stock: Stock, tip: Tip, cost: Cost, process: int) -> tuple[Place, Stock, Tip]:
    """Return a place for this cost, the stock left after it, and the tip that records both.

    It is cut from the stock, or else extends its last range if that ends at the tip, or else is new. A place of another
    account (`APART`) always begins at the tip and is never cut from the stock, so removing one account's shares from
    the numbering never makes shares of the other overlap. The caller checks the caps.
    """
    if stock is NOTHING:
        charge, intervals, number = tip[5:]
        end, number = charge + cost.charge, number + 1
        after = tip.taking(end, intervals + cost.intervals, number)
        return Place(number, charge, intervals, end, process), stock, after
    starts, left, taken = [], [], []
    for ranges, need, end in zip(stock, _needs(cost), tip.taken, strict=True):
        cut = _cut(ranges, need)
        if cut is None:
            goes_on = ranges and ranges[-1].stop == end and cost.intervals < APART
            last = ranges[-1] if goes_on else range(end, end)
            cut, end = (last.start, ranges[:-1] if last else ranges), last.start + need
        starts.append(cut[0])
        left.append(cut[1])
        taken.append(end)
    charge, intervals, number = starts
    return Place(number + 1, charge, intervals, charge + cost.charge, process), Stock(*left), tip.taking(*taken)


class PlacesAhead(NamedTuple):
    """How many answers of this cost a process wants to have ahead, and how many it has."""

    cost: Cost
    answers: int
    there: int


def take_ahead(tip: Tip, caps: Cost, reach: Reach | None, demand: PlacesAhead) -> tuple[Stock, Tip]:
    """Take places ahead, but none near the end of the budget or of the rows that can be drawn."""
    needs, answers = _needs(demand.cost), demand.answers
    reach = reach or EVERYWHERE
    ends = reach.charge + tip.taken_charge // reach.account * reach.account, reach.intervals
    accounts = (APART_CHARGE, APART) if tip.taken_intervals >= APART else (2 * LARGEST, 2 * LARGEST)
    limits = zip((caps.charge, caps.intervals), ends, accounts, strict=True)
    for (cap, end, account), taken, need in zip(limits, tip.taken, needs, strict=False):
        if need:
            most = (min(cap, end) - taken) // SHARE_AHEAD
            if cap == LARGEST:
                most = min(most, taken % account // SHARE_OF_TAKEN)
            answers = min(answers, most // need)
    answers -= demand.there
    if answers <= 0:
        return NOTHING, tip
    after = [end + answers * need for end, need in zip(tip.taken, needs, strict=True)]
    new = [(range(start, end),) if start < end else () for start, end in zip(tip.taken, after, strict=True)]
    return Stock(*new), tip.taking(*after)


def give_back(stock: Stock, tip: Tip) -> Tip:
    """Return the tip with the end of this stock given back, as far as nobody has taken anything after it."""
    ends = []
    for ranges, end in zip(stock, tip.taken, strict=True):
        for each in reversed(ranges):
            end = each.start if each.stop == end else end
        ends.append(end)
    return tip.taking(*ends)


def refusal(
    costs: Sequence[Cost], places: Sequence[Place], tip: Tip, caps: Cost, reach: Reach | None
) -> BudgetExhausted | None:
    """Return why questions of these costs may not have these places and leave the ledger at `tip`; None if they may.

    Either the budget cannot pay for them all, or a place lies beyond `reach`, where there are no rows yet.
    """
    if tip.taken_charge > caps.charge:
        words, amount, total = _NO_CHARGE, "charge", caps.charge
    elif tip.taken_intervals > caps.intervals:
        words, amount, total = _NO_ANSWERS, "intervals", caps.intervals
    elif reach is None or all(map(Place.within, places, repeat(reach), costs)):
        return None
    elif reach.charge < LARGEST:
        words, amount, total = _NO_ROWS, "charge", reach.charge
    else:
        words, amount, total = _NO_ROWS, "intervals", reach.intervals
    cost, left = sum(getattr(each, amount) for each in costs), max(0, total - getattr(places[0], amount))
    return BudgetExhausted(
        words.format(answer=tip.seq + 1, cost=cost, left=left, total=total),
        cost=cost,
        left=left,
        total=total,
        unit="charge" if amount == "charge" else "answers",
    )


def _needs(cost: Cost) -> tuple[int, int, int]:
    return cost.charge, cost.intervals, 1


def _cut(ranges: Ranges, need: int) -> tuple[int, Ranges] | None:
    """Return where the first range begins that is long enough, and the ranges without what is needed of it."""
    for i, each in enumerate(ranges):
        start, stop = each.start, each.stop
        end = start + need
        if end < stop:
            return start, (*ranges[:i], range(end, stop), *ranges[i + 1 :])
        if end == stop:
            return start, ranges[:i] + ranges[i + 1 :]
    return None


def _joined(one: Ranges, other: Ranges) -> Ranges:
    if not one or not other:
        return one or other
    joined: list[range] = []
    for each in sorted(one + other, key=attrgetter("start")):
        if joined and joined[-1].stop == each.start:
            joined[-1] = range(joined[-1].start, each.stop)
        else:
            joined.append(each)
    return tuple(joined[-MOST_RANGES:])


def _pop_all(stocks: deque[Stock]) -> Stock:
    stock = NOTHING
    while stocks:
        try:
            popped = stocks.pop()
        except IndexError:  # another thread took the last one
            break
        stock = popped if stock is NOTHING else stock + popped
    return stock


class ProcessStock(OfOneProcess):
    """The stock of a ledger in this process, and how much to take ahead: more while questions come fast.

    All sessions of the process on one ledger share it, so a new session uses what an unclosed one has left.
    """

    def __init__(self) -> None:
        self.under_way = UnderWay()
        super().__init__()

    def _forget(self) -> None:
        self._stocks: deque[Stock] = deque()
        self._lock = threading.RLock()
        self._last, self._asking_until = float("-inf"), 0.0
        self._ahead = -1
        # The largest of these is how far the charge of all questions begun can have come. Every addition is followed by
        # adding the largest again, long before old values fall out, so no interruption can lower the maximum.
        self._reached: deque[int] = deque((0,), maxlen=REMEMBERED)
        self._taken = -1  # the end of the charge taken by all processes when this one last took some
        self._questions = self._enough = 0  # since places were last taken ahead; before more are taken

    def take(self, cost: Cost, reach: Reach | None = None) -> Place | None:
        """Return a place from the stock that ends within `reach`; None if there is none."""
        # Read both first: if a signal handler forks below, the child goes on with a place marked as its parent's.
        process, stocks = self.check_process(), self._stocks
        last, self._last = self._last, monotonic()
        if self._last - last > FAST:
            self._ahead = -1  # a lone question: whether to take places ahead depends on how soon the next one comes
        elif self._ahead < 0:
            self._ahead = 0
        self._questions += 1
        with self._lock:  # only so that other threads do not see an empty stock in between
            stock = _pop_all(stocks)
            cut = stock.cut(cost, process)
            if cut is not None and reach is not None and not cut[0].within(reach, cost):
                cut = None  # taken ahead by a session that has more rows
            stocks.append(stock if cut is None else cut[1])
        return None if cut is None else cut[0]

    def took(self, before: int, after: int) -> None:
        """Note that this process took some: the charge taken by all ended at `before`, and ends at `after` now."""
        if before != self._taken:  # another process took some since, and may have used it
            self._reach(before)
        self._taken = max(self._taken, after)  # if threads race, it mistakes its own for others': only wider

    def giving_back(self) -> None:
        """Forget that end: another process may take what this one gives back."""
        self._taken = -1

    def begun(self, place: Place, cost: Cost, taken: int) -> Place:
        """Return the place with how far all questions begun by now can have come.

        `taken` is the end of the charge taken by all, read after the question was asked; 0 where it does not matter.
        """
        end = place.charge + cost.charge
        reached = self._reach(end if taken <= end or taken == self._taken else taken)
        if reached == place.reached:
            return place
        return Place(place.number, place.charge, place.intervals, reached, place.process)

    def _reach(self, end: int) -> int:
        """Note that the charge can have come to `end`; return how far it can have come in all."""
        with self._lock:
            self._reached.append(end)
            reached = max(tuple(self._reached))
            self._reached.append(reached)
        return reached

    def take_all(self) -> Stock:
        """Return the whole stock, which now belongs to the caller."""
        self.check_process()
        return _pop_all(self._stocks) if self._stocks else NOTHING

    def put(self, stock: Stock, process: int) -> None:
        """Add stock that the caller alone holds, if `process`, its owner, is this process."""
        stocks = self._stocks
        if stock is not NOTHING and self.check_process() == process:
            stocks.append(stock)

    def put_back(self, used: list[Stock], process: int) -> None:
        """Put the stock back that was taken for a transaction that does not count; whoever pops it does it once."""
        try:
            stock = used.pop()
        except IndexError:  # none was taken; or another thread did it, the committer's or one that was interrupted
            return
        self.put(stock, process)

    @property
    def is_due(self) -> bool:
        """Whether questions come fast, and half of the places last taken ahead are used."""
        self.check_process()
        return self._ahead >= 0 and self._questions >= self._enough

    def demand(self, *costs: Cost) -> PlacesAhead | None:
        """Return how many places to take ahead, twice as many each time while questions come fast; None for none.

        They are sized for the highest of these costs.
        """
        if not self.is_due:
            return None
        cost = max(costs, key=lambda cost: (cost.charge, cost.intervals))
        if cost.intervals >= APART:
            return None
        now, there = monotonic(), self.now.answers(cost)
        if now < self._asking_until or there > self._ahead // 2:
            return None
        self._ahead = min(MOST_AHEAD, max(1, 2 * self._ahead))
        self._asking_until = now + FAST  # by then `asked` was called, or the caller was interrupted
        return PlacesAhead(cost, self._ahead, there)

    def asked(self, demand: PlacesAhead) -> None:
        """Allow the next demand once half of the places are used."""
        self._questions, self._enough = 0, self.now.answers(demand.cost) // 2
        self._asking_until = 0.0

    @property
    def total(self) -> tuple[int, int]:
        """How much charge and how many intervals are in stock."""
        self.check_process()
        charge = intervals = 0
        with self._lock:
            for stock in tuple(self._stocks):
                charge += sum(map(len, stock.charge))
                intervals += sum(map(len, stock.intervals))
        return charge, intervals

    @property
    def now(self) -> Stock:
        """The stock at this moment."""
        self.check_process()
        with self._lock:
            stocks = tuple(self._stocks)
        return stocks[0] if len(stocks) == 1 else sum(stocks, NOTHING)
