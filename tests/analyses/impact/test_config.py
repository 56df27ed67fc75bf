"""Bad settings of a ranking say what is offered."""

import pytest

from valuelens.analyses.impact import BETA, ScoreConfig
from valuelens.models import InputError


@pytest.mark.parametrize("beta", [0.0, -1.0, float("nan"), float("inf")])
def test_beta_must_be_above_zero(beta: float) -> None:
    assert ScoreConfig().beta == BETA
    with pytest.raises(InputError, match="beta must be above 0; found"):
        ScoreConfig(beta=beta)


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
