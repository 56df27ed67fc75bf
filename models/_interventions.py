"""Interventions on any torch module, by the names of its submodules, as context managers that always clean up.

What is replaced is the *output* of a submodule (of a tuple its first entry), on every call of it inside the block; the
hook points of TransformerLens are submodules too. Nested blocks act in the order in which they were entered, so the
inner one has the last word, and they may be left in any order.

Shape legend: `batch` contexts, the first axis of every output.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import EllipsisType
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from valuelens.models._errors import InputError

Edit = Callable[[Tensor], Tensor]

Part = EllipsisType | tuple[Any, ...]
"""Which part of an output is meant, as `numpy.s_` writes it: all (`...`), or for example one entry `np.s_[..., 5]`."""


@contextmanager
def patched(
    module: nn.Module, replacements: Mapping[str, Tensor | Edit], *, part: Part = ...
) -> Iterator[None]:
    """Replace outputs of submodules while the block runs; gradients flow through what is put in.

    Args:
        module: Called inside the block, any number of times.
        replacements: By submodule name, a value of the shape and dtype that it replaces, or a function of it (given a
            copy, so that it may write into it).
        part: What of every output is replaced, and what a function is given: a column, a head, an entry.

    Raises:
        InputError: There is no submodule of that name (on entering), a value does not fit (on the call), or no call
            reached a submodule (on leaving, unless another error passes through).

    Example:
        >>> from valuelens.models.icrl import theta_star
        >>> model = theta_star(feature_dim=2, num_layers=2, gamma=0.5)
        >>> prompt = torch.zeros(1, 4, 5, dtype=torch.float64)
        >>> with patched(model, {"blocks.1.hook_value": lambda value: value + 3}):
        ...     model(prompt).tolist()
        [[3.0]]
        >>> model(prompt).tolist()
        [[0.0]]
    """

    def edit(name: str, replacement: Tensor | Edit) -> Edit:
        def whole(output: Tensor) -> Tensor:
            if isinstance(replacement, Tensor):
                return _put(name, output, part, replacement)
            return _put(name, output, part, replacement(_taken(name, output, part).clone()))

        return whole

    with _edited(module, {name: edit(name, given) for name, given in replacements.items()}):
        yield


@contextmanager
def ablated(
    module: nn.Module,
    names: Sequence[str],
    *,
    by: Literal["zero", "mean"] | Mapping[str, Tensor] = "zero",
    part: Part = ...,
) -> Iterator[None]:
    """Take the information out of outputs of submodules while the block runs.

    Args:
        module: Called inside the block.
        names: Of submodules.
        by: What stands there instead: `zero`; `mean` over the batch of the same call; or, by name, outputs of a
            reference run, of which the mean over its batch is taken.
        part: What of every output is ablated: a column, a head, an entry.

    Raises:
        InputError: As `patched`; the reference run lacks a name.

    Example:
        >>> from valuelens.models.icrl import theta_star
        >>> model = theta_star(feature_dim=2, num_layers=1, gamma=0.5)
        >>> prompt = torch.ones(1, 4, 5, dtype=torch.float64)
        >>> with ablated(model, ["blocks.0.hook_attn_out"]):
        ...     model(prompt).tolist()
        [[1.0]]
    """
    if not isinstance(by, str) and (missed := [name for name in names if name not in by]):
        found = f"found no {missed[0]}"
        raise InputError("a reference run must hold every name that is ablated", found, "ablated, by")

    def stand_in(name: str, output: Tensor) -> Tensor:
        if by == "zero":
            return torch.zeros_like(output)
        reference = output if isinstance(by, str) else by[name]
        if reference.shape[1:] != output.shape[1:]:
            must = f"a reference must be {tuple(output.shape[1:])} behind its batch axis"
            raise InputError(must, f"found {tuple(reference.shape[1:])}", f"submodule {name}")
        return reference.mean(0).expand_as(output)

    def edit(name: str) -> Edit:
        return lambda output: _put(
            name, output, part, _taken(name, stand_in(name, output).to(output.dtype), part)
        )

    with _edited(module, {name: edit(name) for name in names}):
        yield


def denoised(
    module: nn.Module,
    clean: tuple[Any, ...],
    corrupted: tuple[Any, ...],
    names: Sequence[str],
    *,
    read: Callable[[Any], Tensor],
    part: Part = ...,
) -> dict[str, Float[Tensor, "batch"]]:
    """How much of the clean answer comes back if one clean activation is put into the corrupted run (sufficiency).

    Restoration (m(patched) - m(corrupted)) / (m(clean) - m(corrupted)): 0 nothing, 1 everything. Our
    definition (theory A12).

    Args:
        module: Called once for each run, without gradients.
        clean: Arguments of the clean call.
        corrupted: Arguments of the corrupted call, of the same shapes.
        names: Submodules, patched one at a time.
        read: The metric m: one number a context of what the module returns.
        part: What of every output is patched.

    Returns:
        By name, for each context.

    Raises:
        InputError: As `patched`; the metric is not one number a context, or the same for clean and corrupted; a
            submodule is reached more than once by a call.

    Example:
        >>> from valuelens.models.icrl import theta_star
        >>> model = theta_star(feature_dim=2, num_layers=1, gamma=0.5)
        >>> clean = torch.ones(1, 4, 5, dtype=torch.float64)
        >>> denoised(
        ...     model, (clean,), (2 * clean,), ["blocks.0.hook_value"], read=lambda out: out[:, 0]
        ... )
        {'blocks.0.hook_value': tensor([1.], dtype=torch.float64)}
    """
    runs = _clean_and_corrupted(module, clean, corrupted, names, read)
    return _shares(module, corrupted, runs[0][1], read, (runs[1][0], runs[0][0]), part)


def noised(
    module: nn.Module,
    clean: tuple[Any, ...],
    corrupted: tuple[Any, ...],
    names: Sequence[str],
    *,
    read: Callable[[Any], Tensor],
    part: Part = ...,
) -> dict[str, Float[Tensor, "batch"]]:
    """How much of the clean answer is lost if one corrupted activation is put into the clean run (necessity).

    Damage (m(clean) - m(patched)) / (m(clean) - m(corrupted)): 0 nothing, 1 everything. Our
    definition (theory A12).

    Args:
        module: As for `denoised`.
        clean: As for `denoised`.
        corrupted: As for `denoised`.
        names: As for `denoised`.
        read: As for `denoised`.
        part: As for `denoised`.

    Returns:
        By name, for each context.

    Raises:
        InputError: As `denoised`.
    """
    runs = _clean_and_corrupted(module, clean, corrupted, names, read)
    return _shares(module, clean, runs[1][1], read, (runs[0][0], runs[1][0]), part)


_Run = tuple[Tensor, dict[str, Tensor]]
"""The metric of a run, and outputs of its submodules."""


def _clean_and_corrupted(
    module: nn.Module,
    clean: tuple[Any, ...],
    corrupted: tuple[Any, ...],
    names: Sequence[str],
    read: Callable[[Any], Tensor],
) -> tuple[_Run, _Run]:
    runs = _recorded(module, clean, names, read), _recorded(module, corrupted, names, read)
    good, bad = runs[0][0], runs[1][0]
    if good.ndim != 1 or good.shape != bad.shape:
        found = f"found shapes {tuple(good.shape)} and {tuple(bad.shape)}"
        raise InputError("the metric must be one number for each context", found, "read")
    scale = torch.maximum(good.abs(), bad.abs())
    same = ~((good - bad).abs() > 16 * torch.finfo(good.dtype).eps * scale)
    if bool(same.any()):
        found = f"found {float(good[same][0]):.6g} twice on context {int(same.nonzero()[0])}"
        raise InputError("the metric must differ between clean and corrupted", found, "read")
    return runs


def _recorded(
    module: nn.Module, inputs: tuple[Any, ...], names: Sequence[str], read: Callable[[Any], Tensor]
) -> _Run:
    seen: dict[str, Tensor] = {}

    def keep(name: str) -> Edit:
        def edit(output: Tensor) -> Tensor:
            if name in seen:
                must = "a submodule must be reached once by a call"
                raise InputError(must, "found a second time", f"submodule {name}")
            seen[name] = output
            return output

        return edit

    with torch.no_grad(), _edited(module, {name: keep(name) for name in names}):
        metric = read(module(*inputs))
    return metric, seen


def _shares(
    module: nn.Module,
    inputs: tuple[Any, ...],
    donor: Mapping[str, Tensor],
    read: Callable[[Any], Tensor],
    ends: tuple[Tensor, Tensor],
    part: Part,
) -> dict[str, Float[Tensor, "batch"]]:
    """For each name, how far the run moves from its own end (0) to the donor's (1)."""
    shares = {}
    for name, output in donor.items():
        with torch.no_grad(), patched(module, {name: _taken(name, output, part)}, part=part):
            shares[name] = (read(module(*inputs)) - ends[0]) / (ends[1] - ends[0])
    return shares


