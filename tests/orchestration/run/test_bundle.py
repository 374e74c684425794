"""What a run was at its last commit is in its bundle, within the bound, and comes out of it on another machine."""

from __future__ import annotations

import json
import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
import torch

from actors.pool_records import Loss
from configs.schema import ContrastiveConfig, LearnerConfig, LoraConfig
from evaluators.guard.cases import HackCases
from evaluators.records import Verdict
from learners.engine import LearnerEngine
from learners.records import Sample
from orchestration.report import build_report
from orchestration.run.answers import Answer, Asked
from orchestration.run.bundle_folder import MIB, SET_ASIDE, read_bundle, read_manifest
from orchestration.run.bundle_restore import restore
from orchestration.run.directory import RunDirectory
from orchestration.run.errors import BundleError
from orchestration.run.set_aside import Evidence
from orchestration.run.spool import Spool
from orchestration.setup.continuation import Continuation
from orchestration.step.constants import NEAREST_LESSONS
from tests.orchestration.run.bundled import COMMITTED, SmallRun, begin_run, copy_of, judge_constants, small_policy

TEXTS = ["prompt", "response", "prompt_ids", "response_ids", "logprobs"]


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_policy(tmp_path_factory.mktemp("policy"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, policy: Path) -> SmallRun:
    return begin_run(tmp_path_factory.mktemp("made") / "runs", policy)


@pytest.fixture
def small(tmp_path: Path, made: SmallRun) -> SmallRun:
    return copy_of(made, tmp_path / "policy")  # a name that folders in checkpoints have, too


def elsewhere(small: SmallRun, root: str = "elsewhere") -> RunDirectory:
    """The run directory that another machine makes of the run's bundle."""
    return Continuation.read(small.folder, [f"root={small.folder.parent / root}"]).unpack()


def of_steps(table: pa.Table, steps: list[tuple[str, int]]) -> list[dict[str, object]]:
    return [row for row in table.to_pylist() if (row["phase"], row["step"]) in steps]


def test_what_mlflow_does_not_have_yet_travels(small: SmallRun) -> None:
    Spool(small.run.storage).add("metrics", {"phase": "1-sft", "step": 0, "values": {"loss": 2.0}})
    assert small.bundle().exit_code == 0
    run = elsewhere(small)
    assert list(Spool(run.storage).oldest()) == list(Spool(small.run.storage).oldest())


def test_the_committed_run_comes_back_whole(small: SmallRun) -> None:
    done = small.bundle()
    assert done.exit_code == 0, done.output
    run, here = elsewhere(small), small.run
    assert run.read_state() == here.read_state()
    assert run.identity() == here.identity()
    assert run.read_held_out() == here.read_held_out()
    assert run.read_marks() == here.read_marks()
    assert replace(run.read_config(), root="") == replace(here.read_config(), root="")
    state = here.read_state()
    assert state is not None
    assert state.buffer is not None
    assert run.storage.read(state.buffer) == here.storage.read(state.buffer)
    assert run.kernels.read() == here.kernels.read()
    assert run.storage.files("kernels") == here.storage.files("kernels")
    for table in ("samples", "metrics"):
        rows = getattr(run, table).read().to_pylist()
        assert rows == of_steps(getattr(here, table).read(), COMMITTED)
    assert run.candidates.read().equals(here.candidates.read()), "those of the step under way, too"
    assert of_steps(run.verdicts.read(), COMMITTED) == of_steps(here.verdicts.read(), COMMITTED)
    keys = [name for name in here.verdicts.schema.names if name not in ("correctness", "timing", "cost")]
    assert run.verdicts.read(columns=keys).equals(here.verdicts.read(columns=keys)), "no program is judged twice"
    checkpoint = run.checkpoints.fetch(str(state.checkpoint))
    names = sorted(path.relative_to(checkpoint).as_posix() for path in checkpoint.rglob("*") if path.is_file())
    assert names == ["deepspeed/weights.pt", "files.json", "latest"]
    for name in {*names} - {"files.json"}:  # it has no files of the export any more
        assert (checkpoint / name).read_bytes() == (here.checkpoints.fetch(str(state.checkpoint)) / name).read_bytes()
    ours, theirs = (one.store_of(one.read_config()) for one in (here, run))
    assert (theirs / "baselines" / "abc.json").read_text() == (ours / "baselines" / "abc.json").read_text()
    assert HackCases(theirs / "hacks.parquet").all() == HackCases(ours / "hacks.parquet").all()


@pytest.mark.slow
def test_training_goes_on_from_a_bundle_to_the_last_bit(small: SmallRun) -> None:
    """Adapters, moments, reference and random states: the losses of the next two steps are the undisturbed ones."""
    samples = [Sample((1, 2, 3), tuple(range(4, 9 + index)), 1.0 - index) for index in range(3)]
    config = LearnerConfig(autocast=False, threads=1, lora=LoraConfig(rank=2))
    contrastive = ContrastiveConfig(kl=0.1)

    def engine() -> closing[LearnerEngine]:
        return closing(LearnerEngine(config, small.policy, max_length=128, seed=1))

    def two_steps(learner: LearnerEngine) -> list[dict[str, float]]:
        made = [learner.train_cross_entropy(samples, 5e-3), learner.train_grpo(samples, 5e-3, contrastive)]
        return [{name: value for name, value in one.items() if not name.endswith("seconds")} for one in made]

    with engine() as learner:
        learner.train_cross_entropy(samples, 1e-2)
        learner.set_reference()
        learner.train_grpo(samples, 1e-2, contrastive)
        local = small.run.checkpoints.new_folder("step-000005")
        learner.save(local)
        small.commit(checkpoint=small.run.checkpoints.publish(local, "step-000005"))
        assert small.bundle().exit_code == 0
        undisturbed, weights = two_steps(learner), dict(learner.named_weights())
    shutil.rmtree(small.path)
    run = elsewhere(small)
    state = run.read_state()
    assert state is not None
    with engine() as learner:
        learner.load(run.checkpoints.fetch(str(state.checkpoint)))
        assert two_steps(learner) == undisturbed
        assert undisturbed[1]["kl"] > 0
        for name, weight in learner.named_weights():
            assert torch.equal(weight, weights[name]), name
    (learner_piece,) = (one for one in read_manifest(small.folder)["pieces"] if one["name"] == "learner")
    raw = sum(file["bytes"] for file in learner_piece["files"])
    assert learner_piece["packed_bytes"] < 0.7 * raw, "DeepSpeed writes the weights twice; a bundle holds them once"


def test_what_was_judged_of_constant_policies_travels(small: SmallRun) -> None:
    """The state says that they were judged, so a run that goes on never judges them again."""
    judge_constants(small)
    assert small.bundle().exit_code == 0
    run = elsewhere(small)
    for table in ("samples", "verdicts"):
        rows = getattr(run, table).read(NEAREST_LESSONS)
        assert rows.num_rows == getattr(small.run, table).read(NEAREST_LESSONS).num_rows == 40
    policies = [[stage.label for stage in build_report(one).groups[0].constants] for one in (small.run, run)]
    assert policies == [["reference", "nearest lesson"]] * 2


def test_answers_that_were_paid_for_travel_as_long_as_their_phase_is_not_complete(small: SmallRun) -> None:
    known = small.run.answers()
    done, under_way = (Asked(phase, 0, "m", "level1/softmax", "0123", 0) for phase in ("1-sft", "2-sft"))
    for asked in (done, under_way):
        known.add(asked, Answer("a program", "stop", 100, 40))
    assert small.bundle().exit_code == 0
    answers = elsewhere(small).answers()
    assert answers.of(under_way) == Answer("a program", "stop", 100, 40)
    assert answers.of(done) is None


def test_a_bundle_of_a_continued_run_holds_all_windows(small: SmallRun) -> None:
    assert small.bundle().exit_code == 0
    second = SmallRun(elsewhere(small), small.policy, small.folder.with_name("second"))
    assert second.bundle().exit_code == 0
    third = elsewhere(second, "third")
    assert third.samples.read().equals(second.run.samples.read())
    assert third.verdicts.read().equals(second.run.verdicts.read())
    assert third.identity() == small.run.identity()
    assert third.read_state() == small.run.read_state()


def shrinking(small: SmallRun) -> Iterator[list[str]]:
    """Makes bundles under ever smaller bounds until one is refused; gives what each of the others leaves out."""
    bound = 60.0
    while (done := small.bundle("--max-mib", str(bound))).exit_code == 0:
        size = sum(path.stat().st_size for path in small.folder.iterdir())
        assert size <= bound * MIB
        yield re.findall(r"^ *(.*?)  .*left out: no room", done.output, re.MULTILINE)
        bound = (size - 1) / MIB
    assert "must travel" in done.stderr


def test_an_interrupted_restore_is_done_again(small: SmallRun) -> None:
    assert small.bundle().exit_code == 0
    run = elsewhere(small)
    run.storage.delete("config.yaml")
    run.storage.delete("samples")
    assert elsewhere(small).samples.read().num_rows == len(COMMITTED) * 40
    assert run.read_config().name == "demo"


def test_a_run_that_was_begun_and_has_committed_nothing_is_left_alone(small: SmallRun) -> None:
    assert small.bundle().exit_code == 0
    begun = RunDirectory(str(small.folder.parent / "elsewhere"), "demo")
    begun.identity()
    begun.write_config(small.run.read_config())
    with pytest.raises(BundleError, match="holds another run"):
        elsewhere(small)
    assert begun.read_state() is None


def test_what_has_no_room_is_left_out_in_the_stated_order_and_the_report_does_not_need_it(small: SmallRun) -> None:
    order = ("best programs", "verdicts: timing", "programs", "sample texts")
    found = list(shrinking(small))
    assert [len(names) for names in found[:2]] == [0, 1]
    assert len(found[-1]) >= 3
    for names in found:
        assert len(names) <= len(order)
        assert all(name.startswith(start) for name, start in zip(names[::-1], order[::-1], strict=False)), names
    run = elsewhere(small)
    assert run.samples.read(columns=TEXTS)["response"].null_count == len(COMMITTED) * 40
    before, after = build_report(small.run), build_report(run)
    assert after.stages == before.stages
    assert list(after.steps) == [point for point in before.steps if (point.phase, point.step) in COMMITTED]
    keys = {verdict.candidate: verdict for verdict in map(Verdict.from_row, run.verdicts.read().to_pylist())}
    for verdict in map(Verdict.from_row, small.run.verdicts.read().to_pylist()):
        kept = keys[verdict.candidate]
        assert (kept.outcome, kept.speedups, kept.evaluator) == (verdict.outcome, verdict.speedups, verdict.evaluator)


def test_texts_of_the_newest_steps_stay_longest(small: SmallRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestration.run.bundle_tables._CHUNK_ROWS", 40)
    found = []
    for left_out in shrinking(small):
        if not left_out or not left_out[0].startswith("sample texts"):
            continue
        samples = elsewhere(small, f"elsewhere-{len(found)}").samples.read()
        with_texts = samples.filter(samples["response"].is_valid())
        found.append({(row["phase"], row["step"]) for row in with_texts.to_pylist()})
        if len(found) == 3:
            break
    assert found == [set(COMMITTED[index:]) for index in (1, 2, 3)]


def test_weights_that_do_not_fit_are_refused_with_size_and_remedy(small: SmallRun) -> None:
    done = small.bundle("--max-mib", "0.1")
    assert done.exit_code == 2
    assert re.fullmatch(
        r"error: the trained weights and moments take 0\.\d MiB, and --max-mib is 0\.1; train adapters "
        r"\(learner\.lora\.rank\), or raise --max-mib\n",
        done.stderr,
    )
    assert not small.folder.exists()


def test_a_run_that_commits_all_the_while_is_bundled_at_one_of_its_commits(small: SmallRun) -> None:
    """State, checkpoint and buffer belong together, and no checkpoint is read that is being removed."""
    stop = threading.Event()

    def commit(version: int) -> None:
        name = f"step-{version:06d}"
        local = small.run.checkpoints.new_folder(name)
        for number in range(8):
            (local / f"{number}").write_text(f"{version}")
        small.commit(checkpoint=small.run.checkpoints.publish(local, name), policy_version=version)
        small.run.checkpoints.prune(1)

    def go_on() -> None:
        version = 5
        while not stop.is_set():
            commit(version := version + 1)

    commit(5)
    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        versions = set()
        for _ in range(4):
            done = small.bundle()
            assert done.exit_code == 0, done.output
            bundle = read_bundle(small.folder)
            version = bundle.about["run"]["policy_version"]
            assert {content for _, content in bundle.below("checkpoint/")} == {str(version).encode()}
            versions.add(version)
    finally:
        stop.set()
        thread.join()
    assert len(versions) > 1


def test_what_is_set_aside_is_not_tried_on_the_next_machine_either(small: SmallRun) -> None:
    losses = tuple(Loss("it died", place, place, "node", 7, 1.5, 0.0, 2.5, "") for place in range(3))
    evidence = Evidence("task", "digest", "a" * 16, "fast", "me", "evaluate", "why", 2.5, losses, "import torch")
    small.run.set_aside.add(evidence)
    assert small.bundle().exit_code == 0
    assert list(elsewhere(small).set_aside.all()) == [evidence]


@pytest.mark.parametrize("path", ["../outside.json", "/etc/outside.json", "set_aside/../../outside.json", "state.json"])
def test_a_bundle_writes_nothing_outside_of_the_folders_that_it_speaks_of(small: SmallRun, path: str) -> None:
    assert small.bundle().exit_code == 0
    bundle = read_bundle(small.folder)
    bundle.files[SET_ASIDE] = json.dumps({path: "{}"}).encode()
    with pytest.raises(BundleError, match="outside of set_aside"):
        restore(bundle, RunDirectory(str(small.folder.parent / "elsewhere"), "small"), small.run.read_config())
