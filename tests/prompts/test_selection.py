"""Each strategy draws distinct exemplars, with the probabilities of its formula."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest

from configs.schema import BufferConfig
from evaluators.records import Candidate
from prompts.selection import (
    BucketSelection,
    IslandSelection,
    RandomSelection,
    ScoredCandidate,
    Selection,
    bucket_of,
    draw_by_score,
    make_selection,
)

DRAWS = 4000
STRATEGIES = [BucketSelection(0.1, 0.5), IslandSelection(3, 10, 0.5), RandomSelection()]


def scored(*speedups: float, step: int = 0, start: int = 0) -> list[ScoredCandidate]:
    return [
        ScoredCandidate(Candidate.propose("task", f"class ModelNew: x = {start + i}", "test"), speedup, step)
        for i, speedup in enumerate(speedups)
    ]


def assert_frequency(observed: int, probability: float, draws: int = DRAWS) -> None:
    """`observed` lies within four standard deviations of the binomial distribution."""
    sigma = math.sqrt(draws * probability * (1 - probability))
    assert abs(observed - draws * probability) <= 4 * sigma, (observed / draws, probability)


def softmax(values: list[float]) -> list[float]:
    weights = [math.exp(value) for value in values]
    return [weight / sum(weights) for weight in weights]


@pytest.mark.parametrize("selection", STRATEGIES)
def test_exemplars_are_distinct_and_ordered_from_slow_to_fast(selection: Selection) -> None:
    members = scored(3.0, 0.5, 1.0, 2.0, 1.5, 1.01)
    for seed in range(50):
        drawn = selection.select(members, 3, np.random.default_rng(seed))
        assert 1 <= len(drawn) <= 3
        assert len({member.candidate.digest for member in drawn}) == len(drawn)
        assert [member.speedup for member in drawn] == sorted(member.speedup for member in drawn)
        assert all(member in members for member in drawn)


@pytest.mark.parametrize("selection", STRATEGIES)
def test_nothing_to_draw_gives_nothing(selection: Selection) -> None:
    assert selection.select([], 2, np.random.default_rng(0)) == []
    assert selection.select(scored(1.0), 0, np.random.default_rng(0)) == []
    assert len(selection.select(scored(1.0), 5, np.random.default_rng(0))) == 1


@pytest.mark.parametrize("selection", STRATEGIES)
def test_the_same_generator_draws_the_same(selection: Selection) -> None:
    members = scored(*(1 + 0.07 * i for i in range(20)))
    draws = [[selection.select(members, 2, rng) for _ in range(5)] for rng in map(np.random.default_rng, (7, 7, 8))]
    assert draws[0] == draws[1] != draws[2]


@pytest.mark.parametrize(
    ("speedup", "bucket"), [(0.0, 0), (0.3, 3), (0.6, 6), (0.7, 7), (1.2, 12), (1.29, 12), (1.3, 13)]
)
def test_bucket_edges_are_where_a_reader_puts_them(speedup: float, bucket: int) -> None:
    assert bucket_of(speedup, 0.1) == bucket


def test_buckets_are_drawn_as_the_formula_says() -> None:
    members = scored(0.52, 0.58, 1.02, 1.21, 1.23, 1.28)
    probabilities = softmax([mean / 0.5 for mean in (0.55, 1.02, 1.24)])
    rng = np.random.default_rng(1)
    selection = BucketSelection(0.1, 0.5)
    seen = Counter(bucket_of(selection.select(members, 1, rng)[0].speedup, 0.1) for _ in range(DRAWS))
    for bucket, probability in zip((5, 10, 12), probabilities, strict=True):
        assert_frequency(seen[bucket], probability)


def test_pairs_of_buckets_are_drawn_without_replacement() -> None:
    means = [0.55, 1.05, 1.25]
    members = scored(*means)
    p = softmax([mean / 0.5 for mean in means])
    rng = np.random.default_rng(2)
    selection = BucketSelection(0.1, 0.5)
    seen = Counter(tuple(member.speedup for member in selection.select(members, 2, rng)) for _ in range(DRAWS))
    for i, j in itertools.combinations(range(3), 2):
        expected = p[i] * p[j] / (1 - p[i]) + p[j] * p[i] / (1 - p[j])
        assert_frequency(seen[means[i], means[j]], expected)


def test_within_a_bucket_every_candidate_is_as_likely() -> None:
    members = scored(1.21, 1.23, 1.25, 1.28)
    rng = np.random.default_rng(3)
    seen = Counter(BucketSelection(0.1, 0.01).select(members, 2, rng)[0].speedup for _ in range(DRAWS))
    for member in members:
        assert_frequency(seen[member.speedup], 0.25)


def test_a_crowded_bucket_is_no_likelier_than_an_empty_one() -> None:
    members = scored(*[1.0] * 40, 1.15)
    rng = np.random.default_rng(4)
    fast = sum(BucketSelection(0.1, 0.5).select(members, 1, rng)[0].speedup > 1.1 for _ in range(1000))
    assert_frequency(fast, softmax([2.0, 2.3])[1], 1000)


def test_buckets_in_one_draw_differ() -> None:
    members = scored(1.0, 1.01, 1.02, 1.5, 1.51)
    for seed in range(50):
        drawn = BucketSelection(0.1, 0.5).select(members, 3, np.random.default_rng(seed))
        assert [bucket_of(member.speedup, 0.1) for member in drawn] == [10, 15]


def test_extreme_scores_overflow_nothing() -> None:
    members = scored(0.01, 1.0, 1e6, 1e12)
    drawn = BucketSelection(0.1, 1e-6).select(members, 3, np.random.default_rng(0))
    assert [member.speedup for member in drawn] == [1.0, 1e6, 1e12]


def test_a_high_temperature_is_uniform_and_a_low_one_greedy() -> None:
    rng = np.random.default_rng(5)
    uniform = Counter(draw_by_score([0.0, 1.0], 1e9, 1, rng)[0] for _ in range(DRAWS))
    assert_frequency(uniform[0], 0.5)
    assert {draw_by_score([0.0, 1.0], 0.01, 1, rng)[0] for _ in range(100)} == {1}


def test_random_selection_is_uniform() -> None:
    members = scored(0.5, 1.0, 2.0, 4.0)
    rng = np.random.default_rng(6)
    seen: Counter[float] = Counter()
    for _ in range(DRAWS):
        seen.update(member.speedup for member in RandomSelection().select(members, 2, rng))
    for member in members:
        assert_frequency(seen[member.speedup], 0.5)


def test_before_a_migration_islands_share_nobody() -> None:
    members = scored(*(1 + i / 10 for i in range(20)), step=3)
    populations = IslandSelection(4, 10, 0.5).populations(members)
    homes = [{member.candidate.digest for member in island} for island in populations]
    assert sum(len(home) for home in homes) == len(set().union(*homes)) == 20
    assert sum(1 for home in homes if home) >= 3
    assert populations == IslandSelection(4, 10, 0.5).populations(members)


def test_the_home_of_a_candidate_does_not_depend_on_the_others() -> None:
    members = scored(*(1 + i / 10 for i in range(12)))
    together = IslandSelection(4, 10, 0.5).populations(members)
    for member in members:
        alone = IslandSelection(4, 10, 0.5).populations([member])
        assert [member in island for island in together] == [member in island for island in alone]


def test_the_best_moves_one_island_on_at_each_migration() -> None:
    selection = IslandSelection(4, 10, 0.5)
    best = scored(9.0)[0]
    home = next(i for i, island in enumerate(selection.populations([best])) if island)
    for now, reach in ((9, 1), (10, 2), (19, 2), (20, 3), (30, 4), (500, 4)):
        clock = scored(0.1, step=now, start=1)
        islands = selection.populations([best, *clock])
        assert {i for i, island in enumerate(islands) if best in island} == {(home + k) % 4 for k in range(reach)}


def test_nobody_migrates_before_arriving() -> None:
    late = scored(9.0, step=15)[0]
    early = scored(*(1 + i / 10 for i in range(8)), start=1)
    for now, reach in ((19, 1), (20, 2), (30, 3)):
        islands = IslandSelection(4, 10, 0.5).populations([late, *early, *scored(0.1, step=now, start=20)])
        assert sum(late in island for island in islands) == reach


def test_a_long_run_ends_with_the_best_on_every_island() -> None:
    members = (
        scored(*(1 + i / 10 for i in range(10))) + scored(5.0, step=777, start=50) + scored(1.0, step=990, start=60)
    )
    for island in IslandSelection(4, 10, 0.5).populations(members):
        assert max(member.speedup for member in island) == 5.0


def test_an_island_prompt_stays_on_one_island_and_prefers_the_better() -> None:
    selection = IslandSelection(3, 10, 0.2)
    members = scored(*(1 + i / 10 for i in range(15)))
    islands = [{member.candidate.digest for member in island} for island in selection.populations(members)]
    rng = np.random.default_rng(7)
    total = 0.0
    for _ in range(300):
        drawn = selection.select(members, 2, rng)
        assert any({member.candidate.digest for member in drawn} <= island for island in islands)
        total += drawn[-1].speedup
    assert total / 300 > 1.7  # the mean of all is 1.7


@pytest.mark.parametrize(
    ("strategy", "kind"), [("bucket", BucketSelection), ("island", IslandSelection), ("random", RandomSelection)]
)
def test_the_config_names_the_strategy(strategy: str, kind: type) -> None:
    assert isinstance(make_selection(BufferConfig(strategy=strategy)), kind)


def test_an_unknown_strategy_is_an_error() -> None:
    with pytest.raises(ValueError, match="must be bucket, island or random, got 'best'"):
        make_selection(BufferConfig(strategy="best"))


@pytest.mark.parametrize("build", [lambda: BucketSelection(0.0, 0.5), lambda: IslandSelection(0, 1, 0.5)])
def test_sizes_that_are_not_positive_are_refused(build) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        build()