@contextmanager
def _edited(module: nn.Module, edits: Mapping[str, Edit]) -> Iterator[None]:
    """Hooks while the block runs; every other function here is made of this one."""
    targets = {name: _submodule(module, name) for name in edits}
    idle, handles = dict.fromkeys(edits), []

    def hook(name: str) -> Callable[[nn.Module, Any, Any], Any]:
        def replace(_: nn.Module, __: Any, output: Any) -> Any:
            idle.pop(name, None)
            first = output[0] if isinstance(output, tuple) and output else output
            if not isinstance(first, Tensor):
                must = "a submodule must return a tensor, or a tuple that begins with one"
                raise InputError(must, f"found {type(first).__name__}", f"submodule {name}")
            edited = edits[name](first)
            if not isinstance(output, tuple):
                return edited
            rest = (edited, *output[1:])
            return type(output)(*rest) if hasattr(output, "_fields") else rest

        return replace

    try:
        for name, target in targets.items():
            handles.append(target.register_forward_hook(hook(name)))
        yield
    finally:
        for handle in handles:
            handle.remove()
    if idle:
        must = "every submodule must be reached by a call inside the block"
        raise InputError(must, "found it idle", f"submodule {next(iter(idle))}")


def _submodule(module: nn.Module, name: str) -> nn.Module:
    try:
        return module.get_submodule(name)
    except AttributeError:
        names = [known for known, _ in module.named_modules() if known]
        found = f"found no {name!r} among {', '.join(names[:4])}{', ...' if len(names) > 4 else ''}"
        must = "an intervention must name a submodule"
        raise InputError(must, found, type(module).__name__) from None


def _taken(name: str, output: Tensor, part: Part) -> Tensor:
    try:
        return output[part]
    except IndexError as error:
        must = f"a part must lie in an output of shape {tuple(output.shape)}"
        raise InputError(must, f"found {error}", f"submodule {name}") from None


def _put(name: str, output: Tensor, part: Part, value: Any) -> Tensor:
    """The output with a part of it replaced; the output itself is left alone."""
    taken = _taken(name, output, part)
    if not isinstance(value, Tensor) or (value.shape, value.dtype) != (taken.shape, taken.dtype):
        found = f"{tuple(value.shape)} {value.dtype}" if isinstance(value, Tensor) else type(value).__name__
        must = f"what is put in must be {tuple(taken.shape)} {taken.dtype}"
        raise InputError(must, f"found {found}", f"submodule {name}")
    if part is ...:
        return value
    whole = output.clone()
    whole[part] = value
    return whole
