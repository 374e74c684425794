"""Evaluates candidates: tasks, compiling, sandbox, timing, correctness, baselines, reward. Never imports ray.

`runner` is the only room whose code runs in a candidate's process.
"""
