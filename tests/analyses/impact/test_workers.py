"""Who computes, and what is refused."""

import operator

import pytest
from joblib import delayed

from valuelens.analyses.impact import Workers, _workers
from valuelens.analyses.impact._workers import computed
from valuelens.models import InputError


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"engine": "spark"}, "--engine takes joblib, dask; found 'spark'; option --engine"),
        ({"jobs": 0}, "--jobs must be at least 1; found 0; option --jobs"),
        (
            {"scheduler": "tcp://a:1"},
            "a scheduler belongs to --engine dask; found --engine joblib; option --scheduler",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(asked, told):
    workers = Workers()
    for name, value in asked.items():
        object.__setattr__(workers, name, value)
    with pytest.raises(InputError) as error:
        workers.__post_init__()
    assert str(error.value) == told


def test_one_process_is_this_one():
    assert list(computed([delayed(operator.add)(x, 1) for x in range(3)], Workers())) == [1, 2, 3]
    assert list(computed([], Workers(jobs=2))) == []


def test_without_dask_its_package_is_named(monkeypatch):
    monkeypatch.setattr(_workers, "find_spec", lambda name: None if name == "distributed" else name)
    with pytest.raises(
        InputError, match=r"found that dask is not installed: pip install 'valuelens\[dask\]'"
    ):
        next(computed([delayed(abs)(1)], Workers(engine="dask")))
