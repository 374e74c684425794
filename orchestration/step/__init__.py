"""One step: its prompts, the responses and verdicts as they come in, and who looks at them again."""
