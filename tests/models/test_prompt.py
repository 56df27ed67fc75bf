"""Prompt matrices of a two-transition context, written out."""

import pytest
import torch
from torch.testing import assert_close

from valuelens.models.icrl import Context, linear_prompt, softmax_prompt, softmax_slots, token_prompt
from valuelens.models.icrl._prompt import source_mask


@pytest.fixture
def context():
    """x = 1, 2, 3 in the first slot and 10, 20, 30 in the second; R = 5, 6."""
    features = torch.tensor([[[1.0, 10], [2, 20], [3, 30]]])
    return Context(
        states=torch.tensor([[0, 1, 2]]), features=features, rewards=torch.tensor([[5.0, 6]]), gamma=0.5
    )


QUERIES = torch.tensor([[[4.0, 40], [7, 70]]])


def test_softmax_prompt(context):
    columns = [[1.0, 10, 5, 0, 0], [2, 20, 6, 0, 0], [3, 30, 0, 0, 0], [4, 40, 0, 0, 0], [7, 70, 0, 0, 0]]
    assert_close(softmax_prompt(context), torch.tensor([columns[:3]]))
    assert_close(softmax_prompt(context, QUERIES), torch.tensor([columns]))


def test_softmax_slots_are_the_columns_of_its_prompt(context):
    z, slots = softmax_prompt(context), softmax_slots(2)
    assert_close(z[..., slots["features"]], context.features)
    assert_close(z[:, :2, slots["reward"]], context.rewards[..., None])
    assert [slots[name].indices(5) for name in ("target", "current")] == [(3, 4, 1), (4, 5, 1)]


def test_linear_prompt(context):
    columns = [[1.0, 10, 1, 10, 5], [2, 20, 1.5, 15, 6], [3, 30, 0, 0, 0], [4, 40, 0, 0, 0], [7, 70, 0, 0, 0]]
    assert_close(linear_prompt(context), torch.tensor([columns[:3]]))
    assert_close(linear_prompt(context, QUERIES), torch.tensor([columns]))


def test_token_prompt(context):
    columns = [[1.0, 10, 5, 0], [2, 20, 6, 0], [3, 30, 0, 1], [4, 40, 0, 1], [7, 70, 0, 1]]
    assert_close(token_prompt(context), torch.tensor([columns[:3]]))
    assert_close(token_prompt(context, QUERIES), torch.tensor([columns]))


def test_source_mask_hides_the_queries():
    like = torch.zeros(1, dtype=torch.float64)
    hidden = -torch.inf
    assert_close(source_mask(4, 1, like), torch.tensor([0, 0, 0, hidden], dtype=torch.float64))
    assert_close(source_mask(4, 3, like), torch.tensor([0, hidden, hidden, hidden], dtype=torch.float64))
