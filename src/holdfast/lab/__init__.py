"""The attack lab: any mechanism against any analyst, and the test of one's own plan."""

from holdfast.lab.attacking import attack
from holdfast.lab.contenders import MECHANISM_NAMES, contender
from holdfast.lab.report import AttackReport
from holdfast.lab.selftest import SelfTest, selftest

__all__ = ["MECHANISM_NAMES", "AttackReport", "SelfTest", "attack", "contender", "selftest"]
