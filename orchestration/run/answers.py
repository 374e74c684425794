"""The answers of teachers' endpoints, kept as they come: what was paid for once is never asked for again.

One line of JSON an answer, in a file that only grows. A line that a kill or a full disk cut short is ignored.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from learners.room import telling_room
from orchestration.run.storage import Storage, sync_folder

NAME = "answers.jsonl"
_COPIED_EVERY = 64  # answers


@dataclass(frozen=True)
class Asked:
    """A request, by what its answer depends on. `prompt`: the digest of its text. `number`: which of the requests with
    this prompt it is, from 0. `teacher`: the endpoint's place among `sft.teachers`."""

    phase: str
    teacher: int
    model: str
    task_id: str
    prompt: str
    number: int


@dataclass(frozen=True)
class Answer:
    """An answer. `prompt_tokens`, `completion_tokens`: as the endpoint counted them, None if it did not. `time`: when
    it came, in seconds since 1970."""

    content: str
    finish_reason: str
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    time: float = 0.0


class Answers:
    """A run's answers, in a file on a local disk. It may be used from several threads.

    `mirror`: the remote folder of a run that has one. Its copy of the file is replaced from time to time, and at
    `copy`; answers that only the copy has are taken over.
    """

    def __init__(self, path: Path, mirror: Storage | None = None) -> None:
        """Reads what is there, and touches nothing."""
        self._path, self._mirror = path, mirror
        self._lock = threading.Lock()
        self._known = _answers_in(path.read_bytes()) if path.is_file() else {}
        copied = _answers_in(mirror.read(NAME)) if mirror is not None and mirror.is_file(NAME) else {}
        self._uncopied = len(self._known.keys() - copied.keys())
        self._only_copied = {asked: answer for asked, answer in copied.items() if asked not in self._known}
        self._known |= copied

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._known)

    def of(self, asked: Asked) -> Answer | None:
        """The answer to a request, None if it has none yet."""
        return self._known.get(asked)

    def add(self, asked: Asked, answer: Answer) -> None:
        """Keeps an answer: it is on the disk when this returns. Raises OSError, and then leaves the file as it was;
        DiskFull if there is no room."""
        with self._lock:
            with telling_room(self._path.parent):
                self._append({**self._only_copied, asked: answer})
            self._only_copied.clear()
            self._known[asked] = answer
            self._uncopied += 1

    def without(self, phases: Collection[str]) -> bytes:
        """What a file holds with the answers of other phases than these."""
        return _lines_of({asked: answer for asked, answer in self._known.items() if asked.phase not in phases})

    def copy(self, *, whole: bool = True) -> None:
        """Replaces the remote copy if the run has one; unless `whole`, only if many answers came since."""
        with self._lock:
            if self._mirror is not None and self._uncopied >= (1 if whole else _COPIED_EVERY):
                self._mirror.write(NAME, _lines_of(self._known))
                self._uncopied = 0

    def _append(self, answers: Mapping[Asked, Answer]) -> None:
        is_new = not self._path.exists()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with open(self._path, "a+b", buffering=0) as file:
            end = _end_of_lines(file.fileno())
            file.truncate(end)
            try:
                rest = memoryview(_lines_of(answers))
                while rest:
                    rest = rest[file.write(rest) :]
                os.fsync(file.fileno())
            except OSError:
                file.truncate(end)
                raise
        if is_new:
            sync_folder(str(self._path.parent))


_ASKED, _ANSWER = msgspec.json.Decoder(Asked), msgspec.json.Decoder(Answer)


def _lines_of(answers: Mapping[Asked, Answer]) -> bytes:
    return b"".join(
        json.dumps({**asdict(asked), **asdict(answer)}).encode() + b"\n" for asked, answer in answers.items()
    )


def _answers_in(content: bytes) -> dict[Asked, Answer]:
    """The whole lines of a file. Others are left out: their answers are asked for again."""
    found = {}
    for line in content.split(b"\n")[:-1]:  # behind the last end of a line is what a kill left
        with suppress(msgspec.MsgspecError):
            found[_ASKED.decode(line)] = _ANSWER.decode(line)
    return found


def _end_of_lines(handle: int) -> int:
    """Bytes up to the end of the last whole line of a file."""
    end = os.fstat(handle).st_size
    while end:
        start = max(end - 4096, 0)
        cut = os.pread(handle, end - start, start).rfind(b"\n")
        if cut >= 0:
            return start + cut + 1
        end = start
    return 0
