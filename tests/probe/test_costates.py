"""The costate recursion against a loop over single numbers."""

import torch

from valuelens.probe import closed_loop, costate_recursion


def test_closed_loop_adds_the_path_through_the_policy(generator: torch.Generator) -> None:
    by_state, by_action, mean = (
        torch.randn(shape, generator=generator, dtype=torch.float64)
        for shape in ((2, 3, 4, 4), (2, 3, 4, 2), (2, 3, 2, 4))
    )
    found = closed_loop(by_state, by_action, mean)
    torch.testing.assert_close(found[1, 2], by_state[1, 2] + by_action[1, 2] @ mean[1, 2])
    reward = closed_loop(by_state[..., 0], by_action[..., 0, :], mean)
    torch.testing.assert_close(reward[0, 1], by_state[0, 1, :, 0] + by_action[0, 1, 0] @ mean[0, 1])


def test_the_recursion_is_a_sum_over_later_rewards(generator: torch.Generator) -> None:
    reward = torch.randn(1, 4, 3, generator=generator, dtype=torch.float64)
    dynamics = torch.randn(1, 4, 3, 3, generator=generator, dtype=torch.float64)
    found = costate_recursion(reward, dynamics, gamma=0.7)
    for t in range(4):
        expected, path = torch.zeros(3, dtype=torch.float64), torch.eye(3, dtype=torch.float64)
        for k in range(t, 4):
            expected = expected + 0.7 ** (k - t) * path.mT @ reward[0, k]
            path = dynamics[0, k] @ path
        torch.testing.assert_close(found[0, t], expected)
    assert not bool(found[0, -1].any())
