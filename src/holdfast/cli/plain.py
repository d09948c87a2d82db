"""Write on any terminal: where it cannot show a character, a plain one stands in."""

import codecs
import io
import sys

_STAND_INS = {
    "±": "+/-", "–": "-", "—": "-", "…": "...", "·": "-", "×": "x", "≤": "<=", "≥": ">=", "²": "^2", "→": "->",
    "’": "'", "“": '"', "”": '"', "─": "-", "━": "=", "┿": "|", "│": "|", "┃": "|", "├": "|", "┤": "|",
    "●": "o", "█": "#", "▏": "|", "└": "+", "╸": "=",
}  # fmt: skip
_BRAILLE_BLANK, _BRAILLE_LAST = 0x2800, 0x28FF


def _stand_in(character: str) -> str:
    if character in _STAND_INS:
        return _STAND_INS[character]
    if _BRAILLE_BLANK <= ord(character) <= _BRAILLE_LAST:
        return " " if ord(character) == _BRAILLE_BLANK else "*"
    return "?"


def _replaced(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_stand_in, error.object[error.start : error.end])), error.end


def write_on_any_terminal() -> None:
    """Let standard output and error replace what their encoding lacks, instead of failing."""
    codecs.register_error("holdfast-plain", _replaced)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="holdfast-plain")
