"""Asks an endpoint about twenty tasks, for a test to kill. Arguments: the endpoint, the file of answers.

Without the phase around it, whose imports take seconds.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from configs.schema import EndpointConfig, SftConfig
from evaluators.records import Task
from orchestration.run.answers import Answers
from orchestration.step.endpoints import Book, EndpointTeacher
from orchestration.step.lesson_rounds import TeacherRounds

book = Book(Answers(Path(sys.argv[2])), "1-sft", 0)
teacher = EndpointTeacher(sys.argv[1], "m", EndpointConfig(concurrency=3), book)
tasks = [Task(f"level1/{index}", 1, str(index), "") for index in range(20)]
with TeacherRounds(tasks, [teacher], SftConfig(tries=1, successes=1), lambda task: f"make {task.id} fast") as rounds:
    while (arrived := rounds.arrived()) is not None:
        for candidate in arrived:
            rounds.judged(candidate.digest, success=True)
        time.sleep(0.002)
print(rounds.figures())
