"""The answer: is tree training worth it, at which cap, resting on what, and what comes next."""

from tuning.advice.advice import Advice, advise
from tuning.advice.gate import GateError, broken_gates
from tuning.advice.recommendation import Recommendation, known_sweep
from tuning.advice.verdict import WORTH, Answer, Verdict, sharing, verdict_of

__all__ = [
    "WORTH",
    "Advice",
    "Answer",
    "GateError",
    "Recommendation",
    "Verdict",
    "advise",
    "broken_gates",
    "known_sweep",
    "sharing",
    "verdict_of",
]
