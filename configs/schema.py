"""The configuration of a run: structured configs for OmegaConf. Here, in `configs.schema_tasks`,
`configs.schema_phases`, `configs.schema_archs` and `configs.schema_cluster` is every key.

The comment beside or above a key is its documentation; `python -m configs.reference` makes docs/reference/config.md of
it. The choices and the range of a key stand in its field's metadata, which `configs.checks` holds values to. "CUDA-L1
section N" in a comment says where the paper (arXiv 2507.14111, numbered as in docs/paper-map.md) has the setting. A
value without such a reference is our own choice. Imports neither torch nor ray.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from omegaconf import MISSING

from configs.fields import bounded, one_of, words_of
from configs.schema_archs import ArchConfig as ArchConfig
from configs.schema_archs import EvaluationConfig as EvaluationConfig
from configs.schema_cluster import ClusterConfig as ClusterConfig
from configs.schema_phases import FROZEN as FROZEN
from configs.schema_phases import LEARNING as LEARNING
from configs.schema_phases import PHASES as PHASES
from configs.schema_phases import BudgetConfig as BudgetConfig
from configs.schema_phases import ContrastiveConfig as ContrastiveConfig
from configs.schema_phases import EndpointConfig as EndpointConfig
from configs.schema_phases import EndpointSourceConfig as EndpointSourceConfig
from configs.schema_phases import EvolveConfig as EvolveConfig
from configs.schema_phases import ScheduleConfig as ScheduleConfig
from configs.schema_phases import SelfSupervisedConfig as SelfSupervisedConfig
from configs.schema_phases import SftConfig as SftConfig
from configs.schema_phases import TeacherConfig as TeacherConfig
from configs.schema_phases import VanillaConfig as VanillaConfig
from configs.schema_tasks import HeldOutConfig as HeldOutConfig
from configs.schema_tasks import TasksConfig as TasksConfig

BASELINES = ("eager", "torch_compile", "torch_compile_reduce_overhead", "cuda_graph", "cudnn")
ONLY_ON_GPUS = ("cuda_graph", "cudnn")
"""Baselines that do not exist on `cpu`."""
CONTAINMENT = ("network", "filesystem", "user", "processes", "system_calls")


@dataclass
class ScratchConfig:
    """A small model of the Qwen2 architecture, and a BPE tokenizer that is trained on the tasks themselves."""

    vocab_size: int = bounded(2048, 300, 200_000)  # tokens
    hidden_size: int = bounded(192, 16)  # a multiple of `heads`
    intermediate_size: int = bounded(512, 16)  # width of the feed-forward layers
    layers: int = bounded(4, 1)  # transformer layers
    heads: int = bounded(6, 1)  # attention heads
    kv_heads: int = bounded(2, 1)  # heads of keys and values; `heads` is a multiple of it
    # Deviation of the normal distribution that weights start from. A tied embedding learns faster from 0.1.
    initializer_range: float = bounded(0.02, 1e-4, 1.0)
    max_token_length: int = bounded(24, 1)  # bytes; a token may span blanks, so an idiom can become one token


@dataclass
class PolicyConfig:
    """The model that is trained."""

    # `scratch`, a Hugging Face model id, a folder, or the URI of one (`s3://...`), which each machine copies once.
    model: str = "scratch"
    scratch: ScratchConfig = field(default_factory=ScratchConfig)
    max_length: int = bounded(1536, 64)  # tokens of prompt and response together
    dtype: str = one_of("bfloat16", "bfloat16", "float32", "float16")  # of the weights in rollout engines
    chat_template: bool = True  # wrap prompts in the tokenizer's chat template, if it has one


@dataclass
class PlacementConfig:
    """Where roles stand on GPUs (docs/guides/gpus.md)."""

    # Which roles share GPUs and take turns on them. `none`: every role has its own GPUs. `training`: engines and
    # learner share. `all`: evaluators share, too, and measure only while nothing is generated or trained.
    share: str = one_of("none", "none", "training", "all")
    # The run starts NVIDIA's multi-process service on its host, with engines and learner as clients. Engines on one GPU
    # then compute at the same time, instead of in slices of time.
    mps: bool = False
    learner: str = ""  # the learner's GPUs by Ray's accelerator name (`H100`), if the cluster has several kinds
    engines: str = ""  # those of the engines; empty takes any GPU


@dataclass
class RolloutConfig:
    """How responses are generated (vLLM)."""

    engines: int = bounded(1, 1)  # vLLM engines
    # Engines on one GPU. If the model is small, several generate faster than one (docs/guides/gpus.md). Each then has
    # `kv_cache_gib`.
    engines_per_gpu: int = bounded(1, 1)
    max_tokens: int = bounded(384, 1)  # tokens of a response
    temperature: float = bounded(1.0, 0.0, 5.0)  # of training samples; `assessment` has its own
    stop_after_code: bool = True  # a response ends after the code block with its program (docs/guides/real-model.md)
    max_concurrent: int = bounded(64, 1)  # sequences that one engine decodes at once
    # GiB of KV cache per engine, on a CPU or with several `engines_per_gpu`. Otherwise `gpu_memory_utilization`
    # decides.
    kv_cache_gib: float = bounded(1.0, 0.05)
    gpu_memory_utilization: float = bounded(0.85, 0.05, 0.99)  # share of a GPU's memory that an engine takes
    tensor_parallel: int = bounded(1, 1)  # GPUs of one engine
    cpu_cores: str = ""  # cores of a CPU engine's OpenMP threads (`0`, `0-3`); empty lets vLLM choose
    compile: bool = False  # torch.compile inside vLLM: slower to start, faster for large models
    # How new weights reach the engines. `shared`: from the learner's memory on the same GPU. `broadcast`: NCCL (gloo
    # without GPUs). `host`: Ray's object store. `auto`: the fastest way that the placement allows.
    weight_transport: str = one_of("auto", "auto", "shared", "broadcast", "host")
    # MiB of weights that are on their way to a GPU at once. A larger tensor takes what it needs.
    sync_bucket_mib: int = bounded(512, 1)
    # Engines that share their GPU free its memory while other roles use it. Otherwise `gpu_memory_utilization` must
    # leave room for the others.
    sleep: bool = True
    start_timeout: float = bounded(600.0, 1.0)  # seconds for an engine to start
    timeout: float = bounded(300.0, 1.0)  # seconds for a request, which is then retried on another engine
    endpoint: EndpointSourceConfig = field(default_factory=EndpointSourceConfig)


@dataclass
class LoraConfig:
    """Adapters (LoRA, arXiv 2106.09685) on all linear layers but the output layer."""

    rank: int = bounded(0, 0)  # rank of the adapters; 0 trains all weights instead
    alpha: float = bounded(32.0, 0.0)  # adapters are scaled by alpha / rank
    # What engines get after a step: all weights with adapters `merged`, or the `adapters` alone.
    sync: str = one_of("merged", "merged", "adapters")


@dataclass
class LearnerConfig:
    """How the policy is trained (DeepSpeed)."""

    ranks: int = bounded(1, 1)  # processes of data-parallel training, one per GPU
    zero_stage: int = one_of(1, 0, 1, 2, 3)  # what ZeRO shards: nothing, optimiser, gradients too, weights too
    micro_batch_tokens: int = bounded(8192, 64)  # tokens of one forward pass, padding included
    # How rows of a micro-batch stand: `padded` to one length, or `packed` one behind the other, so that attention skips
    # masked blocks (on a GPU with FlashAttention, which needs `autocast`). `auto`: packed on GPUs, if the model has
    # plain full attention.
    attention: str = one_of("auto", "auto", "padded", "packed")
    # Ranks that share each row, a part of its tokens each (Ulysses, arXiv 2309.14509): for rows too long for one GPU. A
    # rank still computes `micro_batch_tokens`; the rows are packed, and as many times as long. Divides `ranks`.
    sequence_parallel: int = one_of(1, 1, 2, 4, 8, 16)
    gradient_clip: float = bounded(1.0, 0.0)  # highest norm of a step's gradient; 0 does not clip
    # An optimiser step whose gradient is not finite changes nothing, and is counted (`train/skipped_steps`). So many of
    # them in a row end the run.
    max_skipped_steps: int = bounded(5, 1)
    weight_decay: float = bounded(0.0, 0.0)  # AdamW's, of matrices only
    gradient_checkpointing: bool = False  # compute activations again in the backward pass: less memory, more time
    compile: bool = True  # torch.compile of the layers; only on GPUs, below ZeRO stage 3
    autocast: bool = True  # bfloat16 autocast over float32 weights; never on a CPU without instructions for it
    share_prompts: bool = True  # compute a prompt once for all its responses; only with plain full attention
    lora: LoraConfig = field(default_factory=LoraConfig)
    # Where the optimiser's state lies (from ZeRO stage 1 on). The host then computes its step. `nvme`: its moments are
    # files in `nvme_path`.
    offload_optimizer: str = one_of("none", "none", "cpu", "nvme")
    # Where weights lie while no layer needs them (ZeRO stage 3). `nvme` needs libaio and a C++ compiler.
    offload_parameters: str = one_of("none", "none", "cpu", "nvme")
    nvme_path: str = ""  # a folder on a fast local disk, for `nvme`
    offload_reference: bool = False  # keep the reference policy in host memory, except while it computes
    # torch threads per rank on a CPU, or for an offloaded optimiser. 0: on a host with GPUs, its cores divided by its
    # ranks; otherwise what OMP_NUM_THREADS says, which Ray sets to 1.
    threads: int = bounded(0, 0)
    timeout: float = bounded(600.0, 1.0)  # seconds for a call to a rank; bounds every collective
    start_timeout: float = bounded(300.0, 1.0)  # seconds for all ranks to start, or `timeout` if that is more
    # The fewest ranks that go on if not all find a place within `place_timeout`: after a rank was lost, and at a start.
    # The next recovery or resume asks for all again (docs/guides/runs.md). 0: all have to be there.
    min_ranks: int = bounded(0, 0)
    place_timeout: float = bounded(120.0, 1.0)  # seconds for all ranks to find a place; then `min_ranks` are enough


@dataclass
class LimitsConfig:
    """What one candidate may use. Reaching a limit ends in a verdict, never in an exception."""

    build_seconds: float = bounded(180.0, 1.0)  # for one run of the compilers; a build may take two
    build_memory_gib: float = bounded(6.0, 0.5)  # GiB of one compiler
    start_seconds: float = bounded(60.0, 1.0)  # for import and construction
    # For one call. A call may also take at most 1000 times as long as the reference's (CUDA-L1 section 2.1).
    call_seconds: float = bounded(10.0, 0.1)
    memory_gib: float = bounded(4.0, 0.1)  # GiB of host memory; on a GPU, CUDA's libraries take some of it
    gpu_memory_gib: float = bounded(32.0, 0.5)  # GiB of GPU memory
    output_mib: float = bounded(64.0, 1.0)  # MiB of the largest file that it may write; a folder holds four times that
    output_files: int = bounded(8000, 100)  # files and folders that a folder may hold in which it writes


@dataclass
class EvaluatorConfig:
    """How programs are built, checked and timed (docs/guides/evaluating.md)."""

    # `cpu`, a GPU by Ray's accelerator name (`H200`, `A100`), or `auto`: the GPU of the machine that starts the run,
    # and `cpu` if it has none.
    arch: str = "cpu"
    capability: str = ""  # compute capability to build for (`9.0`); empty takes the known one of `arch`
    preset: str = one_of("fast", "fast", "thorough", "paper")  # how precisely to time; `paper`: CUDA-L1 section 2.4.4
    # How often at most a program is measured again that seems the fastest of its task, before that is believed: luck
    # made its first speed-up too high on average (docs/guides/evaluating.md). 0: never, as in CUDA-L1.
    remeasure_best: int = bounded(3, 0, 5)
    # Whether a speed-up that jumps (above `guard.jump`, or above twice the task's best so far) is measured on another
    # device, too, before it is believed (CUDA-L1 section 2.4.4). If the two differ by more than 10 %, the program is
    # `suspect`. `auto`: on GPUs, if there are several evaluators.
    confirm_jumps: str = one_of("auto", "auto", "always", "never")
    # Whether programs of plain torch run on a CPU before an evaluator gets them: what fails anywhere ends there
    # (docs/guides/evaluating.md). `auto`: if they are for a GPU.
    cpu_look: str = one_of("auto", "auto", "always", "never")
    # Whether such a look also ends programs whose values are plainly wrong. Off until it has been tried on a thousand
    # right programs (docs/guides/evaluating.md).
    cpu_look_values: bool = False
    workers: int = bounded(1, 1)  # evaluators; on GPUs each has a GPU
    builders: int = bounded(1, 1)  # build workers, on CPUs
    # Seconds for one of them to answer; its program then goes to another. 0: what the limits allow at most, which is
    # more than ten minutes.
    timeout: float = bounded(0.0, 0.0)
    threads: int = bounded(1, 1)  # torch threads of a candidate on a CPU
    baselines: list[str] = words_of(("eager",), BASELINES)  # what speed-ups are over (CUDA-L1 section 4.2: all)
    require_shapes: bool = False  # a candidate that fails at other shapes than the task's is wrong; false: it is noted
    # `drop_in`: an output has the reference's strides, and weights are changed after construction. `values`: an output
    # has the reference's values, and both sides keep the weights of construction, as in KernelBench.
    strict: str = one_of("drop_in", "drop_in", "values")
    # What must keep programs in; a run is refused on a host that cannot give it (docs/guides/evaluating.md).
    require_containment: list[str] = words_of((), CONTAINMENT)
    store: str = ""  # folder of baselines and builds that runs share; empty puts it in the run directory
    # `always`: a baseline that the store lacks is measured. `never`: speed-ups are over those alone that the store has,
    # such as those of the tasks on which `warpsmith baseline` measured them. For runs on many tasks.
    measure_baselines: str = one_of("always", "always", "never")
    # Run directories, or folders of `warpsmith report RUN --publish FOLDER`. If a program was found right or wrong
    # there, on the same task, sizes, GPU and versions, its verdict is taken over, and says so
    # (docs/guides/evaluating.md).
    verdicts_of: list[str] = field(default_factory=list)
    # URI of a folder on any file system that pyarrow knows (`s3://...`), through which nodes share compiled extensions.
    # Leave it empty if nodes share `store` itself.
    build_cache: str = ""
    # GiB of extensions in `store`, and as much again of artifacts; the least recently used go first.
    build_cache_gib: float = bounded(20.0, 0.1)
    limits: LimitsConfig = field(default_factory=LimitsConfig)


@dataclass
class BufferConfig:
    """The scored programs that exemplars are drawn from (CUDA-L1 section 2.4.3)."""

    # How exemplars are drawn (CUDA-L1 section 2.4.3: by buckets; CUDA-L1 table 5 compares all three).
    strategy: str = one_of("bucket", "bucket", "island", "random")
    exemplars: int = bounded(2, 1)  # exemplars of a prompt: N in CUDA-L1 section 2.4.3
    bucket_width: float = bounded(0.1, 1e-6)  # width of a score bucket B_i (CUDA-L1 section 2.4.3), as a speed-up
    # tau in CUDA-L1 section 2.4.3: the lower, the more the drawing prefers fast programs.
    temperature: float = bounded(0.5, 1e-6)
    capacity: int = bounded(64, 1)  # programs kept per task


@dataclass
class RewardConfig:
    """What a verdict is worth (CUDA-L1 section 2.4)."""

    baseline: str = one_of("eager", "eager", "best")  # what speed-ups are over (CUDA-L1 section 2.4.4: eager)
    # `speedup`: the speed-up itself, as in CUDA-L1 section 2.4.4. `gain`: the speed-up less 0.9, but not below 0, and a
    # program that its own prompt shows keeps a fifth of that; handing the reference back then hardly pays.
    # `beat_shown`: the speed-up over the fastest program that the prompt shows, less 1, but not below 0; prompts of
    # contrastive RL then show only programs that are slower than the task's best known one (evaluators/reward.py).
    worth: str = one_of("speedup", "speedup", "gain", "beat_shown")
    # What counts of a measured speed-up, for rewards and for `min_speedup`. `point`: the estimate (CUDA-L1 section
    # 2.4.4). `low`: the lower end of its 95 % interval. Reports and exemplars show the point.
    estimate: str = one_of("point", "point", "low")
    max: float = bounded(100.0, 1.0)  # speed-ups above this count as this
    # Speed-ups are first rounded to whole powers of 1 + resolution (CUDA-L1: 0, off). GRPO divides the rewards of a
    # group by their deviation: without rounding, the noise between equally fast programs weighs as much as a real
    # difference. Two speed-ups on both sides of a boundary stay apart.
    resolution: float = bounded(0.0, 0.0, 1.0)


@dataclass
class GuardConfig:
    """What happens to a verdict before it is rewarded (docs/guides/guard.md)."""

    enabled: bool = True  # false believes every program, and only notes findings: for ablations
    # Who is asked about rewards that jump and about suspects. Empty: only the nearest known hacks decide. `policy`: an
    # engine of the run. Or the address of an OpenAI-compatible endpoint (its key comes from OPENAI_API_KEY).
    checker: str = ""
    checker_model: str = ""  # the model to ask of an endpoint
    checker_timeout: float = bounded(120.0, 1.0)  # seconds for an answer; then the nearest known hacks decide
    # A speed-up above this is checked again, as is one above twice the task's best (CUDA-L1 section 2.4.4: 3).
    jump: float = bounded(3.0, 1.0)


@dataclass
class AssessmentConfig:
    """How the policy is measured, at the start and after each phase: by fresh samples."""

    samples: int = bounded(4, 1)  # responses per task
    preset: str = one_of("fast", "fast", "thorough")  # how precisely to time
    temperature: float = bounded(1.0, 0.0, 5.0)  # of these samples
    # The most tasks trained on that are measured, drawn by id alone; held-out tasks all are. 0: all.
    training_tasks: int = bounded(0, 0)
    constant_policies: bool = False  # at the end, also judge the reference and the nearest lesson (docs/guides/runs.md)


@dataclass
class TrackingConfig:
    """MLflow."""

    enabled: bool = True  # false writes only the run directory
    uri: str = ""  # MLflow's tracking URI; empty takes MLFLOW_TRACKING_URI, or SQLite in `root`
    experiment: str = "warpsmith"  # MLflow's experiment
    system_metrics: bool = True  # record use of CPU, memory and GPU
    rollouts: int = bounded(2, 0)  # rollouts of each step that become traces: the best one, and others at random


@dataclass
class RayConfig:
    """The Ray cluster."""

    address: str = ""  # empty joins the cluster of RAY_ADDRESS, or starts a local one
    num_cpus: int = bounded(0, 0)  # of a local cluster; 0 takes the machine's, but at least 8
    object_store_mib: int = bounded(256, 80)  # MiB, of a local cluster
    dashboard: bool = False  # of a local cluster
    # Ask the autoscaler of the cluster for all that the run needs before its actors are started, and keep it until the
    # run ends; for evaluators with `idle_minutes`, as long as programs need them. Ray has one such request for a whole
    # cluster: leave it off if anybody else makes one (docs/guides/architectures.md).
    request_capacity: bool = False


@dataclass
class LogConfig:
    """What the processes of a run log on standard error (docs/cluster.md)."""

    # `text`: warnings, as lines for people. `json`: one JSON object a line, with run, phase, step, role and candidate.
    format: str = one_of("text", "text", "json")
    # The lowest level of Warpsmith's own lines with `format: json`; those of libraries begin with warnings.
    level: str = one_of("info", "debug", "info", "warning")


@dataclass
class StorageConfig:
    """The run's file system (docs/guides/runs.md)."""

    # Seconds for which an operation that fails there is tried again, with growing pauses; then the run ends at its last
    # commit. What waiting does not mend (no permission, no room) ends it at once. 0: nothing is tried again.
    patience: float = bounded(300.0, 0.0)
    # Seconds after which a driver counts as dead that has not renewed its claim to a run on an object store: the next
    # one waits for as long after a kill on another machine. Local file systems have locks.
    lease: float = bounded(60.0, 2.0)


