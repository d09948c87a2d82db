"""Figures are written, legible in size, and missing matplotlib is said."""

import struct
import sys

import pytest

from holdfast.errors import MissingExtra
from holdfast.lab import attack
from holdfast.lab.plots import DOTS, LOOKS, PANEL, Level, Panel, Series, attack_picture, draw


def size_of(path) -> tuple[int, int]:
    head = path.read_bytes()[:24]
    assert head.startswith(b"\x89PNG")
    return struct.unpack(">II", head[16:24])


def test_panels_stand_side_by_side(tmp_path):
    panel = Panel("title", "x", "y", [Series("coins", [1, 10], [1, 2], [0.5, 1.5], [1.5, 2.5])], logs="xy")
    other = Panel(
        "title", "", "y", [Series("a", [0, 1], [1, 2], [0, 1], [2, 3], line="")], [Level("one", 1.0)],
        categories=["first", "second"],
    )  # fmt: skip
    draw([panel, other], tmp_path / "deep" / "figure.png")
    assert size_of(tmp_path / "deep" / "figure.png") == (round(2 * PANEL[0] * DOTS), round(PANEL[1] * DOTS))


def test_an_attack_draws_itself(tmp_path):
    reports = [attack(name, "weighted", rows=100, queries=11, worlds=2, seed=1) for name in ("naive", "thresholdout")]
    reports[0].plot(tmp_path / "one.png")
    attack_picture(reports, tmp_path / "two.png")
    assert size_of(tmp_path / "two.png")[0] == 2 * size_of(tmp_path / "one.png")[0]


def test_no_two_mechanisms_look_alike():
    looks = {name: look for name, look in LOOKS.items() if name != "session"}
    assert len(set(looks.values())) == len(looks)
    assert len({marker for _, marker in looks.values()}) == len(looks)


def test_missing_matplotlib_is_said(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=r"holdfast\[plot\]"):
        draw([Panel("t", "x", "y", [])], tmp_path / "none.png")
