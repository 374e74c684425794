"""Code of both sides of the pipe: messages, forms of nested values, memory, compilers.

Imports no other room. A candidate's process has a copy, which the candidate may change; the judge trusts only its own.
"""
