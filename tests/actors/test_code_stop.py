"""Responses that end behind their program.

The policy of these tests has learnt one answer by heart: it quotes a program, gives its own, and goes on.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import ray
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast, Qwen2ForCausalLM

from actors.code_stop import fence_tokens
from actors.generation import Completion, GenerationRequest
from learners.policy import train_tokenizer
from prompts.parse import parse_response
from tests.packing import PackedWeights, pack

QUOTED = "## Performance Analysis\n```python\nclass ModelNew:\n    x = 2\n```\nSlow.\n"
PROGRAM = QUOTED + "## Code Implementation\n```python\nclass ModelNew:\n    x = 1\n```"
WHOLE = PROGRAM + "\nFast.\n```\nx\n```\n"
CODE = "class ModelNew:\n    x = 1"
_PLAIN, _SPELLED = tuple(range(10, 42)), tuple(range(60, 92))  # prompts


@pytest.fixture(scope="module")
def tokenizer(policy_folder: Path) -> Any:
    return AutoTokenizer.from_pretrained(policy_folder)


@pytest.fixture(scope="module")
def learnt(tokenizer) -> dict[tuple[int, ...], list[int]]:
    """The answers by prompt. All have the same text; in the second, every fence is three tokens."""
    plain = tokenizer.encode(WHOLE)
    one, three = (tokenizer.convert_tokens_to_ids(mark) for mark in ("`", "```"))
    assert plain.count(three) == 6
    spelled = [part for index in plain for part in ([one] * 3 if index == three else [index])]
    answers = {_PLAIN: plain, _SPELLED: spelled, reasoning(tokenizer): plain}
    return {prompt: [*ids, tokenizer.eos_token_id] for prompt, ids in answers.items()}


def reasoning(tokenizer) -> tuple[int, ...]:
    """A prompt that opens the reasoning, as some chat templates do."""
    tag = tokenizer.encode("<think>\n")
    return (*range(100, 132 - len(tag)), *tag)


@pytest.fixture(scope="module")
def model(policy_folder: Path, learnt) -> torch.nn.Module:
    """A policy of the engine's shape. One thread trains it faster than two that another process interrupts."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    shape = AutoModelForCausalLM.from_pretrained(policy_folder, dtype=torch.float32).config
    shape.initializer_range = 0.05
    torch.manual_seed(0)
    policy = Qwen2ForCausalLM(shape).float()
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-2, weight_decay=0.0)
    length = max(map(len, learnt.values()))
    ids = torch.tensor([[*prompt, *answer, *[0] * (length - len(answer))] for prompt, answer in learnt.items()])
    labels = torch.tensor([[-100] * 32 + answer + [-100] * (length - len(answer)) for answer in learnt.values()])
    for _ in range(400):
        loss = policy(ids, labels=labels).loss
        if loss < 2e-3:
            break
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
    torch.set_num_threads(threads)
    return policy.eval()


@pytest.fixture(scope="module")
def untrained(policy_folder: Path) -> PackedWeights:
    policy = AutoModelForCausalLM.from_pretrained(policy_folder, dtype=torch.float32)
    return pack(policy.named_parameters(), torch.float32, version=0)


@pytest.fixture
def taught(engine, model, untrained) -> Iterator[Any]:
    """The engine with this policy as version 1."""
    push(engine, pack(model.named_parameters(), torch.float32, version=1))
    yield engine
    push(engine, untrained)


def push(engine, packed: PackedWeights) -> None:
    ray.get(engine.update_weights.remote(ray.put(packed.data), packed.manifest), timeout=240)


def request(**changes) -> GenerationRequest:
    return replace(GenerationRequest("group", _PLAIN, 1, 400, 0.0, stop_after_code=True), **changes)


def generate(engine, wanted: GenerationRequest) -> list[Completion]:
    return ray.get(engine.generate.remote(wanted), timeout=240)


@pytest.mark.parametrize("stop_after_code", [True, False])
def test_several_responses_to_a_request_with_a_seed_differ_and_come_again(engine, stop_after_code: bool) -> None:
    wanted = request(n=4, temperature=1.0, max_tokens=32, seed=7, stop_after_code=stop_after_code)
    first = [completion.token_ids for completion in generate(engine, wanted)]
    assert len(set(first)) == 4
    assert [completion.token_ids for completion in generate(engine, wanted)] == first


@pytest.mark.parametrize("prompt", [_PLAIN, _SPELLED])
def test_a_response_ends_behind_its_program_and_not_behind_a_quoted_one(taught, learnt, tokenizer, prompt) -> None:
    """Also if a fence is written with tokens at which vLLM does not stop."""
    (whole,) = generate(taught, request(prompt_ids=prompt, stop_after_code=False))
    assert (whole.text, list(whole.token_ids)) == (WHOLE, learnt[prompt])
    (stopped,) = generate(taught, request(prompt_ids=prompt))
    assert stopped.text == PROGRAM
    assert parse_response(stopped.text).code == CODE
    assert stopped.finish_reason == "stop"
    assert stopped.policy_version == 1
    kept = len(stopped.token_ids)
    assert stopped.token_ids == whole.token_ids[:kept]
    assert stopped.logprobs == pytest.approx(whole.logprobs[:kept], abs=1e-3)
    assert tokenizer.decode(stopped.token_ids[:-1]) == PROGRAM[: -3 if prompt == _PLAIN else -1]


