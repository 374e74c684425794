"""`warpsmith tasks` through its front door."""


def test_tasks_end_with_their_count(warpsmith) -> None:
    assert warpsmith("tasks").stdout.strip().splitlines()[-1] == "24 tasks"
