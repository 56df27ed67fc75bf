"""Counterfactual prompts change what their names say, and nothing else."""

import torch

from valuelens.models.icrl import Context, TaskConfig, context_of, counterfactuals, task_sampler


def drawn() -> tuple[Context, dict[str, Context]]:
    generator = torch.Generator().manual_seed(3)
    mrp, states = task_sampler(TaskConfig(), generator).sample(40, 30, generator, torch.float64)
    context = context_of(mrp, states)
    return context, counterfactuals(context, torch.Generator().manual_seed(7))


def test_one_thing_changes_in_each() -> None:
    context, changed = drawn()
    reward = changed["one reward"]
    assert ((reward.rewards != context.rewards).sum(1) == 1).all()
    torch.testing.assert_close(reward.features, context.features, rtol=0, atol=0)
    successor = changed["one successor"]
    moved = (successor.features != context.features).any(-1).sum(1)
    assert int(moved.max()) == 1
    assert float((moved == 1).double().mean()) > 0.5  # another column may hold the same state
    torch.testing.assert_close(successor.rewards, context.rewards, rtol=0, atol=0)


def test_states_features_and_rewards_stay_together() -> None:
    context, changed = drawn()
    for name in ("repetition", "order", "shorter"):
        prompt = changed[name]
        pay = {
            (task, int(s)): float(r)
            for task in range(40)
            for s, r in zip(context.states[task, :-1], context.rewards[task], strict=True)
        }
        for task in range(40):
            rewards = [pay[task, int(s)] for s in prompt.states[task, :-1]]
            torch.testing.assert_close(prompt.rewards[task], torch.tensor(rewards, dtype=torch.float64))
        torch.testing.assert_close(prompt.features[:, -1], context.features[:, -1])


def test_order_keeps_every_transitions_own_reward_and_repetition_repeats_two() -> None:
    context, changed = drawn()
    torch.testing.assert_close(changed["order"].rewards.sort(1).values, context.rewards.sort(1).values)
    assert bool((changed["order"].states != context.states).any())
    repeated = changed["repetition"].states
    for task in range(40):
        pairs = [tuple(repeated[task, k : k + 2].tolist()) for k in range(29)]
        assert any(pairs[k] == pairs[k + 2] for k in range(27))
    assert changed["shorter"].num_transitions == 20


def test_scales_are_scales_and_the_generator_decides() -> None:
    context, changed = drawn()
    torch.testing.assert_close(3 * changed["small features"].features, context.features)
    torch.testing.assert_close(changed["large features"].features, 3 * context.features)
    torch.testing.assert_close(changed["reward scale"].rewards, 3 * context.rewards)
    again = counterfactuals(context, torch.Generator().manual_seed(7))
    other = counterfactuals(context, torch.Generator().manual_seed(8))
    torch.testing.assert_close(again["order"].states, changed["order"].states, rtol=0, atol=0)
    assert bool((other["order"].states != changed["order"].states).any())
