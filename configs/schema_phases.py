"""The phases' part of the configuration: which of them run, and how each learns. Its comments are documentation, as in
`configs.schema`, which holds the rest. Imports neither torch nor ray.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from configs.fields import bounded, one_of, words_of

LEARNING = ("sft", "self_supervised", "contrastive_rl")
"""The phases that train the policy."""
FROZEN = ("collect", "vanilla", "evolve")
"""The phases that learn nothing: the weights stay as they are."""
PHASES = ("collect", *LEARNING, "vanilla", "evolve")
FEEDBACK = ("profile", "messages")


@dataclass
class ScheduleConfig:
    """Which phases run, and how often."""

    # In this order. `sft`, `self_supervised` and `contrastive_rl` are those of CUDA-L1 table 5. The others train
    # nothing, and a schedule of them alone has no learner: `vanilla` and `evolve` (docs/guides/evolve.md), and
    # `collect`, which is the part of `sft` that asks the teachers (docs/guides/collect.md).
    phases: list[str] = words_of(LEARNING, PHASES)
    cycles: int = bounded(1, 1)  # how often the phases run


@dataclass
class EndpointConfig:
    """How http(s) endpoints are asked, each on its own (docs/guides/collect.md)."""

    concurrency: int = bounded(16, 1)  # requests that are under way at once
    # Requests that are begun in a minute at most, repeated ones included, at even distances. 0: no limit.
    requests_per_minute: float = bounded(0.0, 0.0)
    timeout: float = bounded(300.0, 1.0)  # seconds for an answer; the request is then sent again
    # Seconds for which a failing request is sent again, with growing pauses. An endpoint that answers no request for so
    # long is down.
    patience: float = bounded(900.0, 0.0)
    # Share of the requests that must be answered. Up to that, the phase goes on without answers that are lost, also if
    # the endpoint is down.
    share: float = bounded(1.0, 0.0, 1.0)
    input_price: float = bounded(0.0, 0.0)  # of a million tokens of prompts, in any currency
    output_price: float = bounded(0.0, 0.0)  # of a million tokens of answers; if both are 0, only tokens are reported


@dataclass
class EndpointSourceConfig:
    """A model behind an endpoint that answers in place of the run's engines, if nothing is learnt
    (docs/guides/evolve.md)."""

    url: str = ""  # of an OpenAI-compatible endpoint (its key comes from OPENAI_API_KEY); empty: the run's own engines
    model: str = ""  # the model to ask for
    limit_tokens: bool = True  # send `rollout.max_tokens` as the limit of an answer; false: the endpoint's own limit
    asking: EndpointConfig = field(default_factory=EndpointConfig)


@dataclass
class TeacherConfig:
    """A model behind an endpoint as a teacher, under a name of yours for `sft.teachers` (docs/guides/collect.md)."""

    url: str = ""  # of an OpenAI-compatible endpoint
    model: str = ""  # the model to ask for
    key: str = "OPENAI_API_KEY"  # the environment variable that has the key of this endpoint
    temperature: float = bounded(1.0, 0.0, 5.0)  # at 0 all of its programs for a task are the same
    max_tokens: int = bounded(0, 0)  # the limit of an answer, which the endpoint is told; 0: the endpoint's own
    asking: EndpointConfig = field(default_factory=EndpointConfig)


@dataclass
class SftConfig:
    """Supervised fine-tuning on verified programs of teachers (CUDA-L1 section 2.2)."""

    epochs: int = bounded(4, 1)  # passes over the lessons
    batch_size: int = bounded(16, 1)  # lessons per optimiser step
    learning_rate: float = bounded(1e-5, 0.0)  # the highest: it rises over `warmup_steps`, then falls to a tenth
    warmup_steps: int = bounded(10, 0)  # optimiser steps over which the learning rate rises
    # `bundled` (the programs that come with bundled or generated tasks), JSONL files, names of `endpoints`, or
    # addresses of endpoints, which then all have the model `teacher_model` and the settings `endpoint`
    teachers: list[str] = field(default_factory=lambda: ["bundled"])
    endpoints: dict[str, TeacherConfig] = field(default_factory=dict)  # by name
    teacher_model: str = ""  # the model to ask of endpoints that `teachers` names by their addresses
    endpoint: EndpointConfig = field(default_factory=EndpointConfig)
    tries: int = bounded(20, 1)  # programs that a teacher may propose for a task (CUDA-L1 section 2.2: 20)
    successes: int = bounded(2, 1)  # successful programs after which a task is done (CUDA-L1 section 2.2: 2)
    # The teacher `bundled` proposes programs with kernels of their own first, and one of each rule before a second one
    # of any. Otherwise their order is drawn.
    kernels_first: bool = False
    # Minutes after which teachers are asked no more, and what is not judged yet is no lesson. They begin anew in a
    # resumed run. Tasks come in an order that is drawn then. 0: until all is judged.
    collect_minutes: float = bounded(0.0, 0.0)
    # Share of the lessons that are learnt under a contrastive prompt, drawn anew in each epoch. Its exemplars are
    # slower than the lesson, and the analysis compares them: by their numbers, their speed-ups and the reasons that
    # their teachers gave (docs/guides/signal.md).
    contrastive_share: float = bounded(0.0, 0.0, 1.0)
    # Whether those analyses compare. false: the lesson's own analysis, for a policy that is too small to compare.
    comparisons: bool = True
    # Share of the lessons of which a repair is learnt, too: a small mistake is made in the program, the judge says what
    # it does to it, and the lesson's program is the answer to the broken one and that message (docs/guides/signal.md).
    # For `contrastive_rl.repair_turns`.
    repair_share: float = bounded(0.0, 0.0, 1.0)
    min_speedup: float = bounded(0.0, 0.0)  # the lowest of a lesson, over `reward.baseline` (CUDA-L1 section 2.1: 0)
    min_entropy: float = bounded(0.0, 0.0)  # nats per token on held-out prompts; an epoch with less is the last. 0: off
    entropy_samples: int = bounded(16, 0)  # responses sampled after each epoch to measure that, at temperature 1


@dataclass
class SelfSupervisedConfig:
    """Fine-tuning on the policy's own successes (CUDA-L1 section 2.3)."""

    max_rounds: int = bounded(4, 1)  # rounds of sampling, judging and learning
    samples: int = bounded(8, 1)  # responses per task and round
    epochs: int = bounded(1, 1)  # passes over the successes of a round
    batch_size: int = bounded(16, 1)  # responses per optimiser step
    learning_rate: float = bounded(1e-5, 0.0)  # constant
    min_gain: float = bounded(0.01, 0.0, 1.0)  # the phase stops if the success rate rises by less than this
    patience: int = bounded(1, 1)  # rounds without such a gain before it stops: one round is a noisy measurement
    contrastive_share: float = bounded(0.0, 0.0, 1.0)  # share of the prompts that show exemplars
    # The lowest speed-up of a success, over `reward.baseline` (CUDA-L1 section 2.1: 0).
    min_speedup: float = bounded(0.0, 0.0)


