"""One step: its prompts, its responses and verdicts as they come in, and the review of verdicts."""
