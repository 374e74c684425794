"""Every Ray actor class, and the fault-tolerant pools of them. Wraps domain objects; adds no logic of its own."""
