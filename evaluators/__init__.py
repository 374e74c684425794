"""Evaluates candidates: tasks, compiling, sandbox, timing, correctness, baselines, reward. Never imports ray.

A candidate's process runs the code of `runner` and `shared`, which a candidate may change there, and before it the
code of `sandbox`. All other rooms are trusted: the judge's process alone runs them.
"""
