"""Killed writers and cut power: whatever was acknowledged is there, whatever is there is whole.

Killing a process leaves what it wrote to the system; cutting the power leaves only what was synced, and any
part of the rest. SQLite's log is synced before a commit returns, so power that fails can shorten or scramble
the log only behind the last acknowledged commit. A log cut earlier than that is not a power cut but a loss:
it opens as an older state of the same chain, whole in itself, and only a published head can tell.
"""

import random
import shutil
import signal
import time
import uuid
from pathlib import Path

import pytest

from holdfast.errors import BudgetExhausted, LedgerDamaged
from holdfast.ledger import Cost, Ledger
from holdfast.ledger.opening import forget_all
from holdfast.ledger.places import MOST_AHEAD
from ledger_writer import DATASET, WriterPool, begun, terms

pytestmark = pytest.mark.slow


def reopen(location: str | Path, dataset: str = DATASET) -> Ledger:
    forget_all()  # every copy is what another process would find
    return begun(location, dataset=dataset)


def kill_and_check(pool: WriterPool, location: str, dataset: str, kills: int, chance: random.Random) -> None:
    killed = 0
    for _ in range(4):
        pool.start()
    while killed < kills:
        pool.wait_for(pool.count() + 1)  # kill writers at work, on slow machines too
        time.sleep(chance.uniform(0, 0.02))
        assert pool.kill(chance.choice(pool.writers)) == -signal.SIGKILL
        killed += 1
        pool.start()
    for writer in list(pool.writers):
        pool.kill(writer)
    acknowledged = pool.acknowledged()
    assert len(acknowledged) >= kills
    with reopen(location, dataset) as ledger:
        hashes = {entry.seq: entry.hash for entry in ledger.entries()}
        assert [seq for seq, reached, _ in acknowledged if hashes.get(seq) != reached] == []
        assert len({seq for seq, _, _ in acknowledged}) == len(acknowledged)
        assert ledger.verify().seq == len(hashes)  # and no place is held twice
        lost = ledger.spent.charge // 3 - len(hashes)
        assert 0 <= lost <= (kills + 4) * (MOST_AHEAD + 1)  # what each had ahead, and the one it was about to answer


def test_kill_sqlite_writers(tmp_path, seed):
    location = str(tmp_path / "killed.ledger")
    with WriterPool(location, tmp_path / "notes") as pool:
        kill_and_check(pool, location, DATASET, 200, random.Random(seed))


def test_kill_postgres_writers(tmp_path, seed, postgres_url):
    dataset = uuid.uuid4().hex
    with WriterPool(postgres_url, tmp_path / "notes", dataset=dataset) as pool:
        kill_and_check(pool, postgres_url, dataset, 40, random.Random(seed))


