"""TRUSTED: loads tasks from any of their formats, and runs their reference programs in the judge's process."""

from evaluators.tasks.loader import TaskError, find_task, load_tasks, profile_of
from evaluators.tasks.program import ProgramError, TaskProgram, program_source

__all__ = ["ProgramError", "TaskError", "TaskProgram", "find_task", "load_tasks", "profile_of", "program_source"]
