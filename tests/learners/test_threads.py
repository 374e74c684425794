"""How many threads a rank computes with on the host."""

from __future__ import annotations

import os

import pytest
import torch

from configs.schema import LearnerConfig
from learners.engine import _use_threads


@pytest.mark.parametrize(
    ("ranks", "on_host", "threads", "expected"),
    [(8, 4, 0, 4), (8, 8, 0, 2), (1, 1, 0, 16), (32, 32, 0, 1), (8, 4, 3, 3)],
)
def test_the_ranks_of_a_host_share_its_cores_whatever_other_hosts_have(
    ranks: int, on_host: int, threads: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[int] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    monkeypatch.setattr(torch, "set_num_threads", used.append)
    _use_threads(LearnerConfig(ranks=ranks, threads=threads), on_host)
    assert used == [expected]