@dataclass
class ContrastiveConfig:
    """Contrastive reinforcement learning (CUDA-L1 section 2.4)."""

    steps: int = bounded(100, 1)  # steps of sampling, judging and learning
    # The phase ends with the first step that is complete after this many minutes, resumed time included. 0: no limit.
    # For a machine that is lent for a fixed time.
    minutes: float = bounded(0.0, 0.0)
    tasks_per_step: int = bounded(8, 1)  # prompts per step
    # `rounds`: the next tasks of shuffled rounds over all tasks. `signal`: tasks are drawn, and those whose groups
    # carried a signal (their rewards differed) are drawn more often. `replace`: rounds, and a group without a signal is
    # replaced by a group of another task while the step runs (dynamic sampling, DAPO, arXiv 2503.14476): at most a
    # quarter of `tasks_per_step`, but at least one. `variation`: tasks are drawn by how much the rewards of their last
    # groups varied, in units of the task's own deviation; older groups count for less (as VCRL, arXiv 2509.19803, ranks
    # tasks by the variance in their groups).
    draw: str = one_of("rounds", "rounds", "signal", "replace", "variation")
    group_size: int = bounded(16, 2)  # responses to one prompt: G in CUDA-L1 section 2.4.5
    # Share of the prompts that show exemplars. CUDA-L1 section 2.4.2: all of them. CUDA-L1 table 5 compares with none.
    contrastive_share: float = bounded(1.0, 0.0, 1.0)
    # Ablation of those prompts. `scores`: exemplars with their speed-ups (CUDA-L1 section 2.4.2). `no_scores`: the same
    # exemplars, in random order, without speed-ups. Without exemplars, it is `contrastive_share: 0`.
    exemplars: str = one_of("scores", "scores", "no_scores")
    # Repair turns after a failing response. 1: of each group with a program that fails, one such program is shown again
    # with the judge's message, and as many responses to that prompt are judged and trained as a group of their own. So
    # a step may have up to twice as many responses (multi-turn RL, arXiv 2507.11948). 0: none.
    repair_turns: int = bounded(0, 0, 1)
    learning_rate: float = bounded(1e-6, 0.0)  # constant; for all weights: adapters need more, about 1e-5
    epochs: int = bounded(1, 1)  # optimiser passes over the rollouts of a step
    minibatches: int = bounded(1, 1)  # optimiser steps per pass
    clip_low: float = bounded(0.2, 0.0, 1.0)  # how far a ratio may fall below 1: CUDA-L1 section 2.4.5, as epsilon
    clip_high: float = bounded(0.28, 0.0)  # how far it may rise above 1; more than `clip_low` is DAPO's clip-higher
    # Weight of the k3 estimate of KL(policy || reference): beta in CUDA-L1 section 2.4.5. The reference is the policy
    # with which the phase began. 0 turns the term off.
    kl: float = bounded(0.005, 0.0)
    # Cap of the importance weights that correct for differences between vLLM's log-probabilities and the learner's. 0
    # turns them off.
    importance_cap: float = bounded(2.0, 0.0)
    # What is clipped: the ratio of each token, or of whole responses (GSPO, arXiv 2507.18071; `clip_low` and
    # `clip_high` are then about 3e-4).
    ratio: str = one_of("token", "token", "sequence")
    # The mean that the loss is. `token`: over all tokens of the step. `response`: over each response, then over
    # responses (GRPO as first published). `constant`: Dr. GRPO (arXiv 2503.20783), that is a sum divided by a constant,
    # and advantages that are not divided by their group's deviation.
    loss_mean: str = one_of("token", "token", "response", "constant")
    # Which responses that mean is over. `all`: those of the whole step (CUDA-L1 section 2.4.5). A group whose responses
    # are rewarded alike carries no signal; it then counts in the mean and in the KL term, and is computed only if `kl`
    # is above 0. `signal`: those of the other groups alone (DAPO, arXiv 2503.14476). See docs/guides/signal.md.
    normaliser: str = one_of("all", "all", "signal")
    # How many policy versions older than the learner a rollout's policy may be. Generation, evaluation and learning of
    # as many further steps then overlap. 0 is strictly on-policy.
    max_staleness: int = bounded(0, 0)
    # Seconds after a step's first request at which the step goes on without missing responses and verdicts. 0 waits for
    # all.
    deadline: float = bounded(0.0, 0.0)
    # Factor of negative advantages. Pushing long failures down also takes probability from what they share with
    # successes, and entropy rises. 0 learns only from responses that are better than their group (arXiv 2506.01347).
    negative_weight: float = bounded(1.0, 0.0)
    # Tasks per step whose best known response, a teacher's or the policy's own, is learnt again as in SFT: a small
    # policy that learns some tasks forgets others (CUDA-L1: 0).
    rehearsal: int = bounded(0, 0)
    # A program that several responses of a group hand over counts once in the group's mean and deviation, and they
    # share its advantage (after DRA-GRPO, arXiv 2505.09655). A program is then not learnt faster because it is sampled
    # often (docs/guides/signal.md). false: each response counts in full, as in CUDA-L1.
    share_duplicates: bool = False
    # Reward of right programs that copy nothing in their prompt, in groups without a response that is faster than the
    # reference. A copy never earns it. Normalisation would make even a small reward as large as a speed-up, so this is
    # also the weight of its advantages: 0.1 moves the policy a tenth as far (docs/guides/signal.md). 0: off.
    right_reward: float = bounded(0.0, 0.0, 1.0)
    # c in clip((reward - mu) / sigma, -c, c), where mu and sigma are running statistics of the task's rewards (CUDA-L1
    # section 3.2, equation 6: 1.5). 0 makes all advantages 0, which switches the policy gradient off, and leaves
    # the KL term if `normaliser` is `all`.
    smoothing_clip: float = bounded(1.5, 0.0)


