"""The settings of a small run with all engines, which the tests of whole runs start.

No program of its lessons has to be built, which takes as long as the rest of SFT; those of `BUILT` have.
"""

HELD_OUT = "level2/highway_gate"
POLICY = [
    "policy.scratch.hidden_size=64",
    "policy.scratch.layers=2",
    "policy.scratch.heads=2",
    "policy.scratch.kv_heads=1",
    "policy.scratch.intermediate_size=128",
    "rollout.max_tokens=96",
]
BUILT = "tasks.include=[level1/softmax,level1/gelu_tanh,level1/avg_pool1d,level2/highway_*]"
SMALL = [
    "name=small",
    "tasks.include=[level1/softmax,level1/triangular_matmul,level1/avg_pool1d,level2/highway_*]",
    "tasks.held_out.tasks=[level2/highway_gate]",
    "tasks.audit=audits.parquet",
    *POLICY,
    "rollout.max_concurrent=16",
    "sft.epochs=2",
    "sft.successes=2",
    "sft.batch_size=4",
    "sft.repair_share=1.0",
    "self_supervised.max_rounds=1",
    "self_supervised.samples=2",
    "contrastive_rl.steps=3",
    "contrastive_rl.tasks_per_step=2",
    "contrastive_rl.group_size=4",
    "contrastive_rl.max_staleness=1",
    "contrastive_rl.draw=variation",
    "contrastive_rl.share_duplicates=true",
    "contrastive_rl.right_reward=0.1",
    "checkpoint_every=1",
    "assessment.samples=2",
    "assessment.constant_policies=true",
    "tracking.system_metrics=false",
]
