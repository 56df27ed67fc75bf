"""Runs of InContextTD against what its own code computed (`tests/fixtures/incontexttd`), and what is refused."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from valuelens.models._errors import InputError
from valuelens.models.icrl import (
    Context,
    checkpoint_hash,
    checkpoint_paths,
    checkpoint_record,
    checkpoint_task,
    load,
)
from valuelens.models.icrl._incontexttd import entry_of, read_series, series_of

FIXTURES = Path(__file__).parents[1] / "fixtures" / "incontexttd"
each_run = pytest.mark.parametrize("name", ["tied", "untied"])


def expected(name: str) -> dict[str, Tensor]:
    with np.load(FIXTURES / name / "expected.npz", allow_pickle=False) as data:
        return {key: torch.from_numpy(np.asarray(data[key], dtype=np.float64)) for key in data}


def context_of_columns(columns: Tensor, query: Tensor) -> Context:
    """A context that writes the given columns (x, gamma x', R) and query into a prompt."""
    d = query.shape[-1]
    features = torch.cat([columns[:, :d].mT, query[:, None]], dim=1)
    # Its query is one step further than ours, so the successor of the last column is not the query: all other
    # successors follow from the features, the last one has to be written by hand.
    states = torch.zeros(features.shape[:2], dtype=torch.long)
    return Context(states=states, features=features, rewards=columns[:, -1], gamma=0.9)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A copy that may be spoilt."""
    folder = tmp_path / "run"
    shutil.copytree(FIXTURES / "tied", folder)
    return folder


@each_run
def test_values_are_those_of_its_code(name: str) -> None:
    theirs = expected(name)
    model = load(checkpoint_paths(FIXTURES / name)[-1].path).double()
    context = context_of_columns(theirs["context"], theirs["query"])
    d = theirs["query"].shape[-1]
    prompt = model.prompt(context, theirs["features"])
    n = context.num_transitions
    prompt[:, n - 1, d : 2 * d] = theirs["context"][:, d : 2 * d, -1]
    assert_close(prompt[:, :n].mT, theirs["context"], atol=1e-6, rtol=1e-6)
    values = model(prompt, 1 + theirs["features"].shape[1])
    assert_close(values[:, 1:], theirs["values"], atol=2e-6, rtol=1e-5)
    assert_close(values[:, 0], theirs["query_values"], atol=2e-6, rtol=1e-5)
    assert float(theirs["values"].abs().mean()) > 1e-3


@each_run
def test_every_entry_is_a_checkpoint(name: str) -> None:
    data = np.load(FIXTURES / name / "data.npz", allow_pickle=False)
    settings = json.loads((FIXTURES / name / "params.json").read_text(encoding="utf-8"))
    paths = checkpoint_paths(FIXTURES / name)
    assert [each.step for each in paths] == [int(x) * settings["n_batch_per_mrp"] for x in data["xs"]]
    assert {each.seed for each in paths} == {settings["random_seed"]}
    assert len({checkpoint_hash(each.path) for each in paths}) == len(paths)
    for row, each in enumerate(paths):
        for matrix, found in load(each.path).matrices().items():
            wanted = torch.from_numpy(data[matrix][row]).expand(settings["l"], -1, -1)
            assert_close(found.detach(), wanted, rtol=0, atol=0)


def test_settings_in_our_words() -> None:
    first, other = (checkpoint_paths(FIXTURES / name)[0].path for name in ("tied", "untied"))
    task = checkpoint_task(first)
    assert (task.env, task.features, task.num_states, task.feature_dim) == ("boyan", "uniform", 10, 4)
    assert (task.context_length, task.gamma, task.representable) == (30, 0.9, False)
    record = checkpoint_record(other)
    assert (record["model"]["arch"], record["model"]["weights"]) == ("linear", "full")
    assert (record["model"]["num_layers"], record["model"]["tied"]) == (2, False)
    assert record["task"]["representable"]
    assert record["incontexttd"]["mini_batch_size"] == 32
    assert "train" not in record


def test_the_seeds_of_one_call_are_one_run(tmp_path: Path, run: Path) -> None:
    for seed in (0, 1):
        folder = tmp_path / "both" / f"seed_{seed}"
        shutil.copytree(run, folder)
        settings = json.loads((folder / "params.json").read_text(encoding="utf-8"))
        (folder / "params.json").write_text(json.dumps({**settings, "random_seed": seed}), encoding="utf-8")
    paths = checkpoint_paths(tmp_path / "both")
    assert [each.seed for each in paths] == [0] * 10 + [1] * 10
    assert checkpoint_paths(run / "data.npz") == checkpoint_paths(run)


def test_other_folders_are_no_series(tmp_path: Path, run: Path) -> None:
    assert series_of(tmp_path / "none") == []
    (run / "config.json").write_text("{}", encoding="utf-8")  # one of ours
    assert series_of(run) == []
    assert entry_of(tmp_path / "step-00000010") is None
    assert entry_of(run / "data.npz") is None


def test_a_step_that_was_not_logged(run: Path) -> None:
    with pytest.raises(InputError, match="the step must have been logged; found steps 300 to 3000, none of"):
        load(run / "data.npz" / "step-00000007")


def test_a_changed_file_is_read_again(run: Path) -> None:
    before = checkpoint_paths(run)
    _change(run, xs=lambda xs: xs + 1)
    assert [each.step for each in checkpoint_paths(run)] == [each.step + 5 for each in before]


def _change(run: Path, **change: Callable[[np.ndarray], np.ndarray | None]) -> None:
    """Write `data.npz` anew with some arrays changed, or left out for None."""
    with np.load(run / "data.npz", allow_pickle=False) as data:
        arrays = {name: change.get(name, lambda x: x)(data[name]) for name in data}
    np.savez(run / "data.npz", **{name: x for name, x in arrays.items() if x is not None})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"P": lambda x: None}, r"data.npz must hold the arrays xs, P, Q; found no P; "),
        ({"xs": lambda x: None, "Q": lambda x: None}, r"found no xs, Q; "),
        (
            {"Q": lambda x: x[:, 0]},
            r"Q must have the shape \[10, 1, 9, 9\]: .*; found \[10, 9, 9\]; .*array Q",
        ),
        (
            {"P": lambda x: x[:-1]},
            r"P must have the shape \[10, 1, 9, 9\]: .*; found \[9, 1, 9, 9\]; .*array P",
        ),
        ({"xs": lambda x: x[:-1]}, r"P must have the shape \[9, 1, 9, 9\]"),
        (
            {"xs": lambda x: x[:0]},
            r"xs must be the logged steps, growing integers; found int64 of shape \[0\]",
        ),
        ({"xs": lambda x: x[::-1]}, "xs must be the logged steps, growing integers"),
        ({"xs": lambda x: x * 1.5}, "xs must be the logged steps, growing integers; found float64"),
        ({"P": lambda x: x.astype(int)}, "P must be floating point; found int64; .*array P"),
        ({"P": lambda x: x.astype(object)}, "nothing is ever unpickled.; found pickled objects; .*data.npz"),
    ],
)
def test_arrays_that_do_not_fit(
    run: Path, change: dict[str, Callable[[np.ndarray], np.ndarray | None]], said: str
) -> None:
    _change(run, **change)
    with pytest.raises(InputError, match=said):
        checkpoint_paths(run)


@pytest.mark.parametrize("name", ["P", "Q"])
def test_weights_that_are_not_finite_spoil_their_entry_only(run: Path, name: str) -> None:
    def spoilt(x: np.ndarray) -> np.ndarray:
        x[3, 0, 2, 2] = np.nan
        return x

    _change(run, **{name: spoilt})
    paths = checkpoint_paths(run)
    load(paths[2].path)
    said = f"weights must be finite; found NaN or infinity; .*array {name}, row 3"
    with pytest.raises(InputError, match=said):
        load(paths[3].path)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        (
            "activation",
            "softmax",
            "activation must be 'identity'; found 'softmax'; .*params.json, key activation",
        ),
        ("mrp_class", "cartpole", "mrp_class must be 'boyan'; found 'cartpole'; .*key mrp_class"),
        ("mode", "both", "mode must be 'auto' or 'sequential'; found 'both'"),
        ("gamma", 1.0, "gamma must be less than 1; found 1.0"),
        ("d", None, "d must be given; found none; .*key d"),
        ("l", 4.5, "l must be integer, .*found 4.5"),
        ("mode", "sequential", r"P must have the shape \[10, 3, 9, 9\]"),
        ("d", 5, r"P must have the shape \[10, 1, 11, 11\]"),
    ],
)
def test_settings_that_we_cannot_represent(run: Path, key: str, value: object, said: str) -> None:
    settings = json.loads((run / "params.json").read_text(encoding="utf-8"))
    changed = {k: v for k, v in {**settings, key: value}.items() if v is not None}
    (run / "params.json").write_text(json.dumps(changed), encoding="utf-8")
    with pytest.raises(InputError, match=said):
        checkpoint_paths(run)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "params.json must be readable JSON"),
        ("[1]", "params.json must hold the settings of a run; found list"),
    ],
)
def test_settings_that_are_no_settings(run: Path, text: str, said: str) -> None:
    (run / "params.json").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=said):
        read_series(run)


@pytest.mark.parametrize("name", ["params.json", "data.npz"])
def test_half_a_run(run: Path, name: str) -> None:
    (run / name).unlink()
    with pytest.raises(InputError, match=f"a run of InContextTD has a {name}; found none; "):
        checkpoint_paths(run)


@pytest.mark.parametrize("keep", [0, 3, 200, 4000, -1])
def test_a_truncated_archive(run: Path, keep: int) -> None:
    whole = (run / "data.npz").read_bytes()
    (run / "data.npz").write_bytes(whole[:keep])
    with pytest.raises(InputError, match="must be a whole npz file of plain numbers"):
        checkpoint_paths(run)


def test_a_flipped_byte_is_found_by_the_checksum(run: Path) -> None:
    whole = bytearray((run / "data.npz").read_bytes())
    start = whole.find(b"P.npy") + 500
    whole[start] ^= 1
    (run / "data.npz").write_bytes(bytes(whole))
    with pytest.raises(InputError, match="found a damaged or foreign file"):
        checkpoint_paths(run)


@pytest.mark.parametrize(
    "write", [lambda path: np.save(path, np.zeros(3)), lambda path: path.write_text("data")]
)
def test_another_kind_of_file(run: Path, write: Callable[[Path], None]) -> None:
    other = run / "other.npy"
    write(other)
    other.rename(run / "data.npz")
    with pytest.raises(InputError, match="found a damaged or foreign file"):
        checkpoint_paths(run)
