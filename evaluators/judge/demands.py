"""What a user demands of candidates, and of the host that judges them."""

from __future__ import annotations

from dataclasses import dataclass

from evaluators.host.containment import MEANS
from evaluators.records import DROP_IN, VALUES


@dataclass(frozen=True)
class Demands:
    """`shapes`: a candidate that fails at other shapes than the task's is wrong, not only specialised.

    `strict`: `drop_in` or `values`. A drop-in replacement has outputs of the reference's strides, and takes new weights
    after construction. By `values`, outputs may have any strides, and both sides keep the weights of construction, as
    in KernelBench.
    `containment`: words of `evaluators.host.containment`. No program is loaded without it.
    """

    shapes: bool = False
    strict: str = DROP_IN
    containment: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.strict not in (DROP_IN, VALUES):
            raise ValueError(f"evaluator.strict must be {DROP_IN} or {VALUES}, got {self.strict!r}")
        if unknown := set(self.containment) - set(MEANS):
            known = ", ".join(MEANS)
            raise ValueError(f"evaluator.require_containment: {sorted(unknown)[0]} is not one of {known}")

    @property
    def by_value(self) -> bool:
        """Whether only the values of outputs count, under the weights of construction."""
        return self.strict == VALUES
