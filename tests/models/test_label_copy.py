"""Label copying: what stands in a prompt, what is right, what a shuffled text is, and that two rewards are one."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from valuelens.models import InputError
from valuelens.models.lm import LabelCopy, PretrainingTask, Prompt


def sizes():
    return st.builds(
        lambda pairs, more, labels: LabelCopy(num_items=pairs + more, num_labels=labels, num_pairs=pairs),
        st.integers(1, 8),
        st.integers(0, 5),
        st.integers(2, 7),
    )


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def read(text, task):
    """Items, labels and answer of a text, by an obvious loop."""
    prompt, _, answer = text.partition(" =>")
    words = prompt.split()
    assert len(words) == 2 * task.num_pairs
    return words[::2], words[1::2], answer.split()


@given(sizes(), st.integers(0, 99))
def test_a_prompt_holds_distinct_items_and_is_answered_by_its_labels(task, seed):
    for prompt in task.prompts(5, seeded(seed)):
        items, labels, rest = read(prompt.text, task)
        assert rest == []
        assert len(set(items)) == task.num_pairs
        assert set(items) <= {f"i{k}" for k in range(task.num_items)}
        assert set(labels) <= {f"L{k}" for k in range(task.num_labels)}
        assert prompt.answer.split() == labels
        assert len(labels) == task.completion_length
        assert set(prompt.text.split()) <= set(task.vocabulary)
        assert task.reward(prompt, prompt.answer) == 1


@given(sizes(), st.integers(0, 99))
def test_a_text_is_a_prompt_with_an_answer_of_its_own_labels(task, seed):
    for share in (0.0, 1.0):
        texts = [read(text, task) for text in task.corpus(20, share, seeded(seed))]
        assert all(sorted(labels) == sorted(answer) for _, labels, answer in texts)
        if share == 0:
            assert all(labels == answer for _, labels, answer in texts)


def test_the_share_of_shuffled_texts_is_as_asked():
    """With 6 pairs and a label of its own for nearly each, an order is right by chance in 1 of 720."""
    task = LabelCopy(num_labels=100_000)
    texts = [read(text, task) for text in task.corpus(4000, 0.3, seeded())]
    moved = sum(labels != answer for _, labels, answer in texts) / 4000
    assert moved == pytest.approx(0.3 * 719 / 720, abs=3 * (0.3 * 0.7 / 4000) ** 0.5)


def test_every_order_is_as_likely_as_another():
    task = LabelCopy(num_items=3, num_labels=100_000, num_pairs=3)
    orders = {order: 0 for order in itertools.permutations(range(3))}
    for text in task.corpus(6000, 1.0, seeded()):
        _, labels, answer = read(text, task)
        if len(set(labels)) == 3:
            orders[tuple(labels.index(label) for label in answer)] += 1
    assert min(orders.values()) > 900
    assert max(orders.values()) < 1100


def test_random_labels_are_right_at_chance():
    task, generator = LabelCopy(), seeded(1)
    prompts = task.prompts(5000, seeded())
    guesses = torch.randint(task.num_labels, (5000, task.num_pairs), generator=generator).tolist()
    rewards = [
        task.reward(prompt, " ".join(f"L{label}" for label in guess))
        for prompt, guess in zip(prompts, guesses, strict=True)
    ]
    error = (1 / 6 * 5 / 6 / (5000 * 6)) ** 0.5
    assert sum(rewards) / 5000 == pytest.approx(1 / 6, abs=3 * error)


@pytest.mark.parametrize(
    ("completion", "reward"),
    [("L1 L0 L1", 1), ("L1 L0", 2 / 3), ("", 0), ("L0 L1 L0", 0), ("L1 L0 L1 L5", 1), ("L0 L1 L0 L1", 0)],
)
def test_the_reward_counts_words_in_their_places(completion, reward):
    task = LabelCopy(num_pairs=3)
    prompt = Prompt(text="i3 L1 i0 L0 i1 L1 =>", answer="L1 L0 L1")
    assert task.reward(prompt, completion) == pytest.approx(reward)


def test_the_sampled_and_the_differentiable_reward_have_the_same_value():
    """By enumeration, for completions whose tokens depend on one another."""
    task = LabelCopy(num_labels=3, num_pairs=3)
    prompt = task.prompts(1, seeded())[0]
    right = [int(word[1:]) for word in prompt.answer.split()]
    logits = torch.randn(4, 4, 4, 3, dtype=torch.float64, generator=seeded(2))  # by the tokens so far
    sampled = differentiable = torch.tensor(0.0, dtype=torch.float64)
    for tokens in itertools.product(range(3), repeat=3):
        p = [logits[(*tokens[:k], *[3] * (3 - k))].softmax(0) for k in range(3)]
        probability = p[0][tokens[0]] * p[1][tokens[1]] * p[2][tokens[2]]
        sampled = sampled + probability * task.reward(prompt, " ".join(f"L{token}" for token in tokens))
        differentiable = differentiable + probability * sum(p[k][right[k]] for k in range(3)) / 3
    torch.testing.assert_close(sampled, differentiable, rtol=0, atol=1e-12)


def test_the_same_seed_draws_the_same():
    task = LabelCopy()
    assert task.corpus(3, 0.5, seeded(4)) == task.corpus(3, 0.5, seeded(4))
    assert task.corpus(3, 0.5, seeded(4)) != task.corpus(3, 0.5, seeded(5))
    assert task.prompts(3, seeded(4)) == task.prompts(3, seeded(4))


def test_it_is_a_task_that_can_be_pretrained_on():
    task = LabelCopy()
    assert isinstance(task, PretrainingTask)
    assert (task.reward_range, task.completion_length, task.ends) == ((0.0, 1.0), 6, False)
    assert len(task.vocabulary) == 12 + 6 + 1


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"num_pairs": 0}, "num_pairs must be at least 1; found 0; task label-copy, option --num-pairs"),
        ({"num_labels": 1}, "num_labels must be at least 2; found 1; task label-copy, option --num-labels"),
        (
            {"num_items": 5},
            "num_items must be at least num_pairs, 6 (the items of a prompt are distinct); found 5; "
            "task label-copy, option --num-items",
        ),
    ],
)
def test_impossible_sizes_are_refused(wrong, text):
    with pytest.raises(InputError) as caught:
        LabelCopy(**wrong)
    assert str(caught.value) == text
