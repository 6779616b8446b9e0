"""Values of secrets are masked by the names of their arguments; what only looks alike keeps its value."""

from __future__ import annotations

import pytest

from hotlap.facts import codec
from hotlap.facts.job import Job, masked, masked_line


@pytest.mark.parametrize(
    "words",
    [
        ("--hf_token", "S3CR3T"),
        ("--hf_token=S3CR3T",),
        ("--hfToken", "S3CR3T"),
        ("-token", "S3CR3T"),
        ("env", "HF_TOKEN=S3CR3T"),
        ("wandb.api_key=S3CR3T",),
        ("+logger.wandb.api-key=S3CR3T",),
        ("--db-password", "S3CR3T"),
        ("--passwd=S3CR3T",),
        ("--aws_secret_access_key", "S3CR3T"),
        ("--client-secret-value", "S3CR3T"),
        ("--credential", "S3CR3T"),
        ("--auth", "S3CR3T"),
        ("--key", "S3CR3T"),
        ("--url", "https://user:S3CR3T@host/x"),
        ("--url", "https://S3CR3T@host/x"),
        ("--url", "https://host/x?a=1&token=S3CR3T#end"),
        ("bash", "-c", "HF_TOKEN=S3CR3T python train.py --api_key 'S3CR3T'"),
        ("--config", '{"api_key": "S3CR3T", "layers": 4}'),
    ],
    ids=" ".join,
)
def test_a_secret_is_masked(words):
    hidden = " ".join(masked(words))
    assert "S3CR3T" not in hidden
    assert "***" in hidden


@pytest.mark.parametrize(
    "words",
    [
        ("--max_tokens", "512"),
        ("--tokenizer", "gpt2"),
        ("--key_dim", "64"),
        ("--num-keys", "8"),
        ("--keep", "x"),
        ("--monkey", "x"),
        ("--eos_token", "</s>"),
        ("--label-key", "target"),
        ("--author", "me"),
        ("--use_auth_token", "True"),
        ("--use-auth", "train.py"),
        ("--auth", "--epochs", "3"),
        ("--password_file", "/home/me/x"),
        ("--url", "https://host/x?tokens=5&a=b"),
        ("--lr", "1e-3", "data=/a/b", "seed=7"),
    ],
    ids=" ".join,
)
def test_what_only_looks_alike_is_left(words):
    assert masked(words) == words


def test_a_user_names_more(monkeypatch):
    words = ("--licence-no", "abc", "tracker.entry=def")
    assert masked(words) == words
    monkeypatch.setenv("HOTLAP_SECRETS", "licence_no, entry")
    assert masked(words) == ("--licence-no", "***", "tracker.entry=***")


def test_a_job_is_stored_and_shown_without_it_and_runs_with_it(tmp_path):
    job = Job(("python", "train.py", "--hf_token", "S3CR3T"), "/x", "train")
    codec.write_json(tmp_path / "job.json", job)
    assert job.argv[-1] == "S3CR3T"
    assert job.shown == "python train.py --hf_token '***'"
    assert codec.read_json(tmp_path / "job.json", Job).argv == ("python", "train.py", "--hf_token", "***")
    assert masked_line("python train.py --hf_token S3CR3T") == job.shown
    assert masked_line("python 'a b.py' --lr 1") == "python 'a b.py' --lr 1"
