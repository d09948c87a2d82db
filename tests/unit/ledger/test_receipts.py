"""Receipts: short, each part of them bound to the published head, and those of the earlier format still read."""

import json
import sys
import threading
from dataclasses import fields, replace
from hashlib import sha256
from typing import Any

import pytest

from holdfast.errors import InvalidArgument, LedgerDamaged
from holdfast.ledger import Head, Ledger, Receipt, chain, check_receipt, open_ledger, tree, verify
from holdfast.ledger.memory import MemoryStore
from ledger_writer import ANSWER, FINGERPRINT, QUESTION, begun, commit
from plain_tree import defined_root

NAMES = {"dataset": "d", "fingerprint": FINGERPRINT}
# As written by a ledger of format 2, whose entries were hashed as sha256(previous + digest).
FORMAT_2 = {
    "seq": 1,
    "body": (
        '{"analyst":null,"answer":{"counts":[750,250],"high":0.3,"low":0.2,"value":0.25},"cost":{"charge":1,'
        '"intervals":1},"key":"a","question":{"kind":"share","text":"dep_delay > 15"},"rows_read":1000,"seq":1,'
        '"time":"2026-11-15T23:41:31.197+00:00"}'
    ),
    "previous": "7f44c33b37b8979d9232fb06394ba79b2cbebf453459c00dd04dd1bf8f6f89ac",
    "later": [
        "208e40a0ffab97b313cf96af02228e9d9373cd2db7efdc472a682e66186e4793",
        "c6fb042ea36d4f42686c2da226171e8a147995ec7ef232917805dceaba935b44",
    ],
    "head": {"seq": 3, "hash": "b533d08af5ce40f02ce0485e84b5a315a370e2399cc0b889f80a11d973ec4864"},
}


def grown(count: int) -> Ledger:
    ledger = begun(None, **NAMES)
    for number in range(count):
        commit(ledger, f"k{number}")
    return ledger


def passes(one: Receipt, head_hash: str) -> bool:
    try:
        check_receipt(one, head_hash)
    except LedgerDamaged:
        return False
    return True


def turned(value: str, position: int) -> str:
    """Turn over one bit of one character, so that it stays a hash."""
    changed = "0123456789abcdef"[int(value[position], 16) ^ 1 << position % 4]
    return value[:position] + changed + value[position + 1 :]


def forgeries(one: verify.TreeReceipt) -> list[verify.TreeReceipt]:
    """Return the receipt with any one part of it changed."""
    found = [
        replace(one, seq=one.seq + 1),
        replace(one, head=Head(one.head.seq + 1, one.head.hash)),
        replace(one, head=Head(2 * one.head.seq + 1, one.head.hash)),
        replace(one, body=one.body + " "),
        replace(one, body=one.body.replace(":", ": ", 1)),
        replace(one, path=(*one.path, one.root)),
        replace(one, path=(one.root, *one.path)),
    ]
    if one.seq:
        found += [replace(one, seq=one.seq - 1), replace(one, body=one.body.replace("0.25", "0.26"))]
    for position in (0, 31, 63):
        names = ("previous", "root", "head_previous", "head_digest")
        found += [replace(one, **{name: turned(getattr(one, name), position)}) for name in names]
        found.append(replace(one, head=Head(one.head.seq, turned(one.head.hash, position))))
        for at, beside in enumerate(one.path):
            found.append(replace(one, path=(*one.path[:at], turned(beside, position), *one.path[at + 1 :])))
    for at in range(len(one.path)):
        found.append(replace(one, path=one.path[:at] + one.path[at + 1 :]))
        if at:
            found.append(replace(one, path=(*one.path[: at - 1], one.path[at], one.path[at - 1], *one.path[at + 1 :])))
    return found


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 7, 8, 9, 16, 21])
def test_every_part_of_a_receipt_is_bound_to_the_head(count):
    ledger = grown(count)
    head = ledger.head
    for seq in range(count + 1):
        one = ledger.receipt(seq)
        assert isinstance(one, verify.TreeReceipt)
        assert passes(one, head.hash)
        assert Receipt.from_dict(json.loads(json.dumps(one.to_dict()))) == one
        for forged in forgeries(one):
            assert forged != one
            assert not passes(forged, head.hash), forged
            assert not passes(forged, forged.head.hash), forged


