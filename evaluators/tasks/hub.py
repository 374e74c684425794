"""Fetches the Parquet files of a data set on the Hugging Face Hub: `hf://datasets/ScalingIntelligence/KernelBench`.

Needs `huggingface_hub` alone, which transformers brings, and only for such a name. What was fetched once is in the
hub's cache, from which it is read without a network (`HF_HUB_OFFLINE=1`).
"""

from __future__ import annotations

import re
from pathlib import Path

from evaluators.tasks.records import TaskError

PREFIX = "hf://"
_NAME = re.compile(r"hf://datasets/([\w.-]+/[\w.-]+?)(?:@([\w./-]+))?/?")


def fetch_dataset(name: str) -> Path:
    """The folder of the data set's Parquet files. `name`: `hf://datasets/OWNER/NAME`, with `@REVISION` if need be.

    Raises TaskError for another form, and for a data set that cannot be fetched; its message says how to get the files
    on another machine.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise TaskError(f"{name}: a data set on the hub is named hf://datasets/OWNER/NAME or ...@REVISION")
    repository, revision = match[1], match[2]
    remedy = f"`hf download {repository} --repo-type dataset --local-dir FOLDER` fetches it; then name FOLDER instead"
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise TaskError(f"{name}: huggingface_hub is not installed; where it is, {remedy}") from None
    try:
        return Path(snapshot_download(repository, repo_type="dataset", revision=revision, allow_patterns=["*.parquet"]))
    except (OSError, ValueError, RuntimeError, LookupError) as error:
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        raise TaskError(f"{name}: cannot be fetched ({reason}); on a machine with a network, {remedy}") from error
