"""The gauntlet: programs that cheat, honest programs that only look like cheats, and how the evaluator judges them.

A program is one file below `exploits` or `honest`, in a folder named after its family. Programs are found there and
never listed: a new file takes part without any other change.
"""

from evaluators.gauntlet.programs import GauntletError, GauntletProgram, discover
from evaluators.gauntlet.results import Family, Result, by_family, classify, result_table

__all__ = [
    "Family",
    "GauntletError",
    "GauntletProgram",
    "Result",
    "by_family",
    "classify",
    "discover",
    "result_table",
]
