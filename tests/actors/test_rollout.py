import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
import ray
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from actors.engine_calls import requests_at_once
from actors.engine_options import parse_cores, shared_file
from actors.generation import Completion, GenerationRequest
from actors.pool import ActorPool
from actors.rollout import RolloutEngine
from actors.weight_transport import BroadcastChannel, ByBroadcast
from configs.schema import PolicyConfig, RolloutConfig
from learners.weights import ChecksumMismatch, pack_parts
from tests.packing import PackedWeights, pack
from tests.ports import free_port

_PROMPT = tuple(range(10, 74))


def request(**changes) -> GenerationRequest:
    return replace(GenerationRequest("group", _PROMPT, 1, 24, 0.0), **changes)


def generate(engine, wanted: GenerationRequest) -> list[Completion]:
    return ray.get(engine.generate.remote(wanted), timeout=240)


def push(engine, packed: PackedWeights):
    return ray.get(engine.update_weights.remote(ray.put(packed.data), packed.manifest), timeout=240)


def running(engine) -> int:
    """How many requests the engine works on."""
    return ray.get(engine.apply.remote(lambda actor: actor._gate.running), timeout=60)


def is_open(engine) -> bool:
    """Whether the engine lets requests in."""
    return ray.get(engine.apply.remote(lambda actor: actor._gate.is_open), timeout=60)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline


@pytest.fixture(scope="session")
def second_engine(local_ray, policy_folder: Path, rollout_config: RolloutConfig, policy_config: PolicyConfig):
    """An engine that a test kills. If both are requested in this order, it starts while the first one does."""
    return RolloutEngine.remote(str(policy_folder), rollout_config, policy_config, 0)


@pytest.fixture(scope="module")
def model(policy_folder: Path) -> torch.nn.Module:
    loaded = AutoModelForCausalLM.from_pretrained(policy_folder, dtype=torch.float32)
    loaded.generation_config = GenerationConfig(eos_token_id=loaded.config.eos_token_id)  # without its file's settings
    return loaded


@pytest.fixture(scope="module")
def weights(model) -> PackedWeights:
    return pack(model.named_parameters(), torch.float32, version=0)


@pytest.fixture(scope="module")
def other_model(policy_folder: Path) -> torch.nn.Module:
    changed = AutoModelForCausalLM.from_pretrained(policy_folder, dtype=torch.float32)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for tensor in changed.parameters():
            tensor += 0.2 * torch.randn(tensor.shape, generator=generator)
    return changed


@pytest.fixture(scope="module")
def other_weights(other_model) -> PackedWeights:
    return pack(other_model.named_parameters(), torch.float32, version=1)


def difference_of_logprobs(model: torch.nn.Module, completion: Completion, temperature: float) -> float:
    """Mean difference between the engine's log-probabilities and those of a forward pass."""
    ids = torch.tensor([_PROMPT + completion.token_ids])
    with torch.no_grad():
        logits = model(ids).logits[0, len(_PROMPT) - 1 : -1]
    sampled = (logits / temperature).log_softmax(-1).gather(-1, torch.tensor(completion.token_ids)[:, None])[:, 0]
    assert len(completion.logprobs) == len(completion.token_ids)
    return float((sampled - torch.tensor(completion.logprobs)).abs().mean())


def test_greedy_output_is_what_transformers_computes(second_engine, engine, model) -> None:
    (completion,) = generate(engine, request())
    expected = model.generate(torch.tensor([_PROMPT]), max_new_tokens=24, do_sample=False)[0, len(_PROMPT) :]
    assert list(completion.token_ids) == expected.tolist()
    assert completion.policy_version == 0
    assert len(set(generate(engine, request(n=3)))) == 1


