"""Bad settings of a ranking say what is offered."""

from typing import Any

import pytest

from valuelens.analyses.impact import BETA, ScoreConfig
from valuelens.models import InputError


@pytest.mark.parametrize("beta", [0.0, -1.0, float("nan"), float("inf")])
def test_beta_must_be_above_zero(beta: float) -> None:
    assert ScoreConfig().beta == BETA
    with pytest.raises(InputError, match="beta must be above 0; found"):
        ScoreConfig(beta=beta)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"micro_batch": 0}, "--micro-batch must be at least 1; found 0; option --micro-batch"),
        ({"micro_batch": -64}, "--micro-batch must be at least 1; found -64"),
        ({"max_hops": -1}, "--max-hops must be at least 0; found -1"),
        ({"tolerance": -0.1}, "--tolerance must be at least 0; found -0.1"),
        ({"tolerance": float("nan")}, "--tolerance must be at least 0; found nan"),
        ({"k": 0}, "k must be at least 1; found 0"),
    ],
)
def test_numbers_out_of_range_are_refused(given: dict[str, Any], told: str) -> None:
    """Before a model is loaded; a micro-batch of 0 would end in a traceback."""
    with pytest.raises(InputError, match=told):
        ScoreConfig(**given)


@pytest.mark.parametrize(
    ("name", "offered"),
    [
        ("signal", "--signal takes auto, subtractive, usable, update-aligned; found 'x'"),
        ("headroom", "--headroom takes tilt"),
    ],
)
def test_variants_have_names(name: str, offered: str) -> None:
    config = ScoreConfig()
    object.__setattr__(config, name, "x")
    with pytest.raises(InputError, match=offered):
        config.__post_init__()