@pytest.mark.parametrize("forget", ["number", "root", "position"])
def test_the_forgeries_find_a_check_that_forgets_something(forget, monkeypatch):
    """Mutants: each leaves one thing unbound, and one of the forgeries passes."""
    link = chain.link
    if forget == "number":
        monkeypatch.setattr(chain, "link", lambda seq, *rest: link(0, *rest))
    elif forget == "root":
        monkeypatch.setattr(chain, "link", lambda seq, previous, digest, root: link(seq, previous, digest, ""))
    else:
        sort = lambda left, right: sha256(b"\1" + min(left, right) + max(left, right)).digest()  # noqa: E731
        monkeypatch.setattr(tree, "node", sort)
        monkeypatch.setattr(chain, "link", lambda seq, *rest: link(0, *rest))
    ledger = grown(9)
    passed = [
        forged for seq in range(10) for forged in forgeries(ledger.receipt(seq)) if passes(forged, forged.head.hash)
    ]
    assert passed


@pytest.mark.slow
def test_the_first_answer_of_many_is_proved_in_a_few_thousand_characters():
    """Entry 1 of 35,000, with the text that an ordinary answer has; the chain alone took 2.3 MB."""
    store = MemoryStore("d")
    with Ledger(store, fingerprint=FINGERPRINT) as ledger:
        ledger.begin({"caps": {"charge": 10**9, "intervals": 10**6}})
        question = QUESTION | {"query": "dep_delay > 15 AND carrier = 'UA' AND distance < 2000", "rows": 12_000}
        for _ in range(35_000):
            commit(ledger, None, question=question, answer=ANSWER | {"draws": 12_000}, analyst="analyst 17")
        rows_read = 0
        read = store.read

        def counted(start: int, limit: int) -> Any:
            nonlocal rows_read
            found = read(start, limit)
            rows_read += len(found)
            return found

        store.read = counted  # type: ignore[method-assign]
        ledger.receipt(35_000)  # reads all rows once
        assert rows_read <= 35_000 + 3 * tree.BLOCK
        for seq in (0, 1, 2, 255, 256, 17_000, 34_999, 35_000):
            rows_read = 0
            one = ledger.receipt(seq)
            check_receipt(one, ledger.head.hash)
            assert len(json.dumps(one.to_dict())) < 8_000
            assert len(one.path) <= 16
            assert rows_read <= 2 * tree.BLOCK + 2


