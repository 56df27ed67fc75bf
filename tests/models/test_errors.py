import pickle

import pytest

from valuelens.models import InputError


def test_three_parts_make_one_line():
    error = InputError("gamma must lie in\n [0, 1)", "found\t1.2", "option --gamma")
    assert str(error) == "gamma must lie in [0, 1); found 1.2; option --gamma"
    assert (error.must, error.where) == ("gamma must lie in\n [0, 1)", "option --gamma")


def test_it_comes_back_whole_from_another_process():
    again = pickle.loads(pickle.dumps(InputError("a", "b", "c")))
    assert (type(again), str(again), again.found) == (InputError, "a; b; c", "b")


def test_it_is_a_value_error():
    with pytest.raises(ValueError, match="a; b; c"):
        raise InputError("a", "b", "c")
