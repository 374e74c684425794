"""Sweeps: several configurations with several seeds each, run in turn or as jobs, and the table that compares them."""
