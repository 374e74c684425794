"""What a run will need before anyone pays for it: GPUs, the time of a step, hours and their price."""
