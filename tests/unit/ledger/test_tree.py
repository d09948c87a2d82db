"""The tree over the entries' hashes, against its definition: every entry under every root up to 70 entries.

The published vectors are those of Certificate Transparency (RFC 6962), whose tree this is.
"""

import doctest
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import few
from holdfast.ledger import tree
from plain_tree import defined_path, defined_root

MOST = 70
HASHES = [sha256(f"entry {number}".encode()).hexdigest() for number in range(1_100)]
PUBLISHED = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
ROOTS = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
PATH_OF_THE_FIRST_OF_EIGHT = (
    "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
    "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
    "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
)


def grown(hashes: list[str]) -> tree.Tree:
    return tree.Tree().grown(hashes)


class Blocks:
    """Reads hashes in blocks, and counts."""

    def __init__(self, hashes: list[str]) -> None:
        self.hashes, self.read = hashes, 0

    def __call__(self, number: int) -> list[str]:
        self.read += 1
        return self.hashes[number * tree.BLOCK : (number + 1) * tree.BLOCK]


@pytest.fixture(params=few([1, 2, 3, 8], 2))
def block_height(request, monkeypatch):
    monkeypatch.setattr(tree, "BLOCK_HEIGHT", request.param)
    monkeypatch.setattr(tree, "BLOCK", 2**request.param)
    return request.param


def spoiled(value: str, position: int) -> str:
    """Turn one bit over."""
    raw = bytearray(bytes.fromhex(value))
    raw[position % 32] ^= 1 << position % 8
    return raw.hex()


def test_published_roots_and_paths():
    whole = tree.Tree()
    for size, data in enumerate([*PUBLISHED, None]):
        assert whole.root == tree.root(whole.peaks) == ROOTS[size]
        if data is not None:
            whole.append(data)
    assert whole.prove(0, 8, Blocks(PUBLISHED)) == (ROOTS[0], PATH_OF_THE_FIRST_OF_EIGHT)
    assert tree.root_of_path("", 0, 8, PATH_OF_THE_FIRST_OF_EIGHT) == ROOTS[8]


def test_every_entry_under_every_root(block_height):
    whole = grown(HASHES[:MOST])
    roots = [defined_root(HASHES[:size]).hex() for size in range(MOST + 1)]
    peaks = ""
    for size in range(MOST + 1):
        assert tree.root(peaks) == grown(HASHES[:size]).root == roots[size]
        assert len(peaks) == 64 * size.bit_count()
        for index in range(size):
            read = Blocks(HASHES[:size])
            before, path = whole.prove(index, size, read)
            assert before == roots[index]
            assert [bytes.fromhex(one) for one in path] == defined_path(index, HASHES[:size])
            assert tree.root_of_path(HASHES[index], index, size, path) == roots[size]
            assert read.read <= 2
        if size < MOST:
            peaks = tree.append(peaks, size, HASHES[size])


def test_large_trees_read_two_blocks_of_many():
    whole = grown(HASHES)
    for index in (0, 1, 255, 256, 257, 511, 700, 1_023, 1_024, 1_098, 1_099):
        for size in {index + 1, 1_024, 1_025, 1_099, 1_100}:
            if index >= size:
                continue
            read = Blocks(HASHES[:size])
            before, path = whole.prove(index, size, read)
            assert before == defined_root(HASHES[:index]).hex()
            assert tree.root_of_path(HASHES[index], index, size, path) == defined_root(HASHES[:size]).hex()
            assert read.read <= 2
            assert len(path) <= 11


