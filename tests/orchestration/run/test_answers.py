import errno
import os
from dataclasses import replace
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from orchestration.run.answers import NAME, Answer, Answers, Asked
from orchestration.run.directory import RunDirectory
from orchestration.run.storage import Storage

ASKED = Asked("1-sft", 0, "m", "level1/softmax", "0123", 0)
ANSWER = Answer("text \u2028 \n of a program", "stop", 100, None, 1.5)


def asked(number: int) -> Asked:
    return replace(ASKED, number=number)


def filled(path: Path, count: int = 3) -> Answers:
    answers = Answers(path)
    for number in range(count):
        answers.add(asked(number), ANSWER)
    return answers


def test_answers_are_read_back_by_all_that_they_depend_on(tmp_path: Path) -> None:
    filled(tmp_path / NAME)
    read = Answers(tmp_path / NAME)
    assert read.of(asked(2)) == ANSWER
    others = ({"phase": "2-sft"}, {"teacher": 1}, {"model": "n"}, {"task_id": "t"}, {"prompt": "4"}, {"number": 3})
    assert [read.of(replace(asked(2), **other)) for other in others] == [None] * len(others)  # type: ignore[arg-type]


def test_a_file_may_end_after_any_byte(tmp_path: Path) -> None:
    """As a kill in the middle of a line leaves it: what was whole stays, and the next answer has a line of its own."""
    filled(tmp_path / NAME)
    content = (tmp_path / NAME).read_bytes()
    whole = content.index(b"\n", content.index(b"\n") + 1) + 1
    for end in range(whole, len(content)):
        (tmp_path / NAME).write_bytes(content[:end])
        cut = Answers(tmp_path / NAME)
        assert cut.count == 2
        cut.add(asked(5), ANSWER)
        assert [Answers(tmp_path / NAME).of(asked(number)) for number in (0, 1, 5)] == [ANSWER] * 3
        assert (tmp_path / NAME).read_bytes().count(b"\n") == 3


@pytest.mark.parametrize("damage", [b"\0\0\0", b"\xff\xfe", b"{}", b"7", b'{"phase": 1}'])
def test_a_damaged_line_costs_only_its_own_answer(tmp_path: Path, damage: bytes) -> None:
    filled(tmp_path / NAME)
    lines = (tmp_path / NAME).read_bytes().split(b"\n")
    lines[1] = damage
    (tmp_path / NAME).write_bytes(b"\n".join(lines))
    assert [Answers(tmp_path / NAME).of(asked(number)) for number in range(3)] == [ANSWER, None, ANSWER]


def test_a_full_disk_raises_and_leaves_the_file_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = filled(tmp_path / NAME)
    before = (tmp_path / NAME).read_bytes()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            answers.add(asked(9), ANSWER)
    assert (tmp_path / NAME).read_bytes() == before
    assert answers.of(asked(9)) is None
    answers.add(asked(9), ANSWER)
    assert Answers(tmp_path / NAME).count == 4


def test_a_run_on_a_remote_folder_finds_its_answers_on_another_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = Storage(pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem()), "bucket/demo", "s3://bucket/demo")
    for machine, known in (("first", 0), ("second", 70), ("first", 140)):
        (tmp_path / machine).mkdir(exist_ok=True)
        monkeypatch.chdir(tmp_path / machine)
        answers = RunDirectory("", "demo", storage=remote).answers()
        assert answers.count == known
        for number in range(known, known + 70):
            answers.add(asked(number), ANSWER)
            answers.copy(whole=False)
        assert 63 < Answers(tmp_path / "bucket" / "demo" / NAME).count - known < 70, "not after each answer"
        answers.copy()
        assert Answers(Path("runs/demo") / NAME).count == known + 70
