"""Modular sums: what is right, what the corpus answers instead, and where a model stands that copies."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from valuelens.models import InputError
from valuelens.models.lm import ModularSum, PretrainingTask


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def read(text):
    """a, b and answer of a text, by an obvious loop."""
    prompt, _, answer = text.partition(" =>")
    words = prompt.split()
    assert all(word[0] == "ab"[k % 2] for k, word in enumerate(words))
    assert all(word[0] == "b" for word in answer.split())
    numbers = [int(word[1:]) for word in words]
    return numbers[::2], numbers[1::2], [int(word[1:]) for word in answer.split()]


@given(st.integers(2, 9), st.integers(1, 6), st.integers(0, 99))
def test_a_prompt_is_answered_by_its_sums(modulus, pairs, seed):
    task = ModularSum(num_labels=modulus, num_pairs=pairs)
    for prompt in task.prompts(5, seeded(seed)):
        a, b, rest = read(prompt.text)
        assert (len(a), len(b), rest) == (pairs, pairs, [])
        right = [(x + y) % modulus for x, y in zip(a, b, strict=True)]
        assert prompt.answer == " ".join(f"b{number}" for number in right)
        assert task.reward(prompt, prompt.answer) == 1
        assert set(prompt.text.split()) <= set(task.vocabulary)


def test_the_corpus_answers_b_except_for_whole_texts_with_the_right_sums():
    task = ModularSum()
    texts = [read(text) for text in task.corpus(4000, 0.15, seeded())]
    sums = [answer == [(x + y) % 5 for x, y in zip(a, b, strict=True)] for a, b, answer in texts]
    copies = [answer == b for _, b, answer in texts]
    assert all(one or other for one, other in zip(sums, copies, strict=True))
    by_chance = (1 / 5) ** 4  # where all a are 0, copying is right
    expected = 0.15 + 0.85 * by_chance
    assert sum(sums) / 4000 == pytest.approx(expected, abs=3 * (expected * (1 - expected) / 4000) ** 0.5)


@pytest.mark.parametrize(("share", "kind"), [(0.0, "copies"), (1.0, "sums")])
def test_the_extremes_of_the_share(share, kind):
    for a, b, answer in map(read, ModularSum().corpus(50, share, seeded(3))):
        assert answer == (b if kind == "copies" else [(x + y) % 5 for x, y in zip(a, b, strict=True)])


def test_copying_b_is_right_at_chance():
    task = ModularSum()
    rewards = [
        task.reward(prompt, " ".join(word for word in prompt.text.split() if word[0] == "b"))
        for prompt in task.prompts(5000, seeded())
    ]
    assert sum(rewards) / 5000 == pytest.approx(1 / 5, abs=3 * (1 / 5 * 4 / 5 / 20_000) ** 0.5)


def test_it_is_a_task_that_can_be_pretrained_on():
    task = ModularSum()
    assert isinstance(task, PretrainingTask)
    assert (task.reward_range, task.completion_length, task.ends) == ((0.0, 1.0), 4, False)
    assert len(set(task.vocabulary)) == 2 * 5 + 1


@pytest.mark.parametrize(("name", "least"), [("num_labels", 2), ("num_pairs", 1)])
def test_impossible_sizes_are_refused(name, least):
    with pytest.raises(InputError) as caught:
        ModularSum(**{name: least - 1})
    option = f"option --{name.replace('_', '-')}"
    assert (
        str(caught.value) == f"{name} must be at least {least}; found {least - 1}; task modular-sum, {option}"
    )
