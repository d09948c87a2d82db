"""Random number generators: unpredictable by default, repeatable for tests.

The guarantee holds only while nobody can predict which rows are drawn. So the default generator is AES in
counter mode, keyed by the operating system, one per thread and per process (a forked child never repeats its
parent's draws). `seed=` gives a repeatable generator for each question; a ledger written under it is marked
"reproducible, not for shared use".
"""

import secrets
import threading
from hashlib import sha256

import numpy as np
from numpy.random import PCG64, Generator

from holdfast import check
from holdfast.process import this_process


class Randomness:
    """Hands out generators. `Randomness()` is unpredictable; `Randomness(seed)` repeats itself."""

    def __init__(self, seed: int | None = None) -> None:
        if seed is not None:
            check.whole(0, seed=seed)
        self.reproducible = seed is not None
        self._seed = seed
        self._local = threading.local()

    def secret(self) -> bytes:
        """Return 256 secret bits for a new ledger."""
        return secrets.token_bytes(32) if self._seed is None else sha256(f"holdfast {self._seed}".encode()).digest()

    def generator(self, number: int = 0) -> Generator:
        """Return this thread's generator in this process; with a seed, the generator of question `number`."""
        if self._seed is not None:
            return Generator(PCG64([self._seed, number]))
        if getattr(self._local, "pid", None) != this_process.number:
            self._local.generator = _secure()
            self._local.pid = this_process.number
        generator: Generator = self._local.generator
        return generator


def keyed_generator(key: bytes) -> Generator:
    """Return the cryptographic generator for a key of at least 128 bits; the same key gives the same draws."""
    from randomgen import AESCounter  # imported late: making a plan needs no generator

    return Generator(AESCounter(key=np.frombuffer(key[:16], dtype=np.uint64)))


def _secure() -> Generator:
    return keyed_generator(secrets.token_bytes(16))
