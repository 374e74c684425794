"""What `warpsmith serve` refuses before it starts anything."""

import pytest


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--host", "0.0.0.0"], "error: --host 0.0.0.0: without --tokens FILE (or WARPSMITH_TOKENS) the host must be"),
        (["--tokens", "nosuch"], "error: --tokens nosuch: cannot be read"),
        (["--arch", "nosuch!"], "evaluator.arch must be auto, cpu or an accelerator's name"),
        (["evaluator.workerz=2"], "evaluator.workerz"),
        (["tasks.source=nosuch"], "error: nosuch: no such file or folder"),
        (["--arch", "Z9000"], "evaluator.capability must say the compute capability of Z9000"),
        (["guard.checker=policy"], "error: guard.checker: a service has no policy to ask"),
    ],
)
def test_bad_input_gives_one_line_and_starts_nothing(warpsmith, monkeypatch, options: list[str], line: str) -> None:
    monkeypatch.delenv("WARPSMITH_TOKENS", raising=False)
    done = warpsmith("serve", *options)
    assert done.exit_code == 2, done.output
    assert line in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
