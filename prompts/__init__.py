"""Contrastive prompts: templates, response parsing, exemplar selection, the buffer. Never imports ray."""
