"""Rollout engines: vLLM in a Ray actor, where many requests run at once and each finishes on its own.

A completion carries the policy version that sampled it, all of it: weights are never swapped under a running request.
They come in parts, through Ray's object store, the memory of a shared GPU, or a broadcast (see `weight_transport`).
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import ray
from safetensors import SafetensorError

from actors.code_stop import CodeStop, Sampled
from actors.engine_gate import EngineGate
from actors.engine_options import (
    adapter_folder,
    engine_arguments,
    on_cores,
    prepare_environment,
    shared_file,
    tensor_names,
)
from actors.generation import Completion, GenerationRequest
from actors.weight_transport import ByBroadcast, DeviceMemory
from configs.schema import PolicyConfig, RolloutConfig
from learners.weights import ChecksumMismatch, WeightManifest, verify

_log = logging.getLogger(__name__)
_GRACE = 1.5  # of `rollout.timeout`: the pool's own limit ends a request first, and retries it


class EngineStartError(RuntimeError):
    """A rollout engine did not come up. One line: the model and the reason."""


@dataclass(frozen=True)
class WeightReceipt:
    """What an engine loaded, by its own account, and the seconds from call to ready."""

    version: int
    checksum: str
    seconds: float


@ray.remote
class RolloutEngine:
    """One vLLM engine and the process it runs in, which ends with this actor."""

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
        """Loads the policy from `model_path` as `version`; `sleeps` where `sleep` will be called, `adapter_rank` where
        it will be given adapters. Raises EngineStartError."""
        self._version = version
        self._timeout = rollout.timeout
        self._max_length = policy.max_length
        self._names = _checked(model_path)
        self._tokens = 0
        self._sequence = 0
        started = time.monotonic()
        on_cpu = prepare_environment(rollout)
        arguments = engine_arguments(
            model_path, rollout, policy, seed, on_cpu=on_cpu, sleeps=sleeps, adapter_rank=adapter_rank
        )
        self._engine = _start(model_path, arguments, rollout.cpu_cores if on_cpu else "")
        self._start_seconds = time.monotonic() - started
        self._tokenizer = self._engine.get_tokenizer()
        self._code_stop = CodeStop(self._tokenizer, policy.max_length)
        self._swap = asyncio.Lock()
        self._gate = EngineGate()
        self._missing = frozenset[str]()  # tensors that further parts of a push have to bring
        self._expiry: asyncio.TimerHandle | None = None
        self._asleep = False
        self._adapter: Any = None  # vLLM's LoRARequest for what was pushed last

    def ping(self) -> str:
        """Whether the actor is up."""
        return "pong"

    async def apply(self, func: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        """Calls `func(self, ...)`, and awaits what it gives where that needs awaiting (RLlib's actor managers)."""
        result = func(self, *arguments, **keywords)
        return await result if inspect.isawaitable(result) else result

    async def generate(self, request: GenerationRequest) -> list[Completion]:
        """The `n` responses, all under one policy version.

        A response ends with `length` where `policy.max_length` ends it. Raises TimeoutError after 1.5 times
        `rollout.timeout`, ValueError for a prompt that leaves no room. An engine that died takes the actor with it.
        """
        async with asyncio.timeout(self._timeout * _GRACE), self._gate.turn():
            version = self._version
            if request.stop_after_code:
                responses = await self._code_stop.responses(request, self._sample)
            else:
                responses = await self._sample(request)
        completions = [self._completion(response, version) for response in responses]
        if _is_greedy(request):
            completions *= request.n
        self._tokens += sum(len(completion.token_ids) for completion in completions)
        return completions

    async def update_weights(
        self, data: np.ndarray | DeviceMemory | ByBroadcast, manifest: WeightManifest
    ) -> WeightReceipt:
        """Takes in a part of new weights. The first waits until running requests have finished; those that come later
        wait until the last is loaded, and end with this actor where the next part does not come in `rollout.timeout`.

        data: uint8 [manifest.total_bytes], straight from the object store, or where the part lies. Raises
        ChecksumMismatch, ValueError (other tensors than the checkpoint's) or TimeoutError (requests did not end within
        `rollout.timeout`); the old weights stay in all three cases. What fails once a part was loaded ends the actor,
        since nothing can be said of its weights.
        """
        started = time.monotonic()
        first = manifest.part == 0
        if self._asleep:
            raise RuntimeError(f"weights of policy version {manifest.version}: the engine sleeps; wake it up first")
        missing = self._still_missing(manifest)
        async with asyncio.timeout(self._timeout * _GRACE), self._swap:
            half_loaded = self._expiry is not None
            if self._expiry is not None:
                self._expiry.cancel()
                self._expiry = None
            if first:
                await self._shut(f"weights of policy version {manifest.version}")
            try:
                checksum = await self._load(data, manifest)
            except ChecksumMismatch as mismatch:
                if half_loaded:
                    self._end(str(mismatch))
                self._gate.open()
                raise
            self._missing = missing
            if manifest.last:
                await self._forget_old_weights()
                self._version = manifest.version
                self._gate.open()
            else:
                self._expiry = asyncio.get_running_loop().call_later(
                    self._timeout, self._expire, f"part {manifest.part + 1} of version {manifest.version} did not come"
                )
        return WeightReceipt(manifest.version, checksum, time.monotonic() - started)

    async def join_weight_channel(self, address: str, port: int, size: int, timeout: float) -> list[int]:
        """Lets the workers meet the learner, for parts that come `ByBroadcast`; returns their ranks there."""
        return await self._call_workers("join_weight_channel", address, port, size, timeout)

    async def sleep(self) -> None:
        """Frees the GPU's memory but for what processes themselves take: weights go to the host, the cache is dropped.
        Requests that come wait until `wake_up`. Raises TimeoutError where running ones did not end."""
        async with self._swap:
            if self._gate.is_open:
                await self._shut("a sleep")
                await self._engine.sleep(level=1)
                self._asleep = True

    async def wake_up(self) -> None:
        """Takes the memory again, and lets requests in."""
        async with self._swap:
            if self._asleep:
                await self._engine.wake_up()
                self._asleep = False
                self._gate.open()

    def statistics(self) -> dict[str, float]:
        """Tokens generated, seconds with at least one request running, requests running, whether weights are
        being swapped, the version, seconds to start."""
        return {
            "tokens": float(self._tokens),
            "busy_seconds": self._gate.busy_seconds,
            "running": float(self._gate.running),
            "swapping": float(not self._gate.is_open),
            "policy_version": float(self._version),
            "start_seconds": self._start_seconds,
        }

    async def shutdown(self) -> None:
        """Ends the engine's processes. Nothing may be called afterwards."""
        await asyncio.to_thread(self._engine.shutdown)

    async def _sample(self, request: GenerationRequest) -> list[Sampled]:
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
            max_tokens=(most := min(request.max_tokens, room)),
            temperature=request.temperature,
            top_p=request.top_p,
            seed=request.seed,
            stop_token_ids=list(request.stop_token_ids),
            ignore_eos=request.ignore_eos,
            min_tokens=min(request.min_tokens, most),
            logprobs=0,  # of the sampled token alone
            flat_logprobs=True,
            detokenize=False,  # once at the end instead of token by token: a tenth of the time
            output_kind=RequestOutputKind.FINAL_ONLY,
            structured_outputs=StructuredOutputsParams(json=request.schema) if request.schema else None,
        )
        self._sequence += 1
        name = f"{request.key}-{self._sequence}"
        prompt = {"prompt_token_ids": list(request.prompt_ids)}
        try:
            outputs = [
                output
                async for output in self._engine.generate(
                    prompt, parameters, request_id=name, lora_request=self._adapter
                )
            ]
        except EngineDeadError as error:
            return self._end(f"engine died while request {request.key} ran: {error}")
        if not outputs:
            raise RuntimeError(f"request {request.key}: vLLM gave no output; it was aborted, send it again")
        return [_sampled(choice) for choice in outputs[-1].outputs]

    def _completion(self, sampled: Sampled, version: int) -> Completion:
        text = self._tokenizer.decode(sampled.token_ids, skip_special_tokens=True)
        return Completion(text, sampled.token_ids, sampled.logprobs, sampled.finish_reason, version)

    def _still_missing(self, manifest: WeightManifest) -> frozenset[str]:
        """The tensors that are missing once a part is loaded. Raises ValueError where it, or all parts, are not the
        checkpoint's."""
        if manifest.adapter:
            return frozenset()
        awaited = self._names if manifest.part == 0 else self._missing
        names = frozenset(entry.name for entry in manifest.tensors)
        left = awaited - names
        wrong = names - awaited - {"lm_head.weight"} | (left if manifest.last else frozenset())
        if not self._names or not wrong:
            return left
        reason = (
            f"weights of policy version {manifest.version} do not fit the engine's checkpoint: {sorted(wrong)[:4]} "
            f"are on one side only ({len(wrong)} in all); pack exactly the tensors that the checkpoint holds"
        )
        if manifest.part > 0:
            self._end(reason)
        raise ValueError(reason)

    async def _shut(self, what: str) -> None:
        try:
            await self._gate.shut(self._timeout)
        except TimeoutError:
            raise TimeoutError(
                f"{what}: {self._gate.running} requests still ran after {self._timeout:.0f} s; "
                f"version {self._version} stays, push again or raise rollout.timeout"
            ) from None

    async def _load(self, data: np.ndarray | DeviceMemory | ByBroadcast, manifest: WeightManifest) -> str:
        if manifest.adapter:
            assert isinstance(data, np.ndarray)
            return await self._load_adapter(data, manifest)
        about = manifest.to_json()
        if isinstance(data, DeviceMemory):
            replies = await self._call_workers("receive_shared_weights", dict(data.handles), about)
        elif isinstance(data, ByBroadcast):
            replies = await self._call_workers("receive_broadcast_weights", about)
        else:
            with shared_file(data) as path:
                replies = await self._call_workers("receive_weights", path, about)
        for loaded, reply in replies:
            if not loaded:  # every worker refuses alike, before it touches a weight
                raise ChecksumMismatch(manifest.version, manifest.checksum, reply)
        return str(replies[0][1])

    async def _load_adapter(self, data: np.ndarray, manifest: WeightManifest) -> str:
        """Puts an adapter in the place of the one before, of which nothing is left then: a failure ends the actor."""
        from vllm.lora.request import LoRARequest

        verify(manifest, data)
        number = self._adapter.lora_int_id + 1 if self._adapter else 1  # a new one: its cached prompts are its own
        try:
            with adapter_folder(manifest, data) as folder:
                request = LoRARequest(f"version-{manifest.version}", number, folder)
                if self._adapter is not None:
                    await self._engine.remove_lora(self._adapter.lora_int_id)
                if not await self._engine.add_lora(request):
                    raise RuntimeError("vLLM did not take it")
        except Exception as error:  # noqa: BLE001 - whatever it was, the engine has no adapter now
            self._end(f"loading the adapter of policy version {manifest.version} failed: {error}")
        self._adapter = request
        return manifest.checksum

    async def _forget_old_weights(self) -> None:
        if not await self._engine.reset_prefix_cache():
            self._end("the prefix cache could not be emptied after a change of weights")

    async def _call_workers(self, method: str, *arguments: Any) -> list[Any]:
        try:
            return await self._engine.collective_rpc(method, timeout=self._timeout, args=arguments)
        except Exception as error:  # noqa: BLE001 - whatever it was, the weights may be half loaded
            return self._end(f"{method} failed: {error}")

    def _expire(self, reason: str) -> None:
        """Ends the actor from outside of any call, where Ray's own way out does not work."""
        _log.error("rollout engine ends: %s", reason)
        self._engine.shutdown()
        os._exit(1)

    def _end(self, reason: str) -> Any:
        """Ends the actor: its pool starts another."""
        _log.error("rollout engine ends: %s", reason)
        self._engine.shutdown()
        ray.actor.exit_actor()


