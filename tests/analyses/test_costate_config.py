"""Layers by expressions, and options that are not offered."""

import pytest

from valuelens.analyses._costate_config import CostateConfig, Update, chosen_layers
from valuelens.models import InputError
from valuelens.probe import Sampling


@pytest.mark.parametrize(
    ("expressions", "num_layers", "expected"),
    [
        (("0", "L//2", "3L//4"), 30, [0, 15, 22]),
        (("0", "L//2", "3L//4"), 1, [0]),
        (("L-1", "L"), 4, [3, 4]),
        (("2", " L // 2 ", "1"), 4, [1, 2]),
        (("all",), 3, [0, 1, 2]),
    ],
)
def test_layers(expressions: tuple[str, ...], num_layers: int, expected: list[int]) -> None:
    assert chosen_layers(expressions, num_layers) == expected


@pytest.mark.parametrize(
    ("expressions", "message"),
    [
        (("L/2",), "a layer is a number or an expression in L"),
        (("-1",), "a layer is a number or an expression in L"),
        (("5",), r"must lie in 0..4 \(4 is after the final norm\); found 5; option --layers"),
        (("L-5",), "found L-5 = -1"),
        ((), "there must be a layer; found none; option --layers"),
    ],
)
def test_layers_that_are_none(expressions: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        chosen_layers(expressions, 4)


@pytest.mark.parametrize(
    ("part", "field", "value", "message"),
    [
        (
            "",
            "objective",
            "rewards",
            "--objective takes surrogate, reward; found 'rewards' .did you mean reward..; option --objective",
        ),
        ("", "positions", "all", "--positions takes completion, prompt; found 'all'"),
        ("update", "baseline", "critic", "--baseline takes group-mean, leave-one-out; found 'critic'"),
        ("update", "loss_type", "gspo", "--loss-type takes none, grpo, bnpo, dapo, dr_grpo; found 'gspo'"),
        ("update", "loss_type", "cispo", "found 'cispo' .its clipped weights multiply the log-probability"),
        ("update", "scale_rewards", "std", "--scale-rewards takes none, group, batch; found 'std'"),
        ("update", "max_completion_length", -1, "--max-completion-length must be at least 0; found -1"),
        ("", "micro_batch", 0, "--micro-batch must be at least 1; found 0"),
        ("sampling", "temperature", 0.0, "the temperature must be above 0; found 0"),
        ("sampling", "top_p", 0.0, r"top-p must lie in \(0, 1\]; found 0"),
        ("sampling", "top_k", -1, "--top-k must be at least 0; found -1"),
    ],
)
def test_options_that_are_not_offered(part: str, field: str, value: object, message: str) -> None:
    """Without the check of types that tests have and users have not."""
    config = CostateConfig(update=Update(), sampling=Sampling())
    object.__setattr__(getattr(config, part) if part else config, field, value)
    with pytest.raises(InputError, match=message):
        config.__post_init__()
