"""Adapters by name: what is imported, what it must return, and one line for everything that foreign code gets wrong."""

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from valuelens.models import InputError
from valuelens.models.icrl import (
    Adapter,
    Context,
    TaskConfig,
    check_network,
    content_hash,
    context_of,
    import_adapter,
    network_of,
    task_sampler,
    theta_star,
)

CODE = """
import torch
from valuelens.models.icrl import Slot, network_of, theta_star

number = 3

class Good:
    def __init__(self, path):
        self.path = path
        self.module = torch.nn.Dropout()
        self.slots = [Slot(hook="", layer=0)]

    def inputs(self, context, queries):
        return (context.features,)

    def values(self, output):
        return output[:, -1:, 0]

def half(path):
    return torch.nn.Linear(2, 2)

def wrapper(path):
    good = Good(path)
    good.module = type("Envoy", (), {"_module": torch.nn.Linear(2, 2)})()
    return good

def unsaid(path):
    good = Good(path)
    good.slots = ["blocks.0"]
    return good

def task(path):
    good = Good(path)
    good.task = {"gamma": 0.5}
    return good

def absent(path):
    return open(path)

def leaves(path):
    raise SystemExit("done")
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of adapters on the path, under a name of its own for each test."""
    name = f"mine_{abs(hash(tmp_path))}"
    (tmp_path / f"{name}.py").write_text(CODE)
    (tmp_path / f"{name}_broken.py").write_text("import torch\n1 / 0\n")
    (tmp_path / f"{name}_needy.py").write_text("import a_package_that_nobody_has\n")
    monkeypatch.syspath_prepend(tmp_path)
    return name


def test_an_adapter_is_imported_and_called_with_the_path(mine: str, tmp_path: Path) -> None:
    adapter = import_adapter(f"{mine}:Good")
    assert (adapter.name, adapter.file) == (f"{mine}:Good", tmp_path / f"{mine}.py")
    network = adapter.network(tmp_path / "weights")
    assert network.path == tmp_path / "weights"
    assert not network.module.training


