"""The command line: one module a group of `warpsmith` commands."""