@pytest.mark.parametrize("kind", ["file", "postgres"])
def test_killed_writers_never_overspend_and_the_last_one_spends_the_rest(kind, request, tmp_path, seed):
    chance, dataset, cap, kills = random.Random(seed), uuid.uuid4().hex, 1_600, 0
    location = str(tmp_path / "x.ledger") if kind == "file" else request.getfixturevalue("postgres_url")
    with (
        begun(location, terms(charge=3 * cap), dataset=dataset) as ledger,
        WriterPool(location, tmp_path / "notes", dataset=dataset) as pool,
    ):
        for _ in range(3):
            pool.start()
        while ledger.left.charge:
            soon = pool.count() + 10
            while pool.count() < soon and ledger.left.charge:  # kill writers at work, on slow machines too
                time.sleep(0.001)
            time.sleep(chance.uniform(0, 0.02))
            kills += pool.kill(chance.choice(pool.writers)) == -signal.SIGKILL
            pool.start()
        while len(pool.writers) > 0:
            pool.kill(pool.writers[0])
        assert kills > 10
        hashes = {entry.seq: entry.hash for entry in ledger.entries()}
        assert [seq for seq, reached, _ in pool.acknowledged() if hashes.get(seq) != reached] == []
        assert ledger.spent.charge == 3 * cap
        lost = cap - ledger.verify().seq
        assert 0 <= lost <= (kills + 3) * (cap // 100 + 1)  # at most a hundredth of what is left is taken ahead
        with pytest.raises(BudgetExhausted):
            ledger.reserve(Cost(1, 1))


def test_kill_whoever_begins_a_ledger(tmp_path, seed):
    chance, completed = random.Random(seed), 0
    source = tmp_path / "begun.ledger"
    with WriterPool(str(source), tmp_path / "notes", share=1) as pool:
        for i in range(60):
            writer = pool.start()
            while i % 3 == 0 and not source.exists():
                time.sleep(0.0001)
            time.sleep(chance.uniform(0, 0.01) if i % 3 else 0)
            pool.kill(writer)
            completed += source.exists()
            with reopen(source) as ledger:  # finishes what the dead one left, or begins anew
                assert ledger.verify().seq == len(list(ledger.entries())) <= 1
            for file in tmp_path.glob("begun.ledger*"):
                if not file.name.endswith("-new"):  # what is left under the other name must not matter
                    file.unlink()
    assert 20 <= completed < 60  # killed before and after the file was in place


def snapshot(source: Path, target: Path, log: bytes | None = None) -> Path:
    """Copy the file and its log, as a disk would keep them: the shared-memory index is not on disk."""
    target.mkdir()
    copy = target / source.name
    shutil.copyfile(source, copy)
    kept = source.with_name(source.name + "-wal")
    copy.with_name(copy.name + "-wal").write_bytes(kept.read_bytes() if log is None else log)
    return copy


def test_power_cut_anywhere_in_the_log(tmp_path, seed):
    chance, source = random.Random(seed), tmp_path / "cut.ledger"
    with WriterPool(str(source), tmp_path / "notes", share=120) as pool:
        pool.start()
        pool.wait_for(120)
        log = source.with_name("cut.ledger-wal").read_bytes()
        acknowledged = pool.acknowledged()
        assert [length for _, _, length in acknowledged] == sorted(length for _, _, length in acknowledged)
        cuts = [0, 1, 31, 32, 33, len(log)] + [chance.randrange(len(log)) for _ in range(60)]
        for i, cut in enumerate(cuts):
            tail = chance.randbytes(chance.choice([0, 1, 4_096, 10_000]))
            copy = snapshot(source, tmp_path / f"copy-{i}", log[:cut] + tail)
            with reopen(copy) as ledger:
                head = ledger.head
                expected = [(seq, reached) for seq, reached, _ in acknowledged[: head.seq]]
                assert [(entry.seq, entry.hash) for entry in ledger.entries()] == expected
                safe = [seq for seq, _, length in acknowledged if length <= cut]
                assert head.seq >= max(safe, default=0)
                last = acknowledged[-1]
                if head.seq < last[0]:
                    with pytest.raises(LedgerDamaged, match="published head"):
                        ledger.verify(last[1])
            shutil.rmtree(copy.parent)


def test_power_cut_while_writers_write_and_the_log_wraps_round(tmp_path, seed):
    chance, source = random.Random(seed), tmp_path / "live.ledger"
    with WriterPool(str(source), tmp_path / "notes") as pool:
        for _ in range(3):
            pool.start()
        for i in range(25):
            pool.wait_for(pool.count() + chance.randrange(40, 200))
            for writer in pool.writers:
                pool.stop(writer)
            acknowledged = pool.acknowledged()
            copy = snapshot(source, tmp_path / f"copy-{i}")
            for writer in pool.writers:
                pool.go(writer)
            with reopen(copy) as ledger:
                hashes = {entry.seq: entry.hash for entry in ledger.entries()}
                assert [seq for seq, reached, _ in acknowledged if hashes.get(seq) != reached] == []
                assert 0 <= ledger.spent.charge // 3 - len(hashes) <= 3 * (MOST_AHEAD + 1)
            shutil.rmtree(copy.parent)
        lengths = [length for _, _, length in pool.acknowledged()]
        assert len(lengths) >= 1_000  # the log holds 1,000 pages, a commit takes several: it was begun anew
