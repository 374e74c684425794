"""Runs Warpsmith on a Ray cluster: job submission through the Ray Jobs API, and a file for `ray up`."""
