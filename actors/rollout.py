"""Rollout engines: vLLM in a Ray actor, where many requests run at once and each ends on its own.

A completion carries the policy version that sampled all of it: weights are never swapped under a running request. They
come in parts, through Ray's object store, the memory of a shared GPU, or a broadcast (see `weight_transport`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import ray

from actors.code_stop import CodeStop, Sampled
from actors.engine_calls import CONCURRENCY_GROUPS, CONTROL, EngineCalls
from actors.engine_gate import EngineGate, within
from actors.engine_options import engine_arguments, prepare_environment
from actors.engine_process import check_model, end_actor, start_engine
from actors.engine_weights import GRACE, EngineWeights, WeightReceipt
from actors.generation import Completion, GenerationRequest
from actors.log_fields import name_role
from actors.weight_transport import ByBroadcast, DeviceMemory
from configs.schema import PolicyConfig, RolloutConfig
from learners.policy_files import fetch_policy
from learners.weights import WeightManifest


@ray.remote(concurrency_groups=CONCURRENCY_GROUPS)  # type: ignore[call-overload]  # Ray 2.60 does not declare it
class RolloutEngine(EngineCalls):
    """One vLLM engine and the process it runs in, which ends with this actor.

    Start it with `max_concurrency=requests_at_once(rollout)`.
    """

    def __init__(
        self,
        model_path: str,
        rollout: RolloutConfig,
        policy: PolicyConfig,
        seed: int,
        version: int = 0,
        sleeps: bool = False,
        adapter_rank: int = 0,
    ) -> None:
        """Loads the policy from `model_path`, which may be a URI, as `version`. Raises EngineStartError.

        `sleeps`: whether `sleep` will be called. `adapter_rank`: of the adapters that will be pushed, 0 for none.
        """
        super().__init__()
        name_role("engine")
        self._timeout = rollout.timeout
        self._max_length = policy.max_length
        model_path = fetch_policy(model_path)
        names = check_model(model_path)
        on_cpu = prepare_environment(rollout)
        self._heeds_seeds = on_cpu  # on a GPU, vLLM samples such requests one by one
        arguments = engine_arguments(
            model_path, rollout, policy, seed, on_cpu=on_cpu, sleeps=sleeps, adapter_rank=adapter_rank
        )
        self._engine = start_engine(model_path, arguments, rollout.cpu_cores if on_cpu else "")
        self._tokenizer = self._engine.get_tokenizer()
        self._code_stop = CodeStop(self._tokenizer, policy.max_length)
        self._gate = EngineGate()
        self._weights = EngineWeights(self._engine, self._gate, names, version, rollout.timeout, seed)
        self._requests = 0

    async def generate(self, request: GenerationRequest) -> list[Completion]:
        """The `n` responses, all under one policy version.

        A response that reaches `policy.max_length` ends with `length`. Raises TimeoutError after 1.5 times
        `rollout.timeout`, and ValueError for a prompt that leaves no room. An engine that died takes the actor with it.
        """
        async with within(self._timeout * GRACE, f"request {request.key}", self._gate), self._gate.turn():
            version = self._weights.version
            if request.stop_after_code:
                responses = await self._code_stop.responses(request, self._sample)
            else:
                responses = await self._sample(request)
        completions = [self._completion(response, version) for response in responses]
        return completions * request.n if _is_greedy(request) else completions

    @ray.method(concurrency_group=CONTROL)
    async def update_weights(
        self, data: np.ndarray | DeviceMemory | ByBroadcast, manifest: WeightManifest
    ) -> WeightReceipt:
        """Loads a part of new weights.

        The first part waits until running requests have ended. Requests that come later wait until the last part is
        loaded; if the next part does not come within `rollout.timeout`, they end with this actor.

        data: uint8 [manifest.total_bytes], straight from the object store, or the place of the part. Raises
        ChecksumMismatch, ValueError (other tensors than the checkpoint's) or TimeoutError (requests did not end within
        `rollout.timeout`); the old weights stay in all three cases. A failure after a part was loaded ends the actor,
        since its weights are then a mixture.
        """
        return await self.in_engine_loop(self._weights.update(data, manifest))

    @ray.method(concurrency_group=CONTROL)
    async def join_weight_channel(self, address: str, port: int, size: int, timeout: float) -> list[int]:
        """Lets the workers meet the learner, for parts that come `ByBroadcast`; returns their ranks there."""
        join = self._weights.call_workers("join_weight_channel", address, port, size, timeout)
        return await self.in_engine_loop(join)

    @ray.method(concurrency_group=CONTROL)
    async def sleep(self) -> None:
        """Frees the GPU's memory, except for that of the processes themselves: weights move to the host, the cache is
        dropped. Requests wait until `wake_up`. Raises TimeoutError if running requests did not end."""
        await self.in_engine_loop(self._weights.sleep())

    @ray.method(concurrency_group=CONTROL)
    async def wake_up(self) -> None:
        """Takes the memory again, and lets requests in."""
        await self.in_engine_loop(self._weights.wake_up())

    async def _sample(self, request: GenerationRequest) -> list[Sampled]:
        """vLLM's responses to a request, one if it is greedy. Raises ValueError for a prompt that leaves no room."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams
        from vllm.v1.engine.exceptions import EngineDeadError

        room = self._max_length - len(request.prompt_ids)
        if room < 1 or not request.prompt_ids:
            raise ValueError(
                f"request {request.key}: the prompt has {len(request.prompt_ids)} tokens, which must be 1 to "
                f"{self._max_length - 1}; shorten it or raise policy.max_length (now {self._max_length})"
            )
        parameters = SamplingParams(
            n=1 if _is_greedy(request) else request.n,  # vLLM refuses to compute the same response twice
            max_tokens=min(request.max_tokens, room),
            temperature=request.temperature,
            stop_token_ids=list(request.stop_token_ids),
            ignore_eos=request.ignore_eos,
            logprobs=0,  # of the sampled token alone
            flat_logprobs=True,
            detokenize=False,  # once at the end instead of token by token: a tenth of the time
            output_kind=RequestOutputKind.FINAL_ONLY,
            seed=request.seed if self._heeds_seeds else None,
            structured_outputs=StructuredOutputsParams(json=request.schema) if request.schema else None,
        )
        self._requests += 1
        name = f"{request.key}-{self._requests}"
        prompt: dict[str, Any] = {"prompt_token_ids": list(request.prompt_ids)}
        if self._heeds_seeds and request.seed is not None:
            # A prompt whose beginning is cached differs in the last bits from one that is computed whole. What an
            # engine has cached of other groups depends on its past, and a restarted one has none.
            prompt["cache_salt"] = request.group or request.key
        try:
            outputs = [
                output
                async for output in self._engine.generate(
                    prompt, parameters, request_id=name, lora_request=self._weights.adapter
                )
            ]
        except EngineDeadError as error:
            end_actor(self._engine, f"engine died while request {request.key} ran: {error}")
        if not outputs:
            raise RuntimeError(f"request {request.key}: vLLM gave no output; it was aborted, send it again")
        return [_to_sampled(output) for output in outputs[-1].outputs]

    def _completion(self, sampled: Sampled, version: int) -> Completion:
        text = self._tokenizer.decode(sampled.token_ids, skip_special_tokens=True)
        return Completion(text, sampled.token_ids, sampled.logprobs, sampled.finish_reason, version)


def _is_greedy(request: GenerationRequest) -> bool:
    return request.temperature == 0.0


def _to_sampled(output: Any) -> Sampled:
    """One of vLLM's outputs."""
    ids, logprobs = tuple(output.token_ids), tuple(output.logprobs.logprobs)
    if len(logprobs) != len(ids):
        raise RuntimeError(f"vLLM gave {len(logprobs)} log-probabilities for {len(ids)} tokens; use vLLM 0.26-0.33")
    return Sampled(ids, logprobs, output.finish_reason or "stop", output.stop_reason)
