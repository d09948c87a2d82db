"""The tree of RFC 6962, written as it is defined there: slow, and independent of ours."""

from hashlib import sha256


def defined_root(hashes: list[str]) -> bytes:
    """The root as RFC 6962 defines it, section 2.1."""
    if not hashes:
        return sha256(b"").digest()
    if len(hashes) == 1:
        return sha256(b"\0" + bytes.fromhex(hashes[0])).digest()
    half = max(2**power for power in range(20) if 2**power < len(hashes))
    return sha256(b"\1" + defined_root(hashes[:half]) + defined_root(hashes[half:])).digest()


def defined_path(index: int, hashes: list[str]) -> list[bytes]:
    """The path as RFC 6962 defines it, section 2.1.1."""
    if len(hashes) <= 1:
        return []
    half = max(2**power for power in range(20) if 2**power < len(hashes))
    if index < half:
        return [*defined_path(index, hashes[:half]), defined_root(hashes[half:])]
    return [*defined_path(index - half, hashes[half:]), defined_root(hashes[:half])]
