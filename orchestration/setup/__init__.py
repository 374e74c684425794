"""What a run needs before it starts: tasks, policy, earlier verdicts, and memory for all of it."""
