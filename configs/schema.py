"""The configuration of a run: structured configs for OmegaConf, every field documented beside it.

Hyper-parameters that CUDA-L1 does not state are ours (DESIGN.md section 6) until measured otherwise. Ranges stand in
the field's metadata and are checked by `configs.load`. Imports neither torch nor ray.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING

PHASES = ("sft", "self_supervised", "contrastive_rl")
BASELINES = ("eager", "torch_compile", "torch_compile_reduce_overhead", "cuda_graph", "cudnn")


def bounded(default: Any, low: float | None = None, high: float | None = None) -> Any:
    """A number that must lie in [low, high]."""
    return field(default=default, metadata={"low": low, "high": high})


def one_of(default: str, *choices: str) -> Any:
    """A word out of `choices`."""
    return field(default=default, metadata={"choices": choices})


def words_of(default: tuple[str, ...], choices: tuple[str, ...]) -> Any:
    """A list of words out of `choices`."""
    return field(default_factory=lambda: list(default), metadata={"choices": choices})


@dataclass
class HeldOutConfig:
    """Tasks that no phase samples, teaches or shows; assessments measure them beside the others. The choice is made
    once, when a run begins."""

    share: float = bounded(0.0, 0.0, 0.9)  # of the run's tasks, drawn by `seed`, as many of each level as its share
    tasks: list[str] = field(default_factory=list)  # these, in place of a share: task ids, or patterns (`level2/*`)


@dataclass
class TasksConfig:
    # `bundled`, a folder in KernelBench's layout or a JSONL file; or several, such as `bundled,tasks.jsonl`
    source: str = "bundled"
    profile: str = one_of("cpu", "cpu", "cuda", "source")  # the bundled tasks' sizes; `source` leaves a task as it is
    levels: list[int] = field(default_factory=lambda: [1, 2, 3])
    include: list[str] = field(default_factory=list)  # task ids, or patterns (`level1/*`); empty: all of the levels
    held_out: HeldOutConfig = field(default_factory=HeldOutConfig)
    marked: str = one_of("leave_out", "leave_out", "keep")  # tasks that an audit found cannot tell cheats (guard.md)
    audit: str = ""  # marks of your own beside the shipped ones: a file of `warpsmith audit TASKS --output FILE`


@dataclass
class ScratchConfig:
    """A small Qwen2-architecture model and a BPE tokenizer, made from the tasks themselves."""

    vocab_size: int = bounded(2048, 300, 200_000)
    hidden_size: int = bounded(192, 16)
    intermediate_size: int = bounded(512, 16)
    layers: int = bounded(4, 1)
    heads: int = bounded(6, 1)
    kv_heads: int = bounded(2, 1)
    initializer_range: float = bounded(0.02, 1e-4, 1.0)  # of normal weights; a tied embedding learns faster from 0.1
    max_token_length: int = bounded(24, 1)  # bytes; merges cross blanks, so that idioms become one token


@dataclass
class PolicyConfig:
    model: str = "scratch"  # `scratch`, or a Hugging Face model id or path
    scratch: ScratchConfig = field(default_factory=ScratchConfig)
    max_length: int = bounded(1536, 64)  # tokens, prompt and response together
    dtype: str = one_of("bfloat16", "bfloat16", "float32", "float16")  # of the rollout engines' weights
    chat_template: bool = True  # wrap prompts in the tokenizer's chat template when it has one


@dataclass
class RolloutConfig:
    engines: int = bounded(1, 1)
    # Engines that stand on one GPU, where several generate faster than one if the model is small (docs/guides/gpus.md).
    # Each then has `kv_cache_gib`.
    engines_per_gpu: int = bounded(1, 1)
    max_tokens: int = bounded(384, 1)  # per response
    temperature: float = bounded(1.0, 0.0, 5.0)
    top_p: float = bounded(1.0, 0.0, 1.0)
    stop_after_code: bool = True  # a response ends behind the block that holds its program (real-model.md)
    max_concurrent: int = bounded(64, 1)  # sequences decoded at once in one engine
    kv_cache_gib: float = bounded(1.0, 0.05)  # on a CPU, or with several engines_per_gpu; else gpu_memory_utilization
    gpu_memory_utilization: float = bounded(0.85, 0.05, 0.99)
    tensor_parallel: int = bounded(1, 1)
    cpu_cores: str = ""  # OpenMP binding of a CPU engine (`0`, `0-3`); empty lets vLLM choose
    compile: bool = False  # torch.compile inside vLLM: slower to start, faster for large models
    # How new weights come: `shared` reads the learner's memory on the same GPU, `broadcast` takes NCCL (gloo without
    # GPUs), `host` goes through Ray's object store; `auto` takes the fastest that the placement allows.
    weight_transport: str = one_of("auto", "auto", "shared", "broadcast", "host")
    sync_bucket_mib: int = bounded(512, 1)  # of weights on their way to a GPU; of a larger tensor as much as it takes
    # Engines that share their GPU free its memory while others use it, and take it again before they generate. Without
    # it, gpu_memory_utilization must leave room for the others.
    sleep: bool = True
    start_timeout: float = bounded(600.0, 1.0)  # seconds for an engine to come up
    timeout: float = bounded(300.0, 1.0)  # seconds for one request; then it is retried on another engine


@dataclass
class LoraConfig:
    rank: int = bounded(0, 0)  # 0 trains all weights
    alpha: float = bounded(32.0, 0.0)
    dropout: float = bounded(0.0, 0.0, 1.0)
    # What engines get after a step: all weights, `merged`, or the `adapters` alone, which they then compute with.
    sync: str = one_of("merged", "merged", "adapters")


@dataclass
class LearnerConfig:
    ranks: int = bounded(1, 1)
    zero_stage: int = field(default=1, metadata={"choices": (0, 1, 2, 3)})
    micro_batch_tokens: int = bounded(8192, 64)  # tokens in one forward pass, padding included
    # Rows of a micro-batch are `padded` to one length, or `packed` one behind the other, where attention skips what is
    # masked (on a GPU FlashAttention, which needs `autocast`); `auto` packs on GPUs what has plain full attention.
    attention: str = one_of("auto", "auto", "padded", "packed")
    gradient_clip: float = bounded(1.0, 0.0)
    weight_decay: float = bounded(0.0, 0.0)
    adam_beta2: float = bounded(0.95, 0.0, 1.0)
    gradient_checkpointing: bool = False
    compile: bool = True  # torch compiles the layers; on GPUs, below stage 3
    autocast: bool = True  # bf16 autocast over float32 weights; never on a CPU without instructions for it
    share_prompts: bool = True  # compute a prompt once for its responses; only for models of plain full attention
    lora: LoraConfig = field(default_factory=LoraConfig)
    # Where the optimiser lies, whose step the host then computes (from stage 1 on; `nvme`: its moments are files), and
    # where weights lie while no layer needs them (stage 3; `nvme` needs libaio and a C++ compiler).
    offload_optimizer: str = one_of("none", "none", "cpu", "nvme")
    offload_parameters: str = one_of("none", "none", "cpu", "nvme")
    nvme_path: str = ""  # a folder on a fast local disk, for `nvme`
    offload_reference: bool = False  # the reference policy lies in host memory but for its own passes
    threads: int = bounded(0, 0)  # torch threads per rank, on a CPU or for an optimiser there; 0 takes all cores
    timeout: float = bounded(600.0, 1.0)  # seconds for one call to a rank; bounds every collective


@dataclass
class SftConfig:
    epochs: int = bounded(4, 1)
    batch_size: int = bounded(16, 1)
    learning_rate: float = bounded(1e-5, 0.0)
    warmup_steps: int = bounded(10, 0)  # optimiser steps over which the learning rate rises
    final_learning_rate: float = bounded(0.1, 0.0, 1.0)  # share of it that a cosine ends at with the last epoch
    teachers: list[str] = field(default_factory=lambda: ["bundled"])  # `bundled`, a JSONL file, or an http(s) endpoint
    teacher_model: str = ""  # model name asked of an OpenAI-compatible endpoint
    tries: int = bounded(20, 1)  # per teacher and task (CUDA-L1 section 2.2: 20)
    successes: int = bounded(2, 1)  # enough of them for a task (CUDA-L1: 2)
    contrastive_share: float = bounded(0.0, 0.0, 1.0)  # share of examples shown under a contrastive prompt
    min_speedup: float = bounded(0.0, 0.0)  # over reward.baseline; what is slower is not learnt from (CUDA-L1: 0)
    # A contrastive prompt shows only what is slower than the program to be learnt, so that copying what is shown is
    # never the lesson; false: whatever is drawn, as in the later phases.
    beat_exemplars: bool = False


@dataclass
class SelfSupervisedConfig:
    max_rounds: int = bounded(4, 1)
    samples: int = bounded(8, 1)  # responses per task and round
    epochs: int = bounded(1, 1)  # passes over a round's successes
    batch_size: int = bounded(16, 1)
    learning_rate: float = bounded(1e-5, 0.0)
    min_gain: float = bounded(0.01, 0.0, 1.0)  # stop when the success rate rises by less
    patience: int = bounded(1, 1)  # rounds without such a gain before it stops: a round is a noisy measurement
    contrastive_share: float = bounded(0.0, 0.0, 1.0)  # share of prompts that show exemplars
    min_speedup: float = bounded(0.0, 0.0)  # over reward.baseline; what is slower is no success (CUDA-L1: 0)


@dataclass
class ContrastiveConfig:
    steps: int = bounded(100, 1)
    # The phase ends before `steps` with the first step that is done after so many minutes of it, a resume's included;
    # 0: never. For a machine that is lent for a time.
    minutes: float = bounded(0.0, 0.0)
    tasks_per_step: int = bounded(8, 1)
    # A step's tasks: the next of shuffled rounds over all; or drawn, tasks whose groups carried a signal more often.
    draw: str = one_of("rounds", "rounds", "signal")
    group_size: int = bounded(16, 2)  # G responses to one prompt
    contrastive_share: float = bounded(1.0, 0.0, 1.0)  # share of prompts that show exemplars
    # These are slower than the task's best known program, by a step of reward.resolution, so that something faster than
    # all of them is known to exist (CUDA-L1: whatever is drawn). With reward.beat_exemplars hardly any response to a
    # prompt that shows the best is rewarded.
    hide_best: bool = False
    learning_rate: float = bounded(1e-6, 0.0)  # of all weights; adapters take more
    epochs: int = bounded(1, 1)  # optimiser passes over a step's rollouts
    minibatches: int = bounded(1, 1)  # optimiser steps a pass
    clip_low: float = bounded(0.2, 0.0, 1.0)
    clip_high: float = bounded(0.28, 0.0)  # clip-higher (DAPO)
    kl: float = bounded(0.005, 0.0)  # weight of the k3 estimate against the policy that the phase began with
    importance_cap: float = bounded(2.0, 0.0)  # truncated importance sampling, vLLM against trainer; 0 turns it off
    # The ratio of each token, or of whole responses (GSPO; clip_low and clip_high are then about 3e-4).
    ratio: str = one_of("token", "token", "sequence")
    # What the loss is a mean over: all tokens of the step, responses first (GRPO as first published), or a sum over a
    # constant (Dr. GRPO, with scale_advantages: false).
    loss_mean: str = one_of("token", "token", "response", "constant")
    # Groups without signal (all responses rewarded alike) are not learnt from; so many a step are replaced by groups of
    # other tasks (dynamic sampling, DAPO).
    refill: int = bounded(0, 0)
    # Rollouts may have been sampled by a policy so many versions older than the one that learns from them: generation,
    # evaluation and learning of so many steps more then run side by side. 0 is strictly on-policy.
    max_staleness: int = bounded(0, 0)
    # Seconds from a step's first request, after which it goes on without what is missing; 0 waits for all.
    deadline: float = bounded(0.0, 0.0)
    scale_advantages: bool = True  # divide a group's advantages by their deviation
    # What advantages below 0 are multiplied by. Pushing long failures down takes probability from what they share with
    # successes, too, and entropy rises; 0 learns from what is better than its group alone (arXiv 2506.01347).
    negative_weight: float = bounded(1.0, 0.0)
    # Tasks whose best known response, a teacher's or the policy's own, is learnt again after each step, as in SFT: what
    # is learnt of some tasks makes a small policy forget others (CUDA-L1: 0).
    rehearsal: int = bounded(0, 0)
    smoothing_clip: float = bounded(1.5, 0.0)  # clip((r - mu) / sigma, -c, c) (CUDA-L1 section 2.4.4)
    smoothing_decay: float = bounded(0.9, 0.0, 1.0)  # of the running mean and deviation


@dataclass
class BufferConfig:
    strategy: str = one_of("bucket", "bucket", "island", "random")
    exemplars: int = bounded(2, 1)  # N in CUDA-L1 section 2.4.3
    bucket_width: float = bounded(0.1, 1e-6)  # speed-up
    temperature: float = bounded(0.5, 1e-6)  # tau
    capacity: int = bounded(64, 1)  # candidates kept per task and architecture
    islands: int = bounded(4, 1)
    migration_interval: int = bounded(10, 1)  # steps between migrations of the best


@dataclass
class RewardConfig:
    baseline: str = one_of("eager", "eager", "best")  # speed-up over eager, as in the paper, or over the best baseline
    worth: str = one_of("speedup", "speedup", "gain", "beat_shown")
    max: float = bounded(100.0, 1.0)  # rewards are cut here
    # Taken off the speed-up, not below 0: with 0.9 a program as fast as the reference is worth 0.1, so that handing the
    # reference back is no longer nearly as good as writing a faster program (CUDA-L1: 0).
    offset: float = bounded(0.0, 0.0, 1.0)
    # Speed-ups are rounded to whole powers of 1 plus it before: GRPO divides a group's rewards by their deviation, so
    # without it the noise between programs of one speed weighs as much as a real difference (CUDA-L1: 0, off). Two that
    # lie on both sides of a boundary stay apart.
    resolution: float = bounded(0.0, 0.0, 1.0)
    # Share of its reward that a program keeps which its own prompt shows, the reference or an exemplar (CUDA-L1: 1).
    copies: float = bounded(1.0, 0.0, 1.0)
    # Speed-ups are over the fastest program that the prompt shows, an exemplar or the reference. Then what is shown,
    # however it is dressed up, is worth no more than 1, which `offset` takes off (CUDA-L1: over the reference alone).
    beat_exemplars: bool = False
    per_task_smoothing: bool = True  # running statistics of a task's own rewards; false: one for all


@dataclass
class LimitsConfig:
    """What one candidate may use. Each limit ends in a verdict, never in an exception."""

    build_seconds: float = bounded(180.0, 1.0)  # of one run of the compilers; there may be two
    build_memory_gib: float = bounded(6.0, 0.5)  # of one compiler
    start_seconds: float = bounded(60.0, 1.0)  # import and construction
    call_factor: float = bounded(1000.0, 1.0)  # a call may take this many times the reference (CUDA-L1 section 2.2)
    call_seconds: float = bounded(10.0, 0.1)  # and never more than this
    memory_gib: float = bounded(4.0, 0.1)  # of the host; a GPU's libraries take some of it
    gpu_memory_gib: float = bounded(32.0, 0.5)
    processes: int = bounded(64, 1)
    output_mib: float = bounded(64.0, 1.0)  # the largest file it may write


@dataclass
class EvaluatorConfig:
    # `cpu`, a GPU by Ray's accelerator name (`H200`, `A100`), or `auto`: the kind of GPU in the machine that starts the
    # run, and `cpu` where it has none.
    arch: str = "cpu"
    capability: str = ""  # compute capability to build for, such as `9.0`; empty takes what is known of `arch`
    preset: str = one_of("fast", "fast", "thorough", "paper")
    workers: int = bounded(1, 1)  # evaluators per architecture; one slot each
    builders: int = bounded(1, 1)
    max_backlog: int = bounded(1024, 1)  # candidates to be built or judged, beyond which no other group is sampled
    threads: int = bounded(1, 1)  # torch threads of a runner on a CPU
    baselines: list[str] = words_of(("eager",), BASELINES)
    require_shapes: bool = False  # a candidate that fails at other shapes than the task's is wrong, not only noted
    store: str = ""  # folder of baselines and build artifacts shared by runs; empty puts it in the run directory
    # Run directories, or what `warpsmith report RUN --publish FOLDER` wrote: where a program was right or wrong there,
    # on the same task, sizes, GPU and versions, its verdict is taken over, and says so (evaluating.md).
    verdicts_of: list[str] = field(default_factory=list)
    # URI of a folder on any file system that pyarrow knows (`s3://...`) that nodes share compiled extensions by; empty
    # where `store` itself is shared.
    build_cache: str = ""
    build_cache_gib: float = bounded(20.0, 0.1)  # of extensions in `store`; the least recently used go first
    limits: LimitsConfig = field(default_factory=LimitsConfig)


@dataclass
class GuardConfig:
    """What becomes of a verdict before it is rewarded (docs/guides/guard.md)."""

    # false believes every program: its own clock decides, and findings are only noted. For ablations alone.
    enabled: bool = True
    # Who is asked about rewards that jump and about what is suspect: `` for the nearest known hacks alone, `policy` for
    # an engine of the run itself, or an OpenAI-compatible endpoint (the key comes from OPENAI_API_KEY).
    checker: str = ""
    checker_model: str = ""  # model name asked of an endpoint
    checker_timeout: float = bounded(120.0, 1.0)  # seconds for an answer; then the nearest known hacks decide
    jump: float = bounded(3.0, 1.0)  # a reward above this is looked at again (CUDA-L1 section 3.3),
    jump_over_best: float = bounded(2.0, 1.0)  # and one above so many times the task's best
    near: float = bounded(0.5, 0.0, 1.0)  # from this likeness on, a program is taken for a known hack


@dataclass
class PlacementConfig:
    """Where roles stand on GPUs (docs/guides/gpus.md)."""

    # Which roles share GPUs, one after the other: `none`, all have GPUs of their own; `training`, engines and learner;
    # `all`, evaluators too, which then time nothing while anything is generated or trained.
    share: str = one_of("none", "none", "training", "all")
    # Engines and learner are clients of NVIDIA's multi-process service, which the run starts on its host: engines that
    # share a GPU compute at the same time, instead of in slices of time.
    mps: bool = False


@dataclass
class AssessmentConfig:
    """How the policy is measured at the start and after each phase: on fresh samples."""

    samples: int = bounded(4, 1)  # responses per task
    preset: str = one_of("fast", "fast", "thorough")
    temperature: float = bounded(1.0, 0.0, 5.0)


@dataclass
class ScheduleConfig:
    phases: list[str] = words_of(PHASES, PHASES)
    cycles: int = bounded(1, 1)


@dataclass
class TrackingConfig:
    enabled: bool = True
    uri: str = ""  # MLflow's tracking URI; empty uses MLFLOW_TRACKING_URI, or SQLite in `root`
    experiment: str = "warpsmith"
    system_metrics: bool = True


@dataclass
class RayConfig:
    address: str = ""  # empty joins the cluster that RAY_ADDRESS names, or starts a local one
    num_cpus: int = bounded(0, 0)  # of a local Ray; 0 takes what the machine has, 8 at least
    object_store_mib: int = bounded(256, 80)  # of a local Ray
    dashboard: bool = False


@dataclass
class RunConfig:
    name: str = MISSING
    seed: int = bounded(0, 0)
    root: str = "runs"  # any pyarrow file system: a path, s3://..., gs://...
    checkpoint_every: int = bounded(5, 1)  # contrastive steps; phases end with one
    keep_checkpoints: int = bounded(2, 1)
    tasks: TasksConfig = field(default_factory=TasksConfig)
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    sft: SftConfig = field(default_factory=SftConfig)
    self_supervised: SelfSupervisedConfig = field(default_factory=SelfSupervisedConfig)
    contrastive_rl: ContrastiveConfig = field(default_factory=ContrastiveConfig)
    placement: PlacementConfig = field(default_factory=PlacementConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    evaluator: EvaluatorConfig = field(default_factory=EvaluatorConfig)
    buffer: BufferConfig = field(default_factory=BufferConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    guard: GuardConfig = field(default_factory=GuardConfig)
    assessment: AssessmentConfig = field(default_factory=AssessmentConfig)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)
    ray: RayConfig = field(default_factory=RayConfig)
