"""Best of k against all subsets, and its limits."""

from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from valuelens.probe import best_of_k


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=7), st.data())
def test_it_is_the_mean_over_all_subsets(rewards: list[int], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(rewards)))
    every = [max(chosen) for chosen in combinations(rewards, k)]
    assert best_of_k(torch.tensor(rewards, dtype=torch.float64), k) == pytest.approx(sum(every) / len(every))


@pytest.mark.parametrize("k", [0, 4])
def test_k_must_be_possible(k: int) -> None:
    with pytest.raises(ValueError, match=f"k must lie in 1..3, the number of rollouts; found {k}"):
        best_of_k(torch.zeros(3), k)
