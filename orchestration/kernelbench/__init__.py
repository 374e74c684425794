"""KernelBench's run layout both ways: our runs in it, so that its scripts score them, and its runs under our judge."""
