"""The evaluators as a service: programs come in over HTTP, are kept on disk, and are judged once each.

Nothing of a program or of a task is executed in the service's own process.
"""
