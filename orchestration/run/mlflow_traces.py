"""Rollouts as MLflow's traces: the prompt, what the policy answered, the build of its program and the verdict on it.

A trace's id follows from the run, the step and the rollout's number, so that a trace that is sent again is the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from orchestration.run.judged_rollouts import JudgedRollout

_PREVIEW = 200  # characters of a text in a list of traces
_MILLION = 1_000_000


@dataclass(frozen=True)
class Step:
    """The step whose rollouts are traced. `key`: of the training run; `run_id`: of the phase in MLflow. `ended`: when,
    in milliseconds since 1970."""

    key: str
    experiment: str
    run_id: str
    phase: str
    number: int
    ended: int


def log_traces(uri: str, step: Step, rollouts: Iterable[JudgedRollout]) -> None:
    """Sends one trace a rollout. Raises what MLflow raises, NotImplementedError from a store that takes no traces."""
    from mlflow.tracing.client import TracingClient

    client = TracingClient(uri)
    for rollout in rollouts:
        info, spans = _trace_of(step, rollout)
        client.start_trace(info)
        client.log_spans(step.experiment, spans)


def _trace_of(step: Step, rollout: JudgedRollout) -> tuple[Any, list[Any]]:
    """MLflow's description of a trace, and its spans.

    The spans of building and judging are as long as these took, and lie before the end of the step. How long a single
    response took to generate is not known: its span has no length.
    """
    from mlflow.entities import TraceInfo, TraceLocation, TraceState

    number = int(
        hashlib.sha256(f"{step.key}/{step.phase}/{step.number}/{rollout.number}".encode()).hexdigest()[:32], 16
    )
    make = _Spans(f"tr-{number:032x}", number)
    cost = dict(rollout.verdict.cost) if rollout.verdict else {}
    building, judging = (round(1e9 * cost.get(name, 0.0)) for name in ("compile", "total"))
    end = step.ended * _MILLION
    start = end - building - judging
    asked = {"prompt": rollout.prompt}
    result = _result_of(rollout)
    about = {"policy_version": rollout.policy_version, "tokens": rollout.tokens, "finish_reason": rollout.finish_reason}
    spans = [
        make.span("rollout", "CHAIN", asked, result, (start, end), {"task": rollout.task}),
        make.span("generate", "LLM", asked, rollout.response, (start, start), about),
    ]
    if rollout.digest:
        program = {"program": rollout.program, "digest": rollout.digest}
        spans.append(make.span("build", "TOOL", program, None, (start, start + building)))
        spans.append(make.span("judge", "EVALUATOR", program, result, (start + building, end), {"cost": cost}))
    info = TraceInfo(
        trace_id=f"tr-{number:032x}",
        trace_location=TraceLocation.from_experiment_id(step.experiment),
        request_time=start // _MILLION,
        state=TraceState.OK,
        request_preview=f"{rollout.task}: {rollout.prompt}"[:_PREVIEW],
        response_preview=json.dumps(result)[:_PREVIEW],
        execution_duration=(end - start) // _MILLION,
        trace_metadata={"mlflow.sourceRun": step.run_id},
        tags={
            "mlflow.traceName": step.phase,
            "warpsmith.task": rollout.task,
            "warpsmith.step": str(step.number),
            "warpsmith.outcome": rollout.outcome,
        },
        assessments=_feedback(rollout),
    )
    return info, spans


def _result_of(rollout: JudgedRollout) -> dict[str, Any]:
    verdict = rollout.verdict
    found: dict[str, Any] = {"outcome": rollout.outcome}
    if verdict is not None:
        found |= {f"speedup over {name}": round(one.value, 4) for name, one in verdict.speedups.items()}
        found |= {"message": verdict.message} if verdict.message else {}
        if verdict.guard:
            found["guard"] = [f"{finding.kind}: {finding.message}" for finding in verdict.guard]
    numbers = {"reward": rollout.reward, "advantage": rollout.advantage}
    found |= {name: value for name, value in numbers.items() if value is not None}
    return found | ({"copy_of": rollout.copy_of} if rollout.copy_of else {})


def _feedback(rollout: JudgedRollout) -> list[Any]:
    """What MLflow can filter and average: the outcome, the speed-up over eager, and the reward."""
    from mlflow.entities import AssessmentSource, Feedback

    values = {
        "outcome": rollout.outcome,
        "speedup": rollout.verdict.speedup if rollout.verdict else None,
        "reward": rollout.reward,
    }
    source = AssessmentSource("CODE", "warpsmith")
    return [Feedback(name, value, source=source) for name, value in values.items() if value is not None]


class _Spans:
    """Makes the spans of one trace; the first one is the root."""

    def __init__(self, trace_id: str, number: int) -> None:
        self._trace_id, self._number, self._made = trace_id, number, 0

    def span(
        self,
        name: str,
        kind: str,
        inputs: Any,
        outputs: Any,
        nanoseconds: tuple[int, int],
        attributes: Mapping[str, Any] | None = None,
    ) -> Any:
        """`nanoseconds`: start and end, since 1970."""
        from mlflow.entities import Span
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

        self._made += 1
        own, root = (SpanContext(self._number, place, False, TraceFlags(1)) for place in (self._made, 1))
        values = {
            "mlflow.traceRequestId": self._trace_id,
            "mlflow.spanType": kind,
            "mlflow.spanInputs": inputs,
            **({} if outputs is None else {"mlflow.spanOutputs": outputs}),
            **(attributes or {}),
        }
        return Span(
            ReadableSpan(
                name,
                context=own,
                parent=root if self._made > 1 else None,
                attributes={key: json.dumps(value) for key, value in values.items()},
                start_time=nanoseconds[0],
                end_time=nanoseconds[1],
                status=Status(StatusCode.OK),
            )
        )
