"""Policies that machines share by URI: copied once, whole or not at all, and anew if they change."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from learners import policy_files
from learners.policy_files import fetch_policy, share_policy
from learners.tokenizing import PolicyError, load_tokenizer


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """The URI of a bucket on a server of an S3 interface, with a login."""
    from moto.server import ThreadedMotoServer  # here: it takes a second

    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    options = f"scheme=http&endpoint_override=127.0.0.1:{server.get_host_and_port()[1]}&allow_bucket_creation=true"
    pafs.FileSystem.from_uri(f"s3://name:password@policies?{options}")[0].create_dir("policies")
    yield f"s3://name:password@policies/{{}}?{options}"
    server.stop()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "warpsmith" / "policies"


def files_of(folder: str | Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", ["Qwen/Qwen2.5-0.5B", "/models/qwen", "scratch"])
def test_what_is_no_uri_is_taken_as_it_is(name: str, cache: Path) -> None:
    assert fetch_policy(name) == name
    assert not cache.exists()


def test_a_policy_travels_whole_through_an_object_store(store: str, policy_folder: Path, cache: Path) -> None:
    uri = store.format("whole")
    share_policy(policy_folder, uri)
    folder = fetch_policy(uri)
    assert Path(folder).parent == cache
    assert files_of(folder) == files_of(policy_folder)
    assert load_tokenizer(folder).encode("import torch") == load_tokenizer(policy_folder).encode("import torch")


def test_without_weights_the_small_files_alone_are_copied(store: str, policy_folder: Path) -> None:
    uri = store.format("small")
    share_policy(policy_folder, uri)
    small = files_of(fetch_policy(uri, weights=False))
    assert small == {name: data for name, data in files_of(policy_folder).items() if not name.endswith(".safetensors")}
    assert files_of(fetch_policy(uri)) == files_of(policy_folder)


def test_several_that_ask_at_once_copy_it_once(store: str, policy_folder: Path, monkeypatch) -> None:
    uri, copies, copy = store.format("once"), [], policy_files._copy
    share_policy(policy_folder, uri)
    monkeypatch.setattr(policy_files, "_copy", lambda *words: (copies.append(words[-1]), copy(*words)))
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(fetch_policy(uri))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(found)) == len(copies) == 1


def test_one_that_changed_is_copied_anew(store: str, policy_folder: Path) -> None:
    uri = store.format("changed")
    share_policy(policy_folder, uri)
    before = fetch_policy(uri)
    system, base = pafs.FileSystem.from_uri(uri)
    with system.open_output_stream(f"{base}/generation_config.json") as file:
        file.write(b'{"temperature": 0.7}')
    after = fetch_policy(uri)
    assert after != before
    assert (Path(after) / "generation_config.json").read_text() == '{"temperature": 0.7}'


def test_a_copy_that_was_cut_short_is_no_policy(store: str, policy_folder: Path, cache: Path, monkeypatch) -> None:
    uri, copy_files = store.format("cut"), pafs.copy_files
    share_policy(policy_folder, uri)

    def cut(source: str, *words: object) -> None:
        if source.endswith("model.safetensors"):
            raise OSError("the line is cut")
        copy_files(source, *words)

    monkeypatch.setattr(pafs, "copy_files", cut)
    with pytest.raises(OSError, match="the line is cut"):
        fetch_policy(uri)
    assert [path for path in cache.iterdir() if path.is_dir() and path.suffix != ".partial"] == []
    monkeypatch.setattr(pafs, "copy_files", copy_files)
    assert files_of(fetch_policy(uri)) == files_of(policy_folder)


def test_a_folder_that_is_not_complete_is_refused(store: str, policy_folder: Path) -> None:
    uri = store.format("parts")
    system, base = pafs.FileSystem.from_uri(uri)
    system.create_dir(base, recursive=True)
    for name in ("model.safetensors", "tokenizer.json"):
        pafs.copy_files(str(policy_folder / name), f"{base}/{name}", pafs.LocalFileSystem(), system)
    with pytest.raises(PolicyError, match=r"s3://policies/parts holds no config\.json with weights") as caught:
        fetch_policy(uri)
    assert "password" not in str(caught.value)
    with pytest.raises(PolicyError, match="s3://policies/nothing holds no"):
        fetch_policy(store.format("nothing"))
    with pytest.raises(PolicyError, match="nfs://there/model is no place that pyarrow knows"):
        fetch_policy("nfs://there/model")
