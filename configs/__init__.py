"""Typed configuration. Imports neither torch nor ray, so that a config can be checked anywhere."""
