"""Compiling what a candidate compiles, apart from measuring it."""

from evaluators.build.builder import Builder, needs_build
from evaluators.build.messages import compiler_message

__all__ = ["Builder", "compiler_message", "needs_build"]