def _is_greedy(request: GenerationRequest) -> bool:
    return request.temperature == 0.0


def _sampled(choice: Any) -> Sampled:
    """One of vLLM's outputs."""
    ids, logprobs = tuple(choice.token_ids), tuple(choice.logprobs.logprobs)
    if len(logprobs) != len(ids):
        raise RuntimeError(f"vLLM gave {len(logprobs)} log-probabilities for {len(ids)} tokens; use vLLM 0.26-0.33")
    return Sampled(ids, logprobs, choice.finish_reason or "stop", choice.stop_reason)


def _checked(model_path: str) -> frozenset[str]:
    """The checkpoint's tensors: what vLLM would say of a folder without any is in another process's log."""
    try:
        return tensor_names(model_path)
    except (OSError, ValueError, SafetensorError) as error:
        raise EngineStartError(f"rollout engine could not start with {model_path}: {error}") from error


def _start(model_path: str, arguments: dict[str, Any], cores: str) -> Any:
    """The engine, on these cores, or one line that says why there is none."""
    try:
        from vllm import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        with on_cores(cores):
            return AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments))
    except Exception as error:
        reason = " ".join(str(error).split())[:500] or type(error).__name__
        raise EngineStartError(
            f"rollout engine could not start with {model_path}: {reason} (the engine's own log has the details)"
        ) from error
