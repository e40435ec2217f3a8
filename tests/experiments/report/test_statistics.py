"""Statistics against numbers worked out by hand."""

import numpy as np
import pytest

from caql.experiments.report.statistics import (
    RESAMPLES,
    band,
    best_return,
    fall_back,
    interquartile_mean,
    kept,
    last_return,
    second_half_return,
    summarise,
    windows,
)


def test_only_whole_windows_of_six():
    assert windows([0, 6, 12, 18, 24, 30, 36, 42]).tolist() == [15, 21, 27]


def test_a_curve_shorter_than_a_window_is_one_mean():
    assert windows([1, 2, 6]).tolist() == [3]


def test_last_return_is_the_mean_of_six():
    assert last_return([100, 0, 0, 0, 0, 0, 60]) == 10


def test_best_return_is_the_95th_percentile_of_the_windows():
    # Constant stretches: windows are 0..20, so the 95th percentile of 21 equally spaced values is the 20th: 19.
    values = [float(v) for v in range(-5, 21)]
    smoothed = windows(values)
    assert smoothed.tolist() == [v - 2.5 for v in range(21)]
    assert best_return(values) == pytest.approx(19 - 2.5)


def test_a_spike_of_one_evaluation_counts_a_sixth():
    assert best_return([0.0] * 5 + [600.0] + [0.0] * 5) == pytest.approx(100)


def test_what_is_kept_is_the_best_so_far_and_of_equals_the_later():
    assert kept([-np.inf, 3.0, 2.0, 3.0, -np.inf, 5.0, 4.0]).tolist() == [0, 1, 1, 3, 3, 5, 5]


def test_interquartile_mean_cuts_a_quarter_at_either_end():
    assert interquartile_mean(np.array([1000.0, 1, 2, 3, 4, -900, 5, 6])) == pytest.approx((2 + 3 + 4 + 5) / 4)
    assert interquartile_mean(np.array([1.0, 2, 9])) == pytest.approx(4)


def test_summary_by_hand():
    found = summarise([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0])
    assert (found.runs, found.mean) == (8, 5.0)
    assert found.std == pytest.approx(np.sqrt(32 / 7))
    assert found.iqm == pytest.approx((4 + 4 + 5 + 5) / 4)
    assert found.low < found.iqm < found.high


def test_a_single_run_has_no_spread():
    assert summarise([7.0]) == (1, 7.0, 0.0, 7.0, 7.0, 7.0)


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(1)
    hits = sum(found.low <= 0 <= found.high for found in (summarise(rng.normal(size=20).tolist()) for _ in range(200)))
    assert 170 <= hits <= 200


def test_band_is_taken_at_shared_steps():
    steps = np.arange(8) * 10
    one, two = (steps, np.arange(8.0)), (steps[:7], np.arange(7.0) + 4)
    found = band([one, two])
    assert found.steps.tolist() == [50, 60]
    assert found.mean.tolist() == [4.5, 5.5]
    assert found.std.tolist() == [2, 2]


def test_second_half_starts_in_the_middle_of_training():
    assert second_half_return([100, 100, 4, 5, 6]) == 5
    assert second_half_return([100, 100, 5, 6]) == 5.5
    assert second_half_return([7]) == 7


def test_fall_is_from_the_best_window_to_the_last():
    assert fall_back([0.0] * 6 + [12.0] * 6 + [6.0] * 3) == pytest.approx(12 - 9)
    assert fall_back([*range(20)]) == 0
    assert fall_back([5, 3]) == 0


def test_the_interval_holds_ninety_five_of_a_hundred_resampled_means():
    sample = np.arange(20.0) ** 2
    draws = np.random.default_rng(0).integers(20, size=(RESAMPLES, 20))
    means = interquartile_mean(sample[draws])
    found = summarise(sample.tolist())
    inside = np.mean((means >= found.low) & (means <= found.high))
    assert inside == pytest.approx(0.95, abs=0.002)
    assert np.mean(means < found.low) == pytest.approx(0.025, abs=0.002)