def test_a_program_within_the_reasoning_does_not_end_the_response(taught, tokenizer) -> None:
    (completion,) = generate(taught, request(prompt_ids=reasoning(tokenizer)))
    assert completion.text == WHOLE


def test_a_program_may_end_at_the_token_limit(taught) -> None:
    (stopped,) = generate(taught, request())
    exact = len(stopped.token_ids)
    assert generate(taught, request(max_tokens=exact)) == [stopped]
    (short,) = generate(taught, request(max_tokens=exact - 1))
    assert (short.finish_reason, short.token_ids) == ("length", stopped.token_ids[:-1])


def test_the_token_limit_holds_for_the_whole_response(taught, learnt) -> None:
    """Also if it falls on a fence that does not end the response, or beside one."""
    limits = [2, 40, *(place + more for place in fences(learnt[_PLAIN])[:3] for more in (0, 1, 2))]
    calls = [taught.generate.remote(request(key=str(limit), max_tokens=limit)) for limit in limits]
    for limit, (completion,) in zip(limits, ray.get(calls, timeout=240), strict=True):
        assert completion.finish_reason == "length"
        assert list(completion.token_ids) == learnt[_PLAIN][:limit]
        assert len(completion.logprobs) == limit


def fences(ids: list[int]) -> list[int]:
    """The places of the fence, which is the token that occurs six times."""
    fence = next(index for index in set(ids) if ids.count(index) == 6 and ids[-3] == index)
    return [place for place, index in enumerate(ids) if index == fence]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_are_those_of_a_forward_pass_across_every_stop(taught, model, temperature: float) -> None:
    completions = generate(taught, request(n=6, temperature=temperature))
    assert len(completions) == 6
    assert sum(completion.text == PROGRAM for completion in completions) >= 3
    for completion in completions:
        ids = torch.tensor([_PLAIN + completion.token_ids])
        with torch.no_grad():
            logits = model(ids).logits[0, len(_PLAIN) - 1 : -1]
        sampled = (logits / temperature).log_softmax(-1).gather(-1, torch.tensor(completion.token_ids)[:, None])[:, 0]
        assert sampled.tolist() == pytest.approx(completion.logprobs, abs=0.05)


def test_greedy_responses_are_all_the_same(taught) -> None:
    assert [completion.text for completion in generate(taught, request(n=3))] == [PROGRAM] * 3


def test_an_ignored_end_token_is_ignored_with_the_flag_and_without_it(taught, learnt) -> None:
    ids = learnt[_PLAIN]
    (longer,) = generate(taught, request(stop_after_code=False, ignore_eos=True, max_tokens=len(ids) + 5))
    assert (longer.finish_reason, len(longer.token_ids)) == ("length", len(ids) + 5)
    (stopped,) = generate(taught, request(ignore_eos=True))
    assert stopped.text == PROGRAM


def test_stop_tokens_of_the_request_end_the_response(taught, learnt) -> None:
    fence = learnt[_PLAIN][fences(learnt[_PLAIN])[0]]
    (completion,) = generate(taught, request(stop_token_ids=(fence,)))
    assert completion.text == "## Performance Analysis\n```"
    assert completion.finish_reason == "stop"


def test_a_push_waits_until_the_programs_of_running_requests_are_complete(taught, untrained) -> None:
    """A response that goes on behind a fence is one response, so it has one policy version."""
    running = [taught.generate.remote(request(key=str(index))) for index in range(8)]
    while not ray.get(taught.apply.remote(lambda actor: actor._gate.running), timeout=60):
        pass
    receipt = taught.update_weights.remote(ray.put(untrained.data), replace(untrained.manifest, version=2))
    answers = [completion for (completion,) in ray.get(running, timeout=240)]
    assert {(answer.text, answer.policy_version) for answer in answers} == {(PROGRAM, 1)}
    assert ray.get(receipt, timeout=240).version == 2


def test_an_untrained_policy_samples_the_same_with_the_flag(engine) -> None:
    """It sometimes writes fences, but no program."""
    assert generate(engine, request(max_tokens=64)) == generate(engine, request(max_tokens=64, stop_after_code=False))
    completions = generate(engine, request(n=4, temperature=1.5, max_tokens=200))
    assert all(len(answer.token_ids) == len(answer.logprobs) <= 200 for answer in completions)
    assert all(answer.finish_reason == "length" or len(answer.token_ids) < 200 for answer in completions)


def test_fences_are_found_in_vocabularies_of_all_kinds() -> None:
    texts = ["x = `y`\n```python\npass\n```\nSo.\n\n```\n", "    ```\n~~~\n"] * 30
    lines = train_tokenizer(texts, 300, 24, 64)  # merges cross blanks and line ends
    marks = {lines.decode([index]) for index in fence_tokens(lines)}
    assert "```\n" in marks
    assert not any("python" in mark for mark in marks)
    letters = Tokenizer(models.BPE())
    letters.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    letters.train_from_iterator([], trainers.BpeTrainer(initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    letters.decoder = decoders.ByteLevel()
    single = PreTrainedTokenizerFast(tokenizer_object=letters)
    assert {single.convert_ids_to_tokens(index) for index in fence_tokens(single)} == {"`", "~"}