def test_an_entry_that_is_not_under_the_root_has_no_path():
    before, path = grown(HASHES[:9]).prove(8, 8, Blocks(HASHES[:8]))
    assert (before, path) == (defined_root(HASHES[:8]).hex(), ())


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 8, 9, 31, 32, 33, 64, MOST])
def test_nothing_else_leads_to_the_root(size):
    whole, expected = grown(HASHES[:size]), defined_root(HASHES[:size]).hex()
    for index in range(size):
        _, path = whole.prove(index, size, Blocks(HASHES[:size]))

        def reaches(entry_hash=HASHES[index], index=index, path=path):
            return tree.root_of_path(entry_hash, index, size, path) == expected

        assert reaches()
        for position in range(256):  # each bit of the hash, and one of every sibling
            assert not reaches(entry_hash=spoiled(HASHES[index], position))
            for at in [position] if position < len(path) else []:
                for bit in (0, 7, 31 * 8, 255, size):
                    assert not reaches(path=(*path[:at], spoiled(path[at], bit), *path[at + 1 :]))
                assert not reaches(path=path[:at] + path[at + 1 :])
                assert not reaches(path=(*path[:at], path[at], *path[at:]))
                assert at == 0 or not reaches(path=(*path[: at - 1], path[at], path[at - 1], *path[at + 1 :]))
        assert not any(reaches(index=other) for other in range(-2, size + 3) if other != index)
        assert not reaches(path=(*path, HASHES[0]))
        assert not any(reaches(entry_hash=other) for other in HASHES[: size + 3] if other != HASHES[index])


def forged(size: int) -> bool:
    """Whether a node of the tree passes for an entry: its two halves as the hash, under the rest of a path."""
    whole = grown(HASHES[:size])
    _, path = whole.prove(0, size, Blocks(HASHES[:size]))
    pretended = tree.leaf(HASHES[0]).hex() + path[0]
    return tree.root_of_path(pretended, 0, size // 2, path[1:]) == whole.root


@pytest.mark.parametrize("size", [2, 4, 8, 64])
def test_a_node_does_not_pass_for_a_leaf(size, monkeypatch):
    assert not forged(size)
    monkeypatch.setattr(tree, "leaf", lambda entry_hash: sha256(bytes.fromhex(entry_hash)).digest())
    assert not forged(size)  # one prefix of the two is enough to tell them apart
    monkeypatch.setattr(tree, "node", lambda left, right: sha256(left + right).digest())
    assert forged(size)  # without both the attack works: the test can fail


@pytest.mark.parametrize("wrong", ["repeat the last", "left first", "no left"])
def test_other_trees_have_other_roots(wrong, monkeypatch):
    """Trees that repeat a lone leaf let two lists share a root; those that forget the order let all permutations."""
    if wrong == "repeat the last":
        monkeypatch.setattr(tree, "_fold", lambda peaks: _repeated(peaks))
    elif wrong == "left first":
        monkeypatch.setattr(tree, "node", lambda left, right: sha256(b"\1" + right + left).digest())
    else:
        monkeypatch.setattr(tree, "node", lambda left, right: sha256(b"\1" + right).digest())
    assert any(grown(HASHES[:size]).root != defined_root(HASHES[:size]).hex() for size in range(1, 8))


def _repeated(joined):
    peaks = [joined[at : at + 32] for at in range(0, len(joined), 32)]
    reached = peaks[-1]
    for peak in peaks[-2::-1]:
        reached = tree.node(peak, tree.node(reached, reached))
    return reached


@pytest.mark.parametrize(("index", "size"), [(0, 0), (1, 1), (5, 5), (-1, 3), (-1, 1), (2**70, 2**70), (0, 2**5_000)])
def test_a_path_of_no_place_leads_nowhere(index, size):
    assert tree.root_of_path(HASHES[0], index, size, ()) is None


@given(st.lists(st.binary(min_size=32, max_size=32).map(bytes.hex), min_size=1, max_size=300), st.data())
def test_a_tree_that_grew_proves_what_it_proved_before(hashes, data):
    size = data.draw(st.integers(1, len(hashes)))
    index = data.draw(st.integers(0, size - 1))
    then = grown(hashes[:size]).prove(index, size, Blocks(hashes[:size]))
    smaller = grown(hashes[:size])
    assert then == smaller.grown(hashes[size:]).prove(index, size, Blocks(hashes))
    assert then == smaller.prove(index, size, Blocks(hashes))  # it did not grow itself
    assert tree.root_of_path(hashes[index], index, size, then[1]) == grown(hashes[:size]).root
    other = data.draw(st.integers(0, len(hashes) - 1))
    if hashes[other] != hashes[index]:
        assert tree.root_of_path(hashes[other], index, size, then[1]) != grown(hashes[:size]).root


def test_doctests():
    assert doctest.testmod(tree) == (0, 3)
