"""Addition: sums digit by digit, a reward for the whole answer only, and wrong sums that are always wrong."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from valuelens.models import InputError
from valuelens.models.lm import Addition, PretrainingTask, Prompt


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def read(text):
    """The summands and what stands behind the sign, by Python's own arithmetic."""
    question, _, answer = text.replace(" ", "").partition("=")
    return (*map(int, question.split("+")), answer)


@given(st.integers(1, 9), st.integers(0, 99))
def test_the_right_sum_and_nothing_else_is_rewarded(digits, seed):
    task = Addition(num_digits=digits)
    for prompt in task.prompts(5, seeded(seed)):
        a, b, rest = read(prompt.text)
        assert rest == ""
        assert max(a, b) < 10**digits
        right = " ".join(str(a + b))
        assert prompt.answer is None
        assert task.reward(prompt, right) == 1
        assert task.reward(prompt, " ".join(str(a + b + 1))) == 0
        assert len(right.split()) + 1 <= task.completion_length
        assert set(prompt.text.split()) <= set(task.vocabulary)


@pytest.mark.parametrize("completion", ["", "8", "8 3 0", "0 8 3", "83", "8 3 +", "3 8", "8 3 8 3"])
def test_what_is_not_the_sum_digit_by_digit_is_wrong(completion):
    assert Addition().reward(Prompt(text="4 4 + 3 9 ="), completion) == 0
    assert Addition().reward(Prompt(text="4 4 + 3 9 ="), "8 3") == 1


def test_prompts_differ_in_length():
    lengths = {len(prompt.text.split()) for prompt in Addition().prompts(200, seeded())}
    assert lengths >= {5, 6}


def test_a_share_of_the_corpus_has_wrong_sums():
    texts = [read(text) for text in Addition().corpus(4000, 0.25, seeded())]
    wrong = sum(int(answer) != a + b for a, b, answer in texts) / 4000
    assert wrong == pytest.approx(0.25, abs=3 * (0.25 * 0.75 / 4000) ** 0.5)
    assert all(a + b == int(answer) for a, b, answer in map(read, Addition().corpus(200, 0.0, seeded())))
    assert all(a + b != int(answer) for a, b, answer in map(read, Addition().corpus(2000, 1.0, seeded())))


def test_wrong_sums_are_uniform_among_all_others():
    task = Addition(num_digits=1)
    wrong = [int(answer) for _, _, answer in map(read, task.corpus(19_000, 1.0, seeded()))]
    counts = torch.bincount(torch.tensor(wrong), minlength=19)
    a_right = torch.tensor([min(total + 1, 19 - total) / 100 for total in range(19)])  # of 9 + 9 = 18 at most
    expected = 19_000 * (1 - a_right) / 18
    assert len(counts) == 19
    assert ((counts - expected).abs() < 4 * expected.sqrt()).all()


def test_it_is_a_task_that_can_be_pretrained_on():
    task = Addition()
    assert isinstance(task, PretrainingTask)
    assert (task.reward_range, task.completion_length, task.ends) == ((0.0, 1.0), 4, True)


@pytest.mark.parametrize("digits", [0, 10])
def test_impossible_sizes_are_refused(digits):
    with pytest.raises(InputError) as caught:
        Addition(num_digits=digits)
    told = f"num_digits must lie in 1 .. 9; found {digits}; task addition, option --num-digits"
    assert str(caught.value) == told
