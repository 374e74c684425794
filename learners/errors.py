"""The learner's own error, in a file of its own so that every part of the learner can raise it."""

from __future__ import annotations


class LearnerError(Exception):
    """Training must not go on. The message says what to change."""
