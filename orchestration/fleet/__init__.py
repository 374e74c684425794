"""The actors of a run: where they are placed, whose turn it is on shared GPUs, how weights reach the engines."""