def test_a_response_fits_its_schema(engine) -> None:
    """The policy is untrained: without the schema, none of its answers is JSON."""
    properties = {
        "token": {"type": "string", "enum": ["a1"]},
        "decision": {"type": "string", "enum": ["hack", "doubt"]},
    }
    schema = {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
    (answer,) = generate(engine, request(max_tokens=200, schema=json.dumps(schema)))
    fields = json.loads(answer.text)
    assert fields["token"] == "a1"
    assert fields["decision"] in ("hack", "doubt")


def test_pushed_weights_change_the_output_and_the_old_ones_bring_it_back(engine, weights, other_weights) -> None:
    (before,) = generate(engine, request())
    receipt = push(engine, other_weights)
    assert (receipt.version, receipt.checksum) == (1, other_weights.manifest.checksum)
    (changed,) = generate(engine, request())
    assert push(engine, weights).version == 0
    (after,) = generate(engine, request())
    assert changed.policy_version == 1
    assert changed.token_ids != before.token_ids
    assert after == before


def push_parts(engine, model: torch.nn.Module, version: int, channel: BroadcastChannel | None = None) -> list:
    """Pushes a model in several parts of at most 20 kB; returns the receipts."""
    receipts = []
    for part in pack_parts(model.named_parameters(), torch.float32, version, limit_bytes=20_000):
        data = ByBroadcast() if channel is not None else ray.put(part.data.numpy())
        received = engine.update_weights.remote(data, part.manifest)
        if channel is not None:
            channel.broadcast(part.data)
        receipts.append(ray.get(received, timeout=240))
    assert len(receipts) > 3
    return receipts


def test_weights_in_parts_are_the_same_as_in_one(engine, weights, other_model, other_weights) -> None:
    push(engine, other_weights)
    (whole,) = generate(engine, request())
    push(engine, weights)
    push_parts(engine, other_model, 1)
    assert generate(engine, request()) == [whole]
    push(engine, weights)


def test_requests_wait_from_the_first_part_to_the_last(engine, weights, other_model) -> None:
    first = next(pack_parts(other_model.named_parameters(), torch.float32, 2, limit_bytes=20_000))
    ray.get(engine.update_weights.remote(ray.put(first.data.numpy()), first.manifest), timeout=240)
    later = engine.generate.remote(request())
    assert not ray.wait([later], timeout=1.0)[0]
    push_parts(engine, other_model, 2)  # from the start again
    assert [completion.policy_version for completion in ray.get(later, timeout=240)] == [2]
    push(engine, weights)


def test_a_push_ends_although_requests_take_every_place_of_the_engine(
    engine, rollout_config: RolloutConfig, weights, other_model
) -> None:
    first = next(pack_parts(other_model.named_parameters(), torch.float32, 2, limit_bytes=20_000))
    ray.get(engine.update_weights.remote(ray.put(first.data.numpy()), first.manifest), timeout=240)
    later = [engine.generate.remote(request(max_tokens=2)) for _ in range(2 * requests_at_once(rollout_config))]
    push_parts(engine, other_model, 2)
    answers = [completion for completions in ray.get(later, timeout=240) for completion in completions]
    assert {answer.policy_version for answer in answers} == {2}
    push(engine, weights)


def test_weights_by_broadcast_are_those_of_the_object_store(engine, weights, other_model, other_weights) -> None:
    push(engine, other_weights)
    (expected,) = generate(engine, request())
    push(engine, weights)
    port = free_port()
    joined = engine.join_weight_channel.remote("127.0.0.1", port, 2, 60.0)
    channel = BroadcastChannel("127.0.0.1", port, 2, sends=True, timeout=60.0, device="cpu")
    assert ray.get(joined, timeout=240) == [1]
    push_parts(engine, other_model, 1, channel)
    assert generate(engine, request()) == [expected]
    push(engine, weights)


def test_requests_wait_while_an_engine_sleeps(engine) -> None:
    """On a GPU the engine also frees memory, which is tested there."""
    (before,) = generate(engine, request())
    ray.get(engine.sleep.remote(), timeout=240)
    later = engine.generate.remote(request())
    assert not ray.wait([later], timeout=1.0)[0]
    ray.get(engine.wake_up.remote(), timeout=240)
    assert ray.get(later, timeout=240) == [before]


def test_damaged_weights_are_refused_and_the_old_ones_stay(engine, other_weights) -> None:
    (before,) = generate(engine, request())
    damaged = other_weights.data.copy()
    damaged[1000] ^= 1
    with pytest.raises(ChecksumMismatch, match="version 1"):
        push(engine, PackedWeights(other_weights.manifest, damaged))
    assert generate(engine, request()) == [before]


@pytest.mark.slow
def test_damage_in_the_middle_of_a_push_ends_the_engine(
    local_ray, policy_folder: Path, rollout_config: RolloutConfig, policy_config: PolicyConfig, other_model
) -> None:
    """Its weights are a mixture of two versions, so there are no old weights that could stay."""
    engine = RolloutEngine.remote(str(policy_folder), rollout_config, policy_config, 0)
    first = next(pack_parts(other_model.named_parameters(), torch.float32, 2, limit_bytes=20_000))
    ray.get(engine.update_weights.remote(ray.put(first.data.numpy()), first.manifest), timeout=120)
    damaged = first.data.numpy().copy()
    damaged[1000] ^= 1
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(engine.update_weights.remote(ray.put(damaged), first.manifest), timeout=240)


def test_weights_without_all_tensors_are_refused_and_the_old_ones_stay(engine, model) -> None:
    (before,) = generate(engine, request())
    some = pack(list(model.named_parameters())[1:], torch.float32, version=7)
    with pytest.raises(ValueError, match=r"embed_tokens"):
        push(engine, some)
    assert generate(engine, request()) == [before]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_are_those_of_a_forward_pass_at_the_same_temperature(engine, model, temperature: float) -> None:
    completions = generate(engine, request(n=8, max_tokens=48, temperature=temperature))
    for completion in completions:
        assert difference_of_logprobs(model, completion, temperature) < 0.05


def test_after_a_push_all_of_the_engine_computes_with_the_new_weights(
    engine, model, weights, other_model, other_weights
) -> None:
    """Also the tied output layer, of which vLLM's CPU build keeps a packed copy."""
    push(engine, other_weights)
    completions = generate(engine, request(n=4, max_tokens=48, temperature=1.0))
    push(engine, weights)
    for completion in completions:
        assert difference_of_logprobs(other_model, completion, 1.0) < 0.05
        assert difference_of_logprobs(model, completion, 1.0) > 0.5


def test_samples_of_one_prompt_differ(engine) -> None:
    sampled = request(n=6, temperature=1.0, max_tokens=32)
    assert len({completion.token_ids for completion in generate(engine, sampled)}) == 6


def test_samples_with_a_seed_do_not_depend_on_what_the_engine_has_cached(engine) -> None:
    """A long prompt whose beginning other groups had, as in an engine that goes on, and in one that has just begun."""
    prompts = [tuple((7 * index + number) % 200 + 20 for index in range(150)) for number in range(8)]
    fresh = [request(prompt_ids=ids, temperature=1.0, max_tokens=48, seed=3, group=f"1/{ids[0]}") for ids in prompts]
    first = [generate(engine, one)[0] for one in fresh]
    for ids in prompts:
        generate(engine, request(prompt_ids=ids[:100], temperature=1.0, max_tokens=4, seed=4, group=f"2/{ids[0]}"))
    again = [generate(engine, replace(one, group=f"3/{one.prompt_ids[0]}"))[0] for one in fresh]
    assert [one.token_ids for one in again] == [one.token_ids for one in first]
    assert [one.logprobs for one in again] == [one.logprobs for one in first]


def test_samples_with_a_seed_do_not_depend_on_what_runs_beside_them(engine) -> None:
    seeded = [request(key=str(seed), temperature=1.0, max_tokens=32, seed=seed) for seed in range(6)]
    alone = [generate(engine, one)[0].token_ids for one in seeded]
    assert len(set(alone)) == 6
    others = [engine.generate.remote(request(temperature=1.0, max_tokens=8)) for _ in range(4)]
    together = ray.get([engine.generate.remote(one) for one in reversed(seeded)], timeout=240)
    assert [completions[0].token_ids for completions in reversed(together)] == alone
    assert len(ray.get(others, timeout=240)) == 4


def test_many_long_prompts_at_once_leave_the_engine_alive(engine) -> None:
    long = [tuple((np.arange(400) * step) % 300 + 3) for step in range(1, 17)]
    calls = [engine.generate.remote(request(prompt_ids=tuple(map(int, ids)), n=2, temperature=1.0)) for ids in long]
    assert all(len(completions) == 2 for completions in ray.get(calls, timeout=100))


def test_a_response_ends_with_its_stop_token(engine, policy_folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(policy_folder)
    (long,) = generate(engine, request())
    stop = long.token_ids[5]
    (stopped,) = generate(engine, request(stop_token_ids=(stop,)))
    assert stopped.finish_reason == "stop"
    assert stopped.token_ids == long.token_ids[: long.token_ids.index(stop) + 1]
    assert long.finish_reason == "length"
    assert long.text == tokenizer.decode(long.token_ids, skip_special_tokens=True)


def test_requests_run_together_and_each_ends_on_its_own(engine) -> None:
    long = engine.generate.remote(request(temperature=1.0, max_tokens=400, ignore_eos=True))
    short = [engine.generate.remote(request(key=str(index), max_tokens=2)) for index in range(8)]
    done, _ = ray.wait([long, *short], num_returns=8, timeout=240)
    assert set(done) == set(short)
    assert running(engine) == 1
    assert len(ray.get(long, timeout=240)) == 1
    assert running(engine) == 0


def test_a_push_waits_for_running_requests_and_later_requests_wait_for_the_push(engine, weights, other_weights) -> None:
    begun = engine.generate.remote(request(n=8, temperature=1.0, max_tokens=400, ignore_eos=True))
    wait_until(lambda: running(engine) > 0)
    pushed = engine.update_weights.remote(ray.put(other_weights.data), other_weights.manifest)
    wait_until(lambda: not is_open(engine))
    later = engine.generate.remote(request())
    assert {completion.policy_version for completion in ray.get(begun, timeout=240)} == {0}
    assert [completion.policy_version for completion in ray.get(later, timeout=240)] == [1]
    assert ray.get(pushed, timeout=240).version == 1
    push(engine, weights)


def test_a_request_that_does_not_fit_is_refused_and_the_engine_goes_on(engine) -> None:
    with pytest.raises(ValueError, match="512"):
        generate(engine, request(prompt_ids=_PROMPT * 9))
    assert len(generate(engine, request())) == 1


def test_an_engine_serves_a_pool(engine) -> None:
    pool = ActorPool("rollout", lambda _: engine, 1, max_in_flight=4, timeout=60.0)
    requests = [request(key=str(index), n=2, temperature=1.0) for index in range(6)]
    for item in requests:
        pool.submit(item, "generate")
    results = {}
    while pool.pending:
        results.update(pool.poll())
    assert all(len(results[item]) == 2 for item in requests)


def engine_processes(actor: int) -> list[psutil.Process]:
    return psutil.Process(actor).children(recursive=True)


@pytest.mark.slow
def test_the_engine_process_ends_with_its_killed_actor(second_engine) -> None:
    ray.get(second_engine.ping.remote(), timeout=600)
    actor = ray.get(second_engine.apply.remote(lambda _: os.getpid()), timeout=60)
    processes = engine_processes(actor)
    assert any("EngineCore" in process.name() or "python" in process.name() for process in processes)
    ray.kill(second_engine)
    _, alive = psutil.wait_procs(processes, timeout=15)
    assert not alive


@pytest.mark.slow
def test_a_model_that_does_not_load_gives_one_clear_line(
    local_ray, tmp_path: Path, rollout_config: RolloutConfig, policy_config: PolicyConfig
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen2"}))
    failing = RolloutEngine.remote(str(tmp_path), rollout_config, policy_config, 0)
    with pytest.raises(ray.exceptions.ActorDiedError) as error:
        ray.get(failing.ping.remote(), timeout=600)
    (line,) = [text for text in str(error.value).splitlines() if "EngineStartError" in text and str(tmp_path) in text]
    assert "safetensors" in line


def test_shared_memory_is_readable_by_path_and_gone_afterwards() -> None:
    data = np.arange(1000, dtype=np.uint8)
    with shared_file(data) as path:
        assert Path(path).read_bytes() == data.tobytes()
    assert not Path(path).exists()


def test_core_lists_are_parsed_as_vllm_writes_them() -> None:
    assert parse_cores("") == []
    assert parse_cores("0") == [0]
    assert parse_cores("0,2-4") == [0, 2, 3, 4]
    with pytest.raises(ValueError, match=r"rollout\.cpu_cores"):
        parse_cores("zero")
