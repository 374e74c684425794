"""What survives a kill: the run directory, its state, tracking, and how a run ends early."""
