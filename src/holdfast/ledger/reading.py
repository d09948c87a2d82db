"""Reading a ledger back: its rows in order, the proof of one entry, a re-check of the whole ledger."""

from collections.abc import Iterator

from holdfast.errors import LedgerDamaged, UnknownName
from holdfast.ledger import chain, tree
from holdfast.ledger.entry import Head
from holdfast.ledger.receipt import TreeReceipt
from holdfast.ledger.store import Row, Store

READ_CHUNK = 2_000  # rows read at a time; keeps every read short


def rows_of(store: Store, start: int, limit: int | None = None) -> Iterator[Row]:
    """Iterate over rows from number `start` on."""
    while limit is None or limit > 0:
        rows = store.read(start, READ_CHUNK if limit is None else min(limit, READ_CHUNK))
        yield from rows
        if not rows:
            return
        start += len(rows)
        if limit is not None:
            limit -= len(rows)


def receipt_under(head: Head, store: Store, seq: int, known: tree.Tree) -> tuple[TreeReceipt, tree.Tree]:
    """Return the proof that entry `seq` is under the head, and `known` grown to the tree over all entries before it."""
    if seq > head.seq:
        raise UnknownName(f"No entry {seq} in ledger {store.location}. It has entries 0 to {head.seq}.", name=seq)

    def block(number: int) -> list[str]:
        return [row.hash for row in store.read(number * tree.BLOCK, tree.BLOCK)]

    try:
        if known.size < head.seq:
            known = known.grown(row.hash for row in rows_of(store, known.size, head.seq - known.size))
        root, path = known.prove(seq, head.seq, block)
        (own,), (newest,) = store.read(seq, 1), store.read(head.seq, 1)
        newest_digest = chain.digest(newest.body)
        receipt = TreeReceipt(seq, own.body, own.previous, head, root, path, newest.previous, newest_digest)
        sound = receipt.leads_to(head.hash)
    except (ValueError, IndexError):  # rows are missing, or stored hashes are not valid hashes
        sound = False
    if not sound:
        raise chain.damaged(store.location, seq, f"it does not lead to the head, entry {head.seq}")
    return receipt, known


def verify_store(store: Store, published: str | None = None) -> chain.Verification:
    """Re-check the whole ledger, even while others are writing.

    A row and the tip that includes it are written together, so a tip read after the rows is never behind them. If it is
    ahead, because somebody wrote meanwhile, the rows up to it must exist by then, and are read next.
    """
    verification = chain.Verification(store.location, published)
    while True:
        rows = store.read(verification.tip.seq + 1, READ_CHUNK)
        verification.check_rows(rows)
        if len(rows) == READ_CHUNK:
            continue
        tip = store.tip()
        if tip is None:
            raise LedgerDamaged(
                f"Ledger {store.location} is damaged: it has entries of {store.dataset} but no head. "
                "Restore the ledger.",
                location=store.location,
            )
        if tip.seq <= verification.tip.seq or not rows:
            break
    verification.check_tip(tip)
    if not verification.found:
        reason = ": entries were dropped or rewritten since."
        if lost := [numbers for numbers in verification.replaced if numbers]:
            gaps = " and ".join(_numbers(each) for each in lost)
            reason = f". It was put back from a backup that lacked {gaps}, as it records: the head may belong to these."
        raise LedgerDamaged(
            f"Ledger {store.location} does not contain the published head {published}{reason} Restore the ledger from a"
            " copy that has it.",
            location=store.location,
        )
    return verification


def _numbers(entries: range) -> str:
    first, last = entries[0], entries[-1]
    return f"entry {first}" if first == last else f"entries {first} to {last}"
