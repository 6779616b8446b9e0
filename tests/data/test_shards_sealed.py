"""pack.json: comes back as it was, and says so when it has been changed."""

from __future__ import annotations

import json

import pytest

from hotlap.data.shards import SEAL, Seal, Shard, ShardFileInfo, file_digest, read_seal, seal_text
from hotlap.errors import HotlapError


@pytest.fixture
def seal() -> Seal:
    template = {"tuple": ["tensor", {"dict": {"a": "value"}}]}
    shards = (Shard("shard_0.tar", 3), Shard("shard_1.tar", 2))
    return Seal("tar", "0123", "data/Größe", 5, shards, {"shard_0.tar": ShardFileInfo(10, "ab")}, template)


def test_it_comes_back_as_it_was(seal, tmp_path):
    (tmp_path / SEAL).write_text(seal_text(seal))
    assert read_seal(tmp_path) == seal
    assert read_seal(tmp_path / "elsewhere") is None


def test_a_change_anywhere_is_seen(seal, tmp_path):
    plain = json.loads(seal_text(seal))
    for name in ("format", "job", "source", "samples"):
        changed = {**plain, name: plain[name] + type(plain[name])(1)}
        (tmp_path / SEAL).write_text(json.dumps(changed))
        with pytest.raises(HotlapError, match="has been changed since"):
            read_seal(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[1]", '"text"', '{"schema": 99, "seal": ""}', "{}"])
def test_what_is_no_seal_is_refused(text, tmp_path):
    (tmp_path / SEAL).write_text(text)
    with pytest.raises(HotlapError, match=r"pack\.json"):
        read_seal(tmp_path)


def test_a_digest_is_of_the_bytes(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    assert file_digest(tmp_path / "a") == ShardFileInfo(
        3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    )