def test_our_own_adapter_can_be_named() -> None:
    adapter = import_adapter("valuelens.models.icrl:network_of")
    assert adapter.make is network_of


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("mine", "an adapter must be named package.module:Name; found '{mine}'; option --adapter"),
        ("mine:", "an adapter must be named package.module:Name; found '{mine}:'"),
        ("mi-ne:Good", "an adapter must be named package.module:Name; found 'mi-ne:Good'"),
        (
            "mine.py:Good",
            "an adapter's module must be installed, or on PYTHONPATH; found no {mine}.py; adapter",
        ),
        ("mine:Good.make", "an adapter must be named package.module:Name"),
        (".mine:Good", "an adapter must be named package.module:Name"),
        (
            "nowhere.at.all:Good",
            "an adapter's module must be installed, or on PYTHONPATH; found no nowhere; ",
        ),
        ("mine:Bad", "{mine} must have Bad; found no such name; adapter {mine}:Bad"),
        ("mine:number", "an adapter must be callable with a path; found int; adapter {mine}:number"),
        (
            "mine_broken:Good",
            "an adapter must be importable; found ZeroDivisionError: division by zero ({mine}_broken.py line 2); ",
        ),
        (
            "mine_needy:Good",
            "an adapter must be importable; found ModuleNotFoundError: No module named "
            "'a_package_that_nobody_has' ({mine}_needy.py line 1); adapter {mine}_needy:Good",
        ),
    ],
)
def test_a_name_that_cannot_be_imported_is_told(mine: str, name: str, text: str) -> None:
    with pytest.raises(InputError) as caught:
        import_adapter(name.replace("mine", mine))
    assert str(caught.value).startswith(text.replace("{mine}", mine))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "half",
            "an adapter must return a Network (with module, slots, inputs, values); found Linear without module",
        ),
        ("wrapper", "module must be a torch module; found Envoy (what it wraps is its _module); adapter"),
        ("unsaid", "slots must be Slot; found str; adapter"),
        ("task", "task must be a TaskConfig, or left out; found dict; adapter"),
        ("absent", "an adapter must return a network for this path; found FileNotFoundError: "),
        ("leaves", "an adapter must return a network for this path; found SystemExit: done"),
    ],
)
def test_what_is_no_network_is_told(mine: str, tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(InputError) as caught:
        import_adapter(f"{mine}:{name}").network(tmp_path / "nowhere")
    assert str(caught.value).startswith(text)


def test_what_lacks_one_member_is_told_by_its_name(tmp_path: Path) -> None:
    for member in ("module", "slots", "inputs", "values"):
        parts = dict.fromkeys({"module", "slots", "inputs", "values"} - {member})
        adapter = Adapter(name="a:B", make=lambda _, parts=parts: type("Some", (), parts), file=None)
        with pytest.raises(InputError, match=f"found type without {member}; adapter a:B"):
            adapter.network(tmp_path)


def test_an_input_error_of_the_adapter_passes_as_it_is(tmp_path: Path) -> None:
    def make(path: Path) -> Any:
        raise InputError("weights must be there", "found none", str(path))

    with pytest.raises(InputError, match=r"^weights must be there; found none; "):
        Adapter(name="a:B", make=make, file=None).network(tmp_path)


class Around:
    """theta* whose inputs and values a test changes."""

    def __init__(
        self,
        inputs: Callable[[tuple[Any, ...]], Any] = lambda given: given,
        values: Callable[[Tensor], Any] = lambda output: output,
    ) -> None:
        self.inner = network_of(theta_star(feature_dim=4, num_layers=2, gamma=0.5))
        self.module, self.slots = self.inner.module, self.inner.slots
        self.change_inputs, self.change_values = inputs, values

    def inputs(self, context: Context, queries: Tensor) -> Any:
        return self.change_inputs(self.inner.inputs(context, queries))

    def values(self, output: Tensor) -> Any:
        return self.change_values(output)


def contexts() -> Context:
    generator = torch.Generator().manual_seed(0)
    sampler = task_sampler(TaskConfig(), generator)
    return context_of(*sampler.sample(2, 30, generator, torch.float64))


def noisy(output: Tensor) -> Tensor:
    return output + torch.rand(1, dtype=output.dtype)


def peeking(given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Extra query columns that are sources too."""
    return given[0], 1


def test_a_good_network_passes() -> None:
    check_network(Around(), contexts(), where="here")
    check_network(Around(values=lambda output: output[:, :1]), contexts(), where="here")


@pytest.mark.parametrize(
    ("network", "text"),
    [
        (
            Around(inputs=lambda given: (given[0][..., :-1], given[1])),
            "a network must take contexts of 30 transitions with 4 features (an adapter's task says other); found ",
        ),
        (
            Around(inputs=lambda given: given[0]),
            "a network must take contexts of 30 transitions with 4 features",
        ),
        (Around(values=lambda output: output[:, 0]), "values must be [batch query]; found (2,); here"),
        (Around(values=lambda output: None), "values must be [batch query]; found NoneType; here"),
        (Around(values=noisy), "a network must return the same values twice; found others; here"),
        (
            Around(inputs=peeking, values=lambda output: output[:, :1]),
            "extra queries must not change the value of S_n (they may be ignored); found another value; here",
        ),
    ],
)
def test_a_network_that_cannot_be_measured_is_told(network: Around, text: str) -> None:
    with pytest.raises(InputError) as caught:
        check_network(network, contexts(), where="here")
    assert str(caught.value).startswith(text)


def test_a_module_that_fails_is_told_with_the_line() -> None:
    class Broken(nn.Module):
        def forward(self, *_: Any) -> Tensor:
            raise KeyError("hidden")

    network = Around()
    network.module = Broken()
    with pytest.raises(InputError, match=re.escape("found KeyError: 'hidden' (test_adapter.py line ")):
        check_network(network, contexts(), where="here")


def test_content_is_hashed_whatever_it_is(tmp_path: Path) -> None:
    file, folder = tmp_path / "file", tmp_path / "folder"
    file.write_bytes(b"some weights")
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "a").write_bytes(b"a")
    assert content_hash(file) == hashlib.sha256(b"some weights").hexdigest()
    first = content_hash(folder)
    assert first == content_hash(folder)
    (folder / "deep" / "a").rename(folder / "deep" / "b")
    second = content_hash(folder)
    (folder / "deep" / "b").write_bytes(b"b")
    assert len({first, second, content_hash(folder)}) == 3
    assert content_hash(tmp_path / "nowhere") is None
