"""Only bytes that a call must have written count: never more than an honest program writes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from evaluators.host.cpu_device import CpuDevice
from evaluators.judge.floor import bytes_written

SIZE = 64 * 64


def written(forward: Callable[..., object], *, integers: bool = False) -> int:
    torch.manual_seed(0)
    calls = [torch.randint(0, 10**9, (64, 64)) if integers else torch.randn(64, 64) for _ in range(2)]
    first, second = (forward(one) for one in calls)
    made = [list(one) if isinstance(one, tuple) else [one] for one in (first, second)]
    return bytes_written(made[0], made[1], [calls[1], 3, "mode"])


def test_what_is_computed_anew_must_be_written() -> None:
    assert written(lambda x: x.exp()) == 4 * SIZE
    assert written(lambda x: x.double().exp()) == 8 * SIZE
    assert written(lambda x: (x * 5).exp().bfloat16()) == pytest.approx(
        2 * SIZE, rel=0.02
    )  # some numbers are equal by chance
    assert written(lambda x: (x.t() @ x).t()) == 4 * SIZE
    assert written(lambda x: x * 3 + 1, integers=True) == 8 * SIZE


def test_zeros_need_not_be_written() -> None:
    assert written(lambda x: (x.exp() - 1).relu()) == pytest.approx(2 * SIZE, rel=0.1)


@pytest.mark.parametrize(
    "forward",
    [
        lambda x: x,
        lambda x: x.t()[3:],
        lambda x: -x,
        lambda x: x.view(torch.int32),
        lambda x: torch.ones_like(x),
        lambda x: x.mean(dim=1, keepdim=True).expand(64, 64),
        lambda x: torch.view_as_complex(x.exp().view(64, 32, 2)),
        lambda x: x[:0],
    ],
)
def test_views_constants_and_expanded_outputs_need_not_be(forward) -> None:
    assert written(forward) == 0


def test_outputs_that_may_share_memory_count_once() -> None:
    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        made = x.exp()
        return made, made.t()

    assert written(both) == 4 * SIZE


def test_a_cpu_is_believed_faster_than_any_is() -> None:
    device = CpuDevice(threads=1)
    assert device.floor_seconds(0) == 0
    assert device.floor_seconds(1 << 20) == pytest.approx(2.05e-6, rel=0.01)


def test_places_that_share_memory_are_written_once() -> None:
    one, other, inputs = (torch.rand(1 << 10) + 1 for _ in range(3))
    assert bytes_written([one.unfold(0, 8, 1)], [other.unfold(0, 8, 1)], [inputs]) == other.nbytes
