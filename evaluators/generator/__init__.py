"""Generates tasks: a grammar of torch operators, sizes for each device, and fast variants by rules."""
