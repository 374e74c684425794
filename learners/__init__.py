"""Learning: losses, advantages, batching, the DeepSpeed engine, the policy and its weights. Never imports ray."""
