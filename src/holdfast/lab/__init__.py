"""The lab: where promises are attacked, measured and compared on data whose population is known.

populations     rows with known means, and questions about them; a made-up table of flights
analysts        who asks: attacks that adapt to the answers
baselines       what people use instead of holdfast, to answer and to fit models
contenders      who answers: mechanisms by name, plans and sessions
attack          any analyst against any contender, in many worlds
selftest        does a plan keep its promise?
monitors        the monitors of the transfer theorems
experiments     measurements of the paper's table and claims
demo            a tour of the questions, a discovery in noise, and a second act with checks
leaderboard     the demo's third act: a leaderboard that coin tosses climb
plots           all figures
"""

from holdfast.lab.attack import AttackReport, attack
from holdfast.lab.contenders import MECHANISM_NAMES, contender
from holdfast.lab.selftest import SelfTest, selftest

__all__ = ["MECHANISM_NAMES", "AttackReport", "SelfTest", "attack", "contender", "selftest"]
