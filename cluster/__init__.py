"""Runs Warpsmith on a Ray cluster: job submission, and a file for `ray up`."""