@dataclass
class RunConfig:
    """Keys of the run itself."""

    name: str = MISSING  # the run directory is `root/name`; by default the name of the YAML file
    seed: int = bounded(0, 0)  # of all random draws
    root: str = "runs"  # folder of runs, on any file system that pyarrow knows: a path, s3://..., gs://...
    checkpoint_every: int = bounded(5, 1)  # steps of contrastive RL; every phase ends with a checkpoint, too
    keep_last: int = bounded(1, 0)  # newest checkpoints that stay besides the committed one, with their buffers
    # Checkpoints at the ends of phases that stay since their policies are the best (docs/guides/runs.md).
    keep_best: int = bounded(1, 0)
    # Minutes in which nothing moves (no item of a pool ends, no call of the learner, no row is stored, no teacher
    # answers), after which the run says what every role waits for, and ends with exit code 3. 0: never. Not shorter
    # than the longest call that the other keys allow (docs/guides/runs.md).
    stall_minutes: float = bounded(60.0, 0.0)
    drain_seconds: float = bounded(60.0, 0.0)  # after SIGTERM, for the step under way and its commit
    tasks: TasksConfig = field(default_factory=TasksConfig)
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    sft: SftConfig = field(default_factory=SftConfig)
    self_supervised: SelfSupervisedConfig = field(default_factory=SelfSupervisedConfig)
    contrastive_rl: ContrastiveConfig = field(default_factory=ContrastiveConfig)
    vanilla: VanillaConfig = field(default_factory=VanillaConfig)
    evolve: EvolveConfig = field(default_factory=EvolveConfig)
    placement: PlacementConfig = field(default_factory=PlacementConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    evaluator: EvaluatorConfig = field(default_factory=EvaluatorConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    buffer: BufferConfig = field(default_factory=BufferConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    guard: GuardConfig = field(default_factory=GuardConfig)
    assessment: AssessmentConfig = field(default_factory=AssessmentConfig)
    storage: StorageConfig = field(default_factory=StorageConfig)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)
    logging: LogConfig = field(default_factory=LogConfig)
    ray: RayConfig = field(default_factory=RayConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
