"""Typed configuration of a run. Imports neither torch nor ray, so that it can be checked anywhere."""
