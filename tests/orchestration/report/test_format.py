"""How figures are written in every report."""

from orchestration.report import format as fmt


def test_missing_figures_are_dashes():
    assert [fmt.speed(None), fmt.share(None), fmt.speed_interval(None), fmt.share_interval(None)] == ["-", "-", "", ""]
    assert [fmt.seconds(value) for value in (2.5, 1.234e-3, 5e-6, 3e-9)] == ["2.5 s", "1.23 ms", "5 µs", "3 ns"]
