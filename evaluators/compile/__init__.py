"""Compiling what a candidate compiles, apart from measuring it."""
