"""A share of shares: the range of p/(p + q) when p, q and what is left are known up to intervals."""

from holdfast.guarantees.mathematics.theorem import theorem

Interval = tuple[float, float]
SLACK = 1e-14  # more than the few roundings of numbers up to 1


@theorem("here (a share of shares)", proof="ratios.md")
def ratio_range(part: Interval, rest: Interval, others: Interval = (0.0, 1.0)) -> Interval:
    """Return the smallest and the largest p/(p + q) with p in `part`, q in `rest`, 1 - p - q in `others`.

    Statement
        The shares p, q, r of a division into three are at least 0 and sum to 1. If each lies in its interval, then
        p/(p + q) lies in the range returned here, and no smaller interval contains all values it can have. Where p + q
        can be 0 the ratio has no value there, and the range is [0, 1]; so it is where no shares fit.

    Not covered
        Intervals that do not hold at once; shares that are estimated and not known up to intervals.

    >>> low, high = ratio_range((0.2, 0.3), (0.1, 0.2))
    >>> round(low, 6), round(high, 6)
    (0.5, 0.75)
    >>> low, high = ratio_range((0.2, 0.3), (0.1, 0.2), others=(0.6, 0.6))
    >>> round(low, 6), round(high, 6)
    (0.5, 0.75)
    >>> low, high = ratio_range((0.2, 0.3), (0.1, 0.2), others=(0.55, 0.55))
    >>> round(low, 6), round(high, 6)
    (0.555556, 0.666667)
    """
    least, most = max(0.0, 1 - others[1]), 1 - others[0]  # of p + q
    smallest, beside = max(part[0], least - rest[1]), max(rest[0], least - part[1])
    against, largest = min(rest[1], most - smallest), min(part[1], most - beside)
    fewest, all_of_them = max(part[0] + rest[0], least), min(part[1] + rest[1], most)
    below, above = smallest + max(against, 0.0), max(largest, 0.0) + beside
    if fewest <= 0 or fewest > all_of_them + SLACK or min(below, above) <= 0:
        return 0.0, 1.0  # p + q = 0 is possible, or no shares fit at all: then nothing is known
    return max(0.0, (smallest - SLACK) / below), min(1.0, (max(largest, 0.0) + SLACK) / above)
