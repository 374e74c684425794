"""How figures are written in every report. A figure that does not exist is a dash, never NaN."""

from __future__ import annotations

from evaluators.records import Estimate

NOTHING = "-"


def speed(value: float | None) -> str:
    """`1.23x`."""
    return NOTHING if value is None else f"{_short(value)}x"


def share(value: float | None) -> str:
    """`45.8%`."""
    return NOTHING if value is None else f"{100 * value:.1f}%"


def speed_interval(estimate: Estimate | None, dash: str = "-") -> str:
    """`1.10-1.35`, the bounds of the 95 % interval. Empty without an estimate."""
    return "" if estimate is None else f"{_short(estimate.low)}{dash}{_short(estimate.high)}"


def share_interval(estimate: Estimate | None, dash: str = "-") -> str:
    """`38-54%`, the bounds of the 95 % interval. Empty without an estimate."""
    return "" if estimate is None else f"{100 * estimate.low:.0f}{dash}{100 * estimate.high:.0f}%"


def seconds(value: float) -> str:
    """`1.24 ms`: s, ms, µs or ns, depending on the value."""
    for unit, factor in [("s", 1.0), ("ms", 1e3), ("µs", 1e6)]:
        if value * factor >= 1:
            return f"{value * factor:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"


def duration(value: float) -> str:
    """`1 h 04 min`, `12 min` or `34 s`, of seconds."""
    if value < 60:
        return f"{value:.0f} s"
    minutes = round(value / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"


def value_of(estimate: Estimate | None) -> float | None:
    """The estimate's value, None without an estimate."""
    return None if estimate is None else estimate.value


def _short(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"
