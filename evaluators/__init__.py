"""Trusted evaluation: tasks, build, sandbox, timing, correctness, baselines, reward. Never imports ray."""
