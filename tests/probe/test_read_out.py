"""Any module, by submodule name: what was shown, and never a silent zero or a silent choice."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from transformer_lens.hook_points import HookPoint

from valuelens.probe import HookError, linear_read_out, submodule_outputs


class Words(nn.Module):
    """Returns no tensor."""

    def forward(self, x: Tensor) -> str:
        return "words"


class Parts(nn.Module):
    """A tuple, a hook point, one module used twice under two names, one never used."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 2, batch_first=True)
        self.hook_doubled = HookPoint()
        self.shared = nn.Linear(2, 2)
        self.alias = self.shared
        self.unused = nn.Identity()
        self.words = Words()

    def forward(self, x: Tensor) -> Tensor:
        hidden, _ = self.lstm(x)
        self.words(x)
        return self.alias(self.shared(self.hook_doubled(2 * hidden)))


def inputs() -> tuple[Tensor]:
    return (torch.randn(4, 5, 3, generator=torch.Generator().manual_seed(0)),)


def hooks_of(module: nn.Module) -> int:
    return sum(len(each._forward_hooks) for each in module.modules())


def test_outputs_are_those_of_the_submodules_detached() -> None:
    parts = Parts()
    output, seen = submodule_outputs(parts, inputs(), ["lstm", "hook_doubled"])
    hidden = parts.lstm(*inputs())[0].detach()
    assert torch.equal(seen["lstm"], hidden)
    assert torch.equal(seen["hook_doubled"], 2 * hidden)
    assert torch.equal(output, parts(*inputs()).detach())
    assert not output.requires_grad
    assert not any(shown.requires_grad for shown in seen.values())
    assert hooks_of(parts) == 0


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "lsmt",
            "a hook must be the name of a submodule; found no 'lsmt' among lstm, hook_doubled, shared, unused, ..."
            "; hook lsmt",
        ),
        ("unused", "a call must reach a hook once; found it idle; hook unused"),
        ("shared", "a call must reach a hook once; found a second time; hook shared"),
        ("alias", "a call must reach a hook once; found a second time; hook alias"),
        ("words", "a hook must show a tensor, or a tuple that begins with one; found str; hook words"),
    ],
)
def test_a_hook_that_does_not_show_one_tensor_is_refused(name: str, text: str) -> None:
    parts = Parts()
    with pytest.raises(HookError) as caught:
        submodule_outputs(parts, inputs(), ["lstm", name])
    assert str(caught.value) == text
    assert hooks_of(parts) == 0


def test_hooks_are_gone_after_the_forward_pass_raised() -> None:
    parts, wrong = Parts(), torch.zeros(4, 5, 7)
    with pytest.raises(RuntimeError):
        submodule_outputs(parts, (wrong,), ["lstm"])
    assert hooks_of(parts) == 0


def test_what_only_passes_through_is_detached_too() -> None:
    x = torch.ones(2, 3, requires_grad=True)
    _, seen = submodule_outputs(nn.Sequential(nn.Identity(), nn.Flatten()), (x,), ["0"])
    assert not seen["0"].requires_grad


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_a_planted_direction_is_found() -> None:
    shown, direction = drawn(0, 40, 6), drawn(1, 6)
    assert_close(linear_read_out(shown, shown @ direction), direction, rtol=0, atol=1e-12)


def test_of_several_directions_the_shortest_is_found() -> None:
    """Where what is shown lies in a subspace, the direction has no part outside it."""
    basis = torch.linalg.qr(drawn(0, 6, 3)).Q
    shown, inside = drawn(1, 40, 3) @ basis.mT, basis @ drawn(2, 3)
    found = linear_read_out(
        shown, shown @ (inside + (torch.eye(6).double() - basis @ basis.mT) @ drawn(3, 6))
    )
    assert_close(found, inside, rtol=0, atol=1e-12)


def test_noise_is_averaged() -> None:
    """Least squares: the error of the direction falls with the square root of the samples (law with a slope)."""
    direction, errors = drawn(9, 3), []
    for count in (100, 10_000):
        trials: list[Any] = []
        for seed in range(20):
            shown = drawn(seed, count, 3)
            noisy = shown @ direction + drawn(100 + seed, count)
            trials.append((linear_read_out(shown, noisy) - direction).norm())
        errors.append(torch.stack(trials).mean())
    assert_close(errors[0] / errors[1], torch.tensor(10.0, dtype=torch.float64), rtol=0.25, atol=0)
