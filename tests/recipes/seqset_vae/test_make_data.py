"""The data: what is known of it is in it, and it is the same however it is written."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from hotlap_recipes.seqset_vae import FACTORS, LARGEST_SET, make_data


@pytest.fixture(scope="module")
def world():
    return make_data.World.drawn(3, width=64)


def test_factors_can_be_read_from_the_events(world):
    """Even ones from the mean of all events, odd ones only together with the time of day."""
    subjects = [make_data.draw_subject(world, number, 3, (200, 300)) for number in range(40)]
    known = np.array([subject.factors for subject in subjects])

    def found(weights_of):
        rows = []
        for subject in subjects:
            weights = np.repeat(weights_of(subject.minutes), subject.sizes)
            mean = (weights[:, None] * subject.events).sum(0) / len(subject.events)
            rows.append(np.linalg.lstsq(world.directions.T, mean, rcond=None)[0])
        rows = np.array(rows)
        return np.array([np.corrcoef(rows[:, each], known[:, each])[0, 1] for each in range(FACTORS)])

    plain = found(np.ones_like)
    by_time = found(lambda minutes: np.cos(2 * np.pi * minutes / make_data.DAY))
    assert plain[0::2].min() > 0.9
    assert by_time[1::2].min() > 0.9
    assert plain[1::2].mean() < 0.7


def test_embeddings_have_variance_one_in_the_shares_that_are_told(world):
    events = np.concatenate(
        [make_data.draw_subject(world, number, 3, (12, 200)).events for number in range(60)]
    ).astype(float)
    assert events.var() == pytest.approx(1.0, abs=0.1)
    assert make_data.CODE_SHARE + make_data.FACTOR_SHARE + make_data.NOISE_SHARE == 1.0


def test_lengths_are_log_normal_within_their_bounds():
    world = make_data.World.drawn(0, width=1)
    subjects = [make_data.draw_subject(world, number, 0, (12, 1000)) for number in range(1500)]
    lengths = np.array([len(subject.sizes) for subject in subjects])
    assert (lengths.min() >= 12, lengths.max()) == (True, 1000)
    inner = np.log(lengths[(lengths > 12) & (lengths < 1000)])
    assert np.exp(np.median(inner)) == pytest.approx(make_data.MEDIAN_LENGTH, rel=0.1)
    assert inner.std() == pytest.approx(make_data.SPREAD, rel=0.1)
    sizes = np.concatenate([subject.sizes for subject in subjects])
    assert set(sizes) == set(range(1, LARGEST_SET + 1))


def test_the_outcome_depends_on_factors():
    world = make_data.World.drawn(0, width=1)
    subjects = [make_data.draw_subject(world, number, 0, (12, 12)) for number in range(400)]
    score = np.array([subject.factors[0] - subject.factors[2] for subject in subjects])
    outcome = np.array([subject.outcome for subject in subjects])
    assert ((score > 0) == outcome).mean() > 0.75
    assert 0.4 < outcome.mean() < 0.6


def test_a_subject_is_the_same_whichever_others_are_asked_for(world):
    alone = make_data.draw_subject(world, 7, 3, (12, 1000))
    again = make_data.draw_subject(world, 7, 3, (12, 1000))
    other = make_data.draw_subject(world, 8, 3, (12, 1000))
    np.testing.assert_array_equal(alone.events, again.events)
    assert not np.array_equal(alone.factors, other.factors)


def test_both_layouts_hold_the_same_events(tmp_path):
    files, flat = (
        make_data.write_subjects(tmp_path / layout, (3, 1, 1), 8, (4, 9), layout)
        for layout in ("files", "flat")
    )
    one_by_one = pd.concat(pd.read_parquet(path) for path in sorted((files / "train").iterdir()))
    pd.testing.assert_frame_equal(
        one_by_one.reset_index(drop=True), pd.read_parquet(flat / "train.parquet"), check_dtype=True
    )
    table = pd.read_parquet(files / "subjects.parquet")
    assert list(table["split"]) == ["train"] * 3 + ["valid", "test"]
    assert table["subject"].is_unique
    sets = one_by_one.groupby("subject")["set"].nunique()
    assert list(sets) == list(table["sets"][:3])


def test_the_command_writes_and_does_not_overwrite(tmp_path, capsys):
    words = [
        "--out",
        str(tmp_path / "data"),
        "--subjects",
        "2",
        "1",
        "1",
        "--width",
        "4",
        "--lengths",
        "4",
        "6",
    ]
    make_data.main(words)
    assert "wrote 4 subjects" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        make_data.main(words)
    assert "subjects.parquet exists. Remove it" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        make_data.main(["--out", str(tmp_path / "other"), "--subjects", "2", "0", "1"])
    assert "every split needs a subject" in capsys.readouterr().err
