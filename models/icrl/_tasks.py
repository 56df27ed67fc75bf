"""From a task configuration to batches of tasks and trajectories.

Shape legend: `batch` tasks, `state` S, `feature` d, `pos` the states S_0, S_1, ... of a trajectory.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from valuelens.models._errors import InputError, did_you_mean
from valuelens.models._files import nearest
from valuelens.models.icrl._cartpole import CartPolePool, cart_pole_pool
from valuelens.models.icrl._chains import (
    boyan_chains,
    garnet_chains,
    loop_chains,
    random_features,
    random_rewards,
    representable_rewards,
)
from valuelens.models.icrl._config import TaskConfig, run_config
from valuelens.models.icrl._mrp import MarkovRewardProcess, rollout

_CHAINS = {"boyan": boyan_chains, "loop": loop_chains, "garnet": garnet_chains}

ENVIRONMENTS = (*_CHAINS, "cartpole")


@runtime_checkable
class TaskSampler(Protocol):
    """A source of random tasks, each with one trajectory."""

    def sample(
        self,
        num_tasks: int,
        num_steps: int,
        generator: torch.Generator,
        dtype: torch.dtype = torch.float32,
    ) -> tuple[MarkovRewardProcess, Int[Tensor, "{num_tasks} {num_steps}+1"]]:
        """Fresh tasks and the states S_0..S_num_steps that each visited.

        Args:
            num_tasks: Tasks, each with its own chain (or cart-pole), rewards and features where these are random.
            num_steps: Transitions of a trajectory; may exceed the context length, as losses look further ahead.
            generator: Source of randomness, on the CPU.
            dtype: Of the processes.
        """


def task_sampler(
    task: TaskConfig, generator: torch.Generator, pool: CartPolePool | None = None
) -> TaskSampler:
    """The sampler of a task configuration.

    Args:
        task: What to sample. For a file its num_states and feature_dim must be the file's: see `resolve_task`.
        generator: Source of what all tasks share, which is the pool of cart-poles; the others leave it alone.
        pool: Cart-poles to use instead of simulating new ones (which takes a second or two).

    Raises:
        InputError: The environment does not exist or its file is unusable or does not fit the configuration.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> sampler = task_sampler(TaskConfig(env="loop", num_states=5), generator)
        >>> mrp, states = sampler.sample(64, 31, generator)
        >>> mrp.num_states, tuple(states.shape)
        (5, (64, 32))
    """
    if task.env in _CHAINS:
        return _ChainSampler(task)
    if task.env == "cartpole":
        return _CartPoleSampler(task, pool or cart_pole_pool(generator))
    process = _read_process(task.env)
    _check_fit(task, process)
    return _FileSampler(task, process)


def resolve_task(task: TaskConfig) -> TaskConfig:
    """The configuration with the sizes that its environment dictates.

    A file decides num_states and, if it holds features, feature_dim; whatever the configuration said about them
    is replaced. Other environments return unchanged. Call it when a run starts, and keep the result: a resolved
    configuration is refused by `task_sampler` once the file has changed its sizes.

    Args:
        task: As the user gave it.

    Raises:
        InputError: The environment does not exist, its file is unusable, or the configuration asks for what a file
            cannot give (representable values; one-hot features where it brings its own).
    """
    if task.env in ENVIRONMENTS:
        return task
    process = _read_process(task.env)
    sizes = {"num_states": process.P.shape[0]}
    if process.features is not None:
        sizes["feature_dim"] = process.features.shape[1]
    resolved = run_config({"task": task.model_dump() | sizes}, where=task.env).task
    _check_fit(resolved, process)
    return resolved


@dataclass(frozen=True)
class _ChainSampler:
    task: TaskConfig

    def sample(
        self,
        num_tasks: int,
        num_steps: int,
        generator: torch.Generator,
        dtype: torch.dtype = torch.float32,
    ) -> tuple[MarkovRewardProcess, Int[Tensor, "{num_tasks} {num_steps}+1"]]:
        task = self.task
        P, r, p0 = _CHAINS[task.env](num_tasks, task.num_states, generator, dtype)
        features = _features(task, num_tasks, generator, dtype)
        if task.representable:
            r = representable_rewards(P, features, task.gamma, generator)
        mrp = MarkovRewardProcess(P=P, r=r, p0=p0, features=features, gamma=task.gamma)
        return mrp, rollout(mrp, num_steps, generator)


@dataclass(frozen=True)
class _CartPoleSampler:
    task: TaskConfig
    pool: CartPolePool

    def sample(
        self,
        num_tasks: int,
        num_steps: int,
        generator: torch.Generator,
        dtype: torch.dtype = torch.float32,
    ) -> tuple[MarkovRewardProcess, Int[Tensor, "{num_tasks} {num_steps}+1"]]:
        task = self.task
        pole, states = self.pool.windows(num_tasks, num_steps, generator)
        P, p0 = self.pool.P[pole].to(dtype), self.pool.p0[pole].to(dtype)
        r = random_rewards(num_tasks, task.num_states, generator, dtype)
        features = _features(task, num_tasks, generator, dtype)
        if task.representable:
            r = representable_rewards(P, features, task.gamma, generator)
        return MarkovRewardProcess(P=P, r=r, p0=p0, features=features, gamma=task.gamma), states


@dataclass(frozen=True, kw_only=True)
class _Process:
    path: str
    P: Float[Tensor, "state state"]
    r: Float[Tensor, "state"]
    p0: Float[Tensor, "state"]
    features: Float[Tensor, "state feature"] | None = None


@dataclass(frozen=True)
class _FileSampler:
    task: TaskConfig
    process: _Process

    def sample(
        self,
        num_tasks: int,
        num_steps: int,
        generator: torch.Generator,
        dtype: torch.dtype = torch.float32,
    ) -> tuple[MarkovRewardProcess, Int[Tensor, "{num_tasks} {num_steps}+1"]]:
        def copies(x: Tensor) -> Tensor:
            return x.to(dtype).expand(num_tasks, *x.shape)

        P, r, p0 = (copies(x) for x in (self.process.P, self.process.r, self.process.p0))
        if self.process.features is None:
            features = _features(self.task, num_tasks, generator, dtype)
        else:
            features = copies(self.process.features)
        mrp = MarkovRewardProcess(P=P, r=r, p0=p0, features=features, gamma=self.task.gamma)
        return mrp, rollout(mrp, num_steps, generator)


def _features(
    task: TaskConfig, num_tasks: int, generator: torch.Generator, dtype: torch.dtype
) -> Float[Tensor, "batch state feature"]:
    return random_features(task.features, (num_tasks, task.num_states, task.feature_dim), generator, dtype)


def _check_fit(task: TaskConfig, process: _Process) -> None:
    if task.representable:
        found = "found representable, which would replace the r of the file"
        raise InputError("a file brings its own rewards", found, process.path)
    sizes = {"num_states": ("P", process.P.shape[0])}
    if process.features is not None:
        sizes["feature_dim"] = ("features", process.features.shape[1])
    for key, (tensor, size) in sizes.items():
        asked = getattr(task, key)
        if asked != size:
            one_hot = " (one-hot features)" if (key, task.features) == ("feature_dim", "one-hot") else ""
            must = f"{key} of the task must be the file's"
            found = f"found {asked}{one_hot} in the task, {size} in the file"
            raise InputError(must, found, f"{process.path}, tensor {tensor}")


def _read_process(path: str) -> _Process:
    read = _read_tensors(path)
    _check_names(path, set(read))
    tensors: dict[str, Tensor] = {name: read[name] for name in ("P", "r", "p0", "features") if name in read}
    for name, tensor in tensors.items():
        if tensor.dtype not in (torch.float32, torch.float64):
            found = f"found {str(tensor.dtype).removeprefix('torch.')}"
            raise InputError(f"{name} must be float32 or float64", found, f"{path}, tensor {name}")
    _check_shapes(path, tensors)
    for name, tensor in tensors.items():
        _check_values(f"{path}, tensor {name}", name, tensor)
    return _Process(path=path, **tensors)


def _read_tensors(path: str) -> dict[str, Tensor]:
    if os.path.isdir(path):
        raise InputError("an environment file must be a safetensors file", "found a directory", path)
    if not os.path.exists(path) and not path.endswith(".safetensors"):
        raise _unknown_environment(path)
    try:
        tensors: dict[str, Tensor] = load(Path(path).read_bytes())
    except FileNotFoundError:
        raise InputError("an environment file must exist", f"found none{nearest(Path(path))}", path) from None
    except (OSError, ValueError, SafetensorError) as error:
        must = "an environment file must be a readable safetensors file"
        raise InputError(must, f"found {error}", path) from None
    return tensors


def _unknown_environment(name: str) -> InputError:
    hint = did_you_mean(name, ENVIRONMENTS) or nearest(Path(name))
    must = f"env must be {', '.join(ENVIRONMENTS)} or the path of a .safetensors file"
    return InputError(must, f"found {name!r}{hint}", "task, env")


def _check_names(path: str, found: set[str]) -> None:
    missing, unknown = {"P", "r", "p0"} - found, found - {"P", "r", "p0", "features"}
    if missing or unknown:
        must = "an environment file must hold the tensors P, r, p0 and perhaps features"
        finding = (
            f"found no {', '.join(sorted(missing))}" if missing else f"found {', '.join(sorted(unknown))} too"
        )
        raise InputError(must, finding, path)


def _check_shapes(path: str, tensors: dict[str, Tensor]) -> None:
    num_states = tensors["P"].shape[0] if tensors["P"].ndim else 0
    feature_dim = tensors["features"].shape[-1] if "features" in tensors and tensors["features"].ndim else 0
    shapes = {
        "P": (num_states, num_states),
        "r": (num_states,),
        "p0": (num_states,),
        "features": (num_states, feature_dim),
    }
    for name, tensor in tensors.items():
        if tensor.shape != shapes[name] or not tensor.numel():
            axes = {"P": "[S, S]", "features": f"[{num_states}, d]"}.get(name, f"[{num_states}]")
            found = f"found {list(tensor.shape)}"
            raise InputError(f"{name} must have the shape {axes}", found, f"{path}, tensor {name}")


def _check_values(where: str, name: str, tensor: Tensor) -> None:
    rows = tensor.double().reshape(len(tensor), -1)
    _check_rows(~rows.isfinite().all(dim=-1), f"{name} must be finite", tensor, where)
    if name in ("P", "p0"):
        _check_rows((rows < 0).any(dim=-1), f"{name} must not be negative", tensor, where)
    if name == "P":
        sums = rows.sum(dim=-1)
        _check_rows((sums - 1).abs() > 1e-5, "each row of P must sum to 1 within 1e-5", sums, where)
    if name == "p0" and abs(float(rows.sum()) - 1) > 1e-5:
        raise InputError("p0 must sum to 1 within 1e-5", f"found {float(rows.sum()):.6g}", where)
    if name in ("r", "features") and len(rows) > 1 and bool((rows == rows[0]).all()):
        raise InputError(f"{name} must differ between states", f"found the same in all {len(rows)}", where)


def _check_rows(bad: Bool[Tensor, "row"], must: str, shown: Float[Tensor, "row ..."], where: str) -> None:
    if bool(bad.any()):
        row = int(bad.nonzero()[0])
        found = ", ".join(f"{x:.6g}" for x in shown[row].reshape(-1)[:6].tolist())
        raise InputError(must, f"found {found}", f"{where}, row {row}")
