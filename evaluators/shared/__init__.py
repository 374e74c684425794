"""Code of both sides of the pipe: messages, forms of nested values, memory, compilers.

Imports no other room. It runs in the candidate's process, too, where a candidate may change it: the judge trusts only
its own copy.
"""
