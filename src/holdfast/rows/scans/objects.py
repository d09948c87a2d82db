"""Files in an object store: which exist, and in which state.

Polars reads them; obstore, built on the same library and configured by the same environment variables, lists them.
Exactly the listed objects are read, and the list is made again afterwards: if an object was added, removed or replaced
meanwhile, the list has other names, tags, versions, sizes or times.
"""

import re
from dataclasses import dataclass
from glob import has_magic
from hashlib import sha256
from urllib.parse import urlsplit

from holdfast.errors import InvalidArgument, MissingExtra, RowSourceError

REMOTE = ("s3://", "gs://", "gcs://", "az://", "abfs://", "abfss://")
_SIGNED = re.compile(r"[?&](sig|X-Amz-Signature|X-Goog-Signature)=", re.IGNORECASE)


@dataclass(frozen=True)
class Listed:
    """The objects that an address names, in order, and their state."""

    addresses: tuple[str, ...]
    state: str


def listed(address: str) -> Listed:
    """List the objects of an address, which may be a pattern.

    Parameters
    ----------
    address
        For example "s3://lake/events/*.parquet". It never contains a password or a signature, since folders store it.
    """
    refuse_credentials(address)
    try:
        import obstore
        from obstore.exceptions import BaseError
        from obstore.store import from_url
    except ImportError:
        raise MissingExtra(
            "Files in an object store need obstore. Install it with: pip install 'holdfast[objects]'.", extra="objects"
        ) from None
    parts = urlsplit(address)
    scheme = {"gcs": "gs"}.get(parts.scheme, parts.scheme)
    key, base = address.split("://", 1)[1].partition("/")[2], f"{parts.scheme}://{parts.netloc}"
    matches = re.compile(_pattern(key))
    try:
        store = from_url(f"{scheme}://{parts.netloc}")
        found = [each for batch in obstore.list(store, prefix=_prefix(key)) for each in batch]
    except (BaseError, OSError, ValueError) as problem:  # its text may quote credentials
        raise RowSourceError(
            f"Cannot read {address}: {type(problem).__name__}. Are the store's credentials, region and account in the"
            " environment?",
            path=address,
        ) from None
    chosen = sorted((each for each in found if matches.fullmatch(each["path"])), key=lambda each: str(each["path"]))
    if not chosen:
        raise RowSourceError(f"Cannot read {address}: there is no such file.", path=address)
    lines = [
        f"{each['path']} {each['size']} {each['e_tag']} {each['version']} {each['last_modified'].isoformat()}"
        for each in chosen
    ]
    return Listed(tuple(f"{base}/{each['path']}" for each in chosen), sha256("\n".join(lines).encode()).hexdigest())


def refuse_credentials(address: str) -> None:
    """Refuse an address that contains a secret, which folders, ledgers and messages would repeat."""
    if urlsplit(address).password is not None or _SIGNED.search(address):
        shown = address.split("://", 1)[0]
        raise InvalidArgument(
            f"data must be an address without credentials, such as {shown}://bucket/events/: put those into the"
            " environment, as the store's own tools expect them.",
            name="data",
        )


def _prefix(key: str) -> str | None:
    """Return the folder that contains all keys of a pattern: a store can list by whole path segments only."""
    parts = key.split("/")
    fixed = next((i for i, part in enumerate(parts) if has_magic(part)), len(parts) - 1)
    return "/".join(parts[:fixed]) or None


def _pattern(key: str) -> str:
    r"""Return a regular expression for a pattern of keys.

    >>> [bool(re.fullmatch(_pattern("a/**/*.p"), key)) for key in ("a/x.p", "a/b/c/x.p", "a/b/x.q", "b/x.p")]
    [True, True, False, False]
    """
    written = []
    for token in re.split(r"(\*\*/|\*\*|\*|\?|\[[^\]]+\])", key):
        known = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
        if token.startswith("[") and token.endswith("]"):
            written.append("[" + token[1:-1].replace("!", "^", 1) + "]" if token[1] == "!" else token)
        else:
            written.append(known.get(token) or re.escape(token))
    return "".join(written)
