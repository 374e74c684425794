"""TRUSTED: loads tasks from any of their formats, and runs their reference programs in the judge's process."""

from evaluators.tasks.loader import find_task, load_tasks, profile_of
from evaluators.tasks.program import ProgramError, TaskProgram, program_source
from evaluators.tasks.records import TaskError

__all__ = ["ProgramError", "TaskError", "TaskProgram", "find_task", "load_tasks", "profile_of", "program_source"]
