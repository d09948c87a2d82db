"""Unpredictable by default, in every thread and every child; repeatable on request."""

import multiprocessing
import threading
from multiprocessing.connection import Connection

import numpy as np
import pytest

from holdfast.errors import InvalidArgument
from holdfast.randomness import Randomness


def draw(randomness: Randomness) -> list[int]:
    """128 bits: two honest draws are equal with probability 2^-128."""
    return [int(x) for x in randomness.generator().integers(0, 2**63, 2)]


def send_draw(randomness: Randomness, to: Connection) -> None:
    to.send(draw(randomness))
    to.close()


def test_two_sources_differ():
    assert draw(Randomness()) != draw(Randomness())


def test_an_unseeded_source_never_repeats_itself():
    randomness = Randomness()
    assert draw(randomness) != draw(randomness)
    assert randomness.generator() is randomness.generator()
    assert not randomness.reproducible


def test_an_unseeded_source_ignores_the_global_seed():
    np.random.seed(1)  # noqa: NPY002 - the global state is what must not matter
    first = draw(Randomness())
    np.random.seed(1)  # noqa: NPY002
    assert draw(Randomness()) != first


def test_the_secure_generator_is_a_cipher_in_counter_mode():
    assert type(Randomness().generator().bit_generator).__name__ == "AESCounter"


def test_a_forked_child_does_not_repeat_its_parent():
    randomness = Randomness()
    draw(randomness)  # the generator exists before the fork
    context = multiprocessing.get_context("fork")
    draws = []
    for _ in range(2):
        receive, send = context.Pipe(duplex=False)
        child = context.Process(target=send_draw, args=(randomness, send))
        child.start()
        send.close()
        assert receive.poll(60)
        draws.append(receive.recv())
        child.join(60)
        assert child.exitcode == 0
    draws.append(draw(randomness))
    assert len({tuple(each) for each in draws}) == 3


def test_threads_have_generators_of_their_own():
    randomness = Randomness()
    found = []
    lock = threading.Lock()

    def work() -> None:
        generator = randomness.generator()
        with lock:
            found.append((generator, draw(randomness)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(generator) for generator, _ in found}) == 4
    assert len({tuple(numbers) for _, numbers in found}) == 4


def test_a_seed_repeats_itself_and_says_so():
    assert draw(Randomness(7)) == draw(Randomness(7))
    assert draw(Randomness(7)) != draw(Randomness(8))
    assert Randomness(0).reproducible


def test_a_seed_gives_every_question_draws_of_its_own():
    randomness = Randomness(7)
    drawn = [tuple(randomness.generator(number).integers(0, 2**63, 2)) for number in (0, 1, 2, 1)]
    assert len(set(drawn)) == 3
    assert drawn[1] == drawn[3]


def test_a_secret_has_256_bits_and_repeats_itself_with_a_seed_alone():
    assert len(Randomness().secret()) == len(Randomness(7).secret()) == 32
    assert Randomness().secret() != Randomness().secret()
    assert Randomness(7).secret() == Randomness(7).secret() != Randomness(8).secret()


@pytest.mark.parametrize("seed", [-1, 1.5, "7", True])
def test_a_seed_is_a_whole_number(seed):
    with pytest.raises(InvalidArgument, match=r"^seed must be a whole number of at least 0"):
        Randomness(seed)
