"""The actors of a run: where they stand, whose turn it is on shared GPUs, how weights reach engines."""
