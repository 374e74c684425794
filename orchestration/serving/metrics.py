"""What a service counts of itself, in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)


class Metrics:
    """Counts answers and verdicts, with a registry of its own."""

    def __init__(self, waiting: Callable[[], int], judging: Callable[[], int], evaluators: Callable[[], int]) -> None:
        """The gauges: requests that wait for a verdict, those that are judged, evaluators that are ready."""
        self._registry = registry = CollectorRegistry()
        self._answers = Counter(
            "warpsmith_serve_answers", "Answers by client and HTTP status", ["client", "status"], registry=registry
        )
        self._verdicts = Counter("warpsmith_serve_verdicts", "New verdicts by outcome", ["outcome"], registry=registry)
        self._seconds = Histogram(
            "warpsmith_serve_wait_seconds",
            "Seconds from the request until the verdict",
            buckets=_SECONDS,
            registry=registry,
        )
        for name, text, read in (
            ("waiting", "Requests that wait for a verdict", waiting),
            ("judging", "Requests that are with builders or evaluators", judging),
            ("evaluators", "Evaluators that are ready", evaluators),
        ):
            Gauge(f"warpsmith_serve_{name}", text, registry=registry).set_function(read)

    def answered(self, client: str, status: int) -> None:
        """Counts an answer. `client`: its name, empty if it is not known."""
        self._answers.labels(client, str(status)).inc()

    def judged(self, outcome: str, seconds: float) -> None:
        """Counts a verdict on a program that was asked for so many seconds ago."""
        self._verdicts.labels(outcome).inc()
        self._seconds.observe(seconds)

    def text(self) -> bytes:
        """All of it."""
        return generate_latest(self._registry)