@dataclass
class VanillaConfig:
    """One-shot prompts to a policy that stays as it is (CUDA-L1 table 5, "vanilla"). On all tasks, held-out ones among
    them, since nothing is learnt."""

    rounds: int = bounded(4, 1)  # rounds over all tasks
    samples: int = bounded(4, 1)  # responses per task and round


@dataclass
class BudgetConfig:
    """What `evolve` may spend in all. It ends when one of them is spent; 0 is no limit (docs/guides/evolve.md)."""

    evaluations: int = bounded(0, 0)  # programs that are judged
    tokens: int = bounded(0, 0)  # of prompts and answers together
    # Of the answers of an endpoint, in the currency of `rollout.endpoint.asking.input_price` and `output_price`.
    money: float = bounded(0.0, 0.0)


@dataclass
class EvolveConfig:
    """Contrastive prompts, with a buffer that grows, to a policy that stays as it is (CUDA-L1 table 5, "evolve")."""

    rounds: int = bounded(8, 1)  # rounds over all tasks; the first has nothing to show, so its prompts are one-shot
    samples: int = bounded(4, 1)  # responses per task and round
    contrastive_share: float = bounded(1.0, 0.0, 1.0)  # share of the prompts that show exemplars; the others explore
    # What prompts say of the task's latest program beside the exemplars. `profile`: the times of its kernels, the
    # bandwidth that it reached and the gaps between its launches. `messages`: those of the compiler and of the judge on
    # a program that failed.
    feedback: list[str] = words_of((), FEEDBACK)
    budget: BudgetConfig = field(default_factory=BudgetConfig)
