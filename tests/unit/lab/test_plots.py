"""Figures are written at the right size, and a missing matplotlib is reported."""

import struct
import sys

import pytest

from holdfast.errors import MissingExtra
from holdfast.lab import attack
from holdfast.lab.plots import DPI, PANEL_INCHES, STYLES, Chart, Level, Series, attack_picture, draw


def size_of(path) -> tuple[int, int]:
    head = path.read_bytes()[:24]
    assert head.startswith(b"\x89PNG")
    return struct.unpack(">II", head[16:24])


def test_panels_are_drawn_side_by_side(tmp_path):
    panel = Chart("title", "x", "y", [Series("coins", [1, 10], [1, 2], [0.5, 1.5], [1.5, 2.5])], log="xy")
    other = Chart(
        "title", "", "y", [Series("a", [0, 1], [1, 2], [0, 1], [2, 3], line="")], [Level("one", 1.0)],
        categories=["first", "second"],
    )  # fmt: skip
    draw([panel, other], tmp_path / "deep" / "figure.png")
    assert size_of(tmp_path / "deep" / "figure.png") == (round(2 * PANEL_INCHES[0] * DPI), round(PANEL_INCHES[1] * DPI))


def test_an_attack_draws_itself(tmp_path):
    reports = [attack(name, "weighted", rows=100, queries=11, worlds=2, seed=1) for name in ("naive", "thresholdout")]
    reports[0].plot(tmp_path / "one.png")
    attack_picture(reports, tmp_path / "two.png")
    assert size_of(tmp_path / "two.png")[0] == 2 * size_of(tmp_path / "one.png")[0]


def test_no_two_mechanisms_look_alike():
    styles = {name: style for name, style in STYLES.items() if name != "session"}
    assert len(set(styles.values())) == len(styles)
    assert len({marker for _, marker in styles.values()}) == len(styles)


def test_missing_matplotlib_is_reported(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=r"holdfast\[plot\]"):
        draw([Chart("t", "x", "y", [])], tmp_path / "none.png")
