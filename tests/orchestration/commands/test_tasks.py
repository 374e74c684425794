"""`warpsmith tasks` through its front door."""

NUMBERS = ["--first-number", "20001"]


def test_tasks_end_with_their_count(warpsmith) -> None:
    assert warpsmith("tasks").stdout.strip().splitlines()[-1] == "24 tasks"


def test_generated_tasks_are_listed_with_their_programs(warpsmith, tmp_path) -> None:
    path = tmp_path / "tasks.jsonl"
    made = warpsmith("tasks", "--generate", "3", "--seed", "1", "--output", str(path), "--jobs", "1", *NUMBERS)
    assert made.stdout.splitlines()[0].endswith("3 tasks of 3 structures")
    assert "kept out: bundled, 24 of 24 tasks traced" in made.stdout
    assert made.stdout.splitlines()[-1].startswith(f"3 tasks in {path}")
    listed = warpsmith("tasks", str(path)).stdout
    assert listed.strip().splitlines()[-1] == "3 tasks"
    assert listed.count("/2000") == 3, "so they can stand beside a list that begins at 10001"


def test_generating_without_a_file_is_refused(warpsmith) -> None:
    refused = warpsmith("tasks", "--generate", "3")
    assert refused.exit_code == 2
    assert "--generate needs --output FILE" in refused.stderr
    refused = warpsmith("tasks", "--output", "tasks.jsonl")
    assert refused.exit_code == 2
    assert "belong to --generate" in refused.stderr
