"""The mismatch of log-probabilities against the median of a list."""

import math
import statistics

import pytest
import torch

from valuelens.probe import LOG_PROB_MISMATCH_LIMIT, log_prob_mismatch


@pytest.mark.parametrize("lengths", [[4, 2, 1], [4, 3, 1]])
def test_it_is_the_median_over_tokens_that_were_scored(
    lengths: list[int], generator: torch.Generator
) -> None:
    recomputed, logged = torch.randn(2, 3, 4, generator=generator, dtype=torch.float64)
    valid = torch.arange(4) < torch.tensor(lengths)[:, None]
    logged[0, 1] = torch.nan
    differences = [
        abs(float(recomputed[i, k] - logged[i, k]))
        for i in range(3)
        for k in range(lengths[i])
        if (i, k) != (0, 1)
    ]
    assert log_prob_mismatch(recomputed, logged, valid) == pytest.approx(statistics.median(differences))


def test_one_token_far_off_does_not_count_and_a_wrong_temperature_does(generator: torch.Generator) -> None:
    logits = torch.randn(50, 20, 30, generator=generator)
    logged = logits.log_softmax(-1)[..., 0]
    far = logged.clone()
    far[0, 0] -= 5
    valid = torch.ones(50, 20, dtype=torch.bool)
    assert log_prob_mismatch(far, logged, valid) < LOG_PROB_MISMATCH_LIMIT
    assert log_prob_mismatch((logits / 0.7).log_softmax(-1)[..., 0], logged, valid) > LOG_PROB_MISMATCH_LIMIT


def test_nothing_scored_is_no_number() -> None:
    assert math.isnan(log_prob_mismatch(torch.zeros(1, 1), torch.zeros(1, 1), torch.zeros(1, 1).bool()))
