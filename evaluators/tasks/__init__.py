"""Tasks: loading them from any of their formats, and running their reference programs."""

from evaluators.tasks.loader import TaskError, find_task, load_tasks, profile_of
from evaluators.tasks.program import ProgramError, TaskProgram, program_source

__all__ = ["ProgramError", "TaskError", "TaskProgram", "find_task", "load_tasks", "profile_of", "program_source"]
