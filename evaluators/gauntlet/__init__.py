"""The gauntlet: programs that cheat and programs that only look like it, and what the evaluator makes of them.

A program is one file below `exploits` or `honest`, in a folder named after its family. It is found there, never listed:
a new file takes part without any other change.
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