def test_receipts_follow_what_others_write(tmp_path):
    path = tmp_path / "trial.ledger"
    with begun(path) as ledger, open_ledger(path, dataset="flights", fingerprint=FINGERPRINT) as other:
        for number in range(600):
            commit(other if number % 3 else ledger, f"k{number}")
            if number % 50 == 0:
                for seq in (0, number // 2, number + 1):
                    check_receipt(ledger.receipt(seq), ledger.head.hash)
        for seq in range(0, 601, 29):
            check_receipt(other.receipt(seq), ledger.head.hash)


def test_receipts_are_made_while_threads_write(tmp_path):
    with begun(tmp_path / "trial.ledger") as ledger:
        failures: list[BaseException] = []

        def write(thread: int) -> None:
            try:
                for number in range(60):
                    commit(ledger, f"{thread} {number}")
                    one = ledger.receipt(number)
                    check_receipt(one, one.head.hash)
            except BaseException as error:  # noqa: BLE001
                failures.append(error)

        threads = [threading.Thread(target=write, args=(thread,)) for thread in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        assert ledger.verify().seq == 240


def test_a_damaged_ledger_gives_no_receipt():
    store = MemoryStore("d")
    with Ledger(store, fingerprint=FINGERPRINT) as ledger:
        ledger.begin({"caps": {"charge": 100, "intervals": 100}})
        for number in range(9):
            commit(ledger, f"k{number}")
        ledger.receipt(1)
        rows = store._rows
        for at, change in ((3, {"hash": "0" * 64}), (1, {"body": "{}"}), (2, {"hash": "x"}), (1, {"previous": "x"})):
            kept = rows[at]
            rows[at] = kept._replace(**change)
            with pytest.raises(LedgerDamaged, match="damaged at entry 1: it does not lead to the head, entry 9"):
                ledger.receipt(1)
            rows[at] = kept
        ledger.receipt(1)


# -- the earlier format, and forged shapes ---------------------------------------------------------------------------


def test_receipts_of_the_earlier_format_still_check():
    old = Receipt.from_dict(FORMAT_2)
    head_hash = FORMAT_2["head"]["hash"]
    check_receipt(old, head_hash)
    assert old.to_dict() == FORMAT_2
    assert isinstance(old, verify.ChainReceipt)
    for wrong in (
        replace(old, body=old.body.replace("0.25", "0.26")),
        replace(old, previous="0" * 64),
        replace(old, later=old.later[:-1]),
        replace(old, later=old.later[::-1]),
        replace(old, seq=2),
        replace(old, head=Head(4, head_hash)),
        replace(old, head=Head(3, "0" * 64)),
    ):
        assert not passes(wrong, head_hash)


def test_one_format_does_not_pass_for_the_other():
    """A list of digests could else spell the text of a head of the present format, from its second field on."""
    ledger = grown(1)
    head = ledger.head
    one = ledger.receipt(1)
    shape = {"seq": 1, "body": one.body, "previous": one.previous, "head": {"seq": 1, "hash": head.hash}}
    assert not passes(Receipt.from_dict(shape | {"later": []}), head.hash)
    spelled = f"1 {one.previous} {chain.digest(one.body)} {defined_root([one.previous]).hex()}"
    assert sha256(spelled.encode()).hexdigest() == head.hash
    with pytest.raises(InvalidArgument, match="hashes of 64"):
        Receipt.from_dict(shape | {"previous": spelled[:64], "later": [spelled[64:]]})
    old = Receipt.from_dict(FORMAT_2)
    rest = {"root": "0" * 64, "path": [], "head_previous": "0" * 64, "head_digest": "0" * 64}
    pretended = Receipt.from_dict({name: value for name, value in old.to_dict().items() if name != "later"} | rest)
    assert not passes(pretended, old.head.hash)


@pytest.mark.parametrize(
    "spoil",
    [
        {"head": None},
        {"head": {"seq": 1}},
        {"head": {"seq": 1.0, "hash": "0" * 64}},
        {"path": 3},
        {"path": [1]},
        {"path": ["0" * 63]},
        {"later": 3},
        {"later": ["0" * 128]},
        {"body": 3},
        {"seq": "1"},
        {"seq": True},
        {"seq": -1},
        {"previous": "0" * 63 + "A"},
        {"root": "0" * 63 + "\n"},
        {"head_digest": "0" * 65},
        {"head_previous": None},
    ],
)
def test_a_receipt_of_another_shape_is_refused(spoil):
    shape = grown(2).receipt(1).to_dict()
    with pytest.raises(InvalidArgument):
        Receipt.from_dict(shape | spoil)


@pytest.mark.parametrize("missing", [field.name for field in fields(verify.TreeReceipt)])
def test_a_receipt_without_a_part_is_refused(missing):
    shape = grown(2).receipt(1).to_dict()
    del shape[missing]
    with pytest.raises(InvalidArgument, match="receipt must be a dict of seq, body"):
        Receipt.from_dict(shape)


@pytest.mark.parametrize("value", [None, [], "receipt", 3, {"later": []}])
def test_what_is_no_receipt_at_all_is_refused(value):
    with pytest.raises(InvalidArgument, match="receipt must be a dict"):
        Receipt.from_dict(value)


def test_a_text_that_states_another_number_is_refused():
    """The administrator may hash what he likes; the number inside must be the entry's."""
    body = '{"seq":2}'
    hashed = chain.link(1, "0" * 64, chain.digest(body), "0" * 64)
    forged = verify.TreeReceipt(1, body, "0" * 64, Head(1, hashed), "0" * 64, (), "0" * 64, chain.digest(body))
    assert forged.leads_to(hashed)
    for text in (body, "[]", "no JSON", "[" * sys.getrecursionlimit() * 10):
        hashed = chain.link(1, "0" * 64, chain.digest(text), "0" * 64)
        one = replace(forged, body=text, head=Head(1, hashed), head_digest=chain.digest(text))
        with pytest.raises(LedgerDamaged, match="another number inside"):
            check_receipt(one, hashed)
