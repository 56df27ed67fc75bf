import os

import pytest
import torch
from safetensors.torch import save_file
from torch.testing import assert_close

from valuelens.models._errors import InputError
from valuelens.models.icrl._cartpole import cart_pole_pool
from valuelens.models.icrl._chains import boyan_chains, garnet_chains, loop_chains
from valuelens.models.icrl._config import TaskConfig, run_config
from valuelens.models.icrl._mrp import rollout
from valuelens.models.icrl._tasks import ENVIRONMENTS, resolve_task, task_sampler

CHAINS = {"boyan": boyan_chains, "loop": loop_chains, "garnet": garnet_chains}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def pool():
    pytest.importorskip("gymnasium")
    return cart_pole_pool(generator(), num_poles=5, num_steps=2000, num_runs=4)


def tensors(num_states=4, feature_dim=None, dtype=torch.float64):
    g = generator(7)
    P = torch.rand(num_states, num_states, generator=g, dtype=dtype)
    p0 = torch.rand(num_states, generator=g, dtype=dtype)
    made = {
        "P": P / P.sum(-1, keepdim=True),
        "r": torch.randn(num_states, generator=g, dtype=dtype),
        "p0": p0 / p0.sum(),
    }
    if feature_dim:
        made["features"] = torch.randn(num_states, feature_dim, generator=g, dtype=dtype)
    return made


@pytest.fixture
def write(tmp_path):
    def write(made):
        path = str(tmp_path / "chain.safetensors")
        save_file(made, path)
        return path

    return write


@pytest.mark.parametrize("env", ENVIRONMENTS)
@pytest.mark.parametrize("features", ["sphere", "uniform", "one-hot"])
@pytest.mark.parametrize(("num_tasks", "num_steps"), [(1, 1), (5, 30), (3, 71)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_sample_has_the_sizes_of_its_task(request, env, features, num_tasks, num_steps, dtype):
    task = TaskConfig(env=env, num_states=6, features=features, gamma=0.7)
    pool = request.getfixturevalue("pool") if env == "cartpole" else None
    mrp, states = task_sampler(task, generator(), pool).sample(num_tasks, num_steps, generator(), dtype)
    assert mrp.features.shape == (num_tasks, task.num_states, task.feature_dim)
    assert mrp.P.shape == (num_tasks, task.num_states, task.num_states)
    assert {x.dtype for x in (mrp.P, mrp.r, mrp.p0, mrp.features)} == {dtype}
    assert (states.shape, states.dtype, mrp.gamma) == ((num_tasks, num_steps + 1), torch.int64, 0.7)
    assert_close(mrp.P.sum(-1), torch.ones_like(mrp.r))
    assert bool((mrp.r.abs() <= 1).all())
    assert bool((mrp.P.gather(1, states[:, :-1, None].expand(-1, -1, task.num_states)) >= 0).all())


@pytest.mark.parametrize("env", CHAINS)
def test_each_family_is_drawn_and_followed(env):
    task = TaskConfig(env=env, num_states=5)
    mrp, states = task_sampler(task, generator()).sample(4, 20, generator(3), torch.float64)
    P, r, p0 = CHAINS[env](4, 5, generator(3), torch.float64)
    assert_close((mrp.P, mrp.r, mrp.p0), (P, r, p0), atol=0, rtol=0)
    for b in range(4):
        for here, there in zip(states[b, :-1].tolist(), states[b, 1:].tolist(), strict=True):
            assert mrp.P[b, here, there] > 0


@pytest.mark.parametrize("env", ENVIRONMENTS)
def test_tasks_differ_within_a_batch_and_between_calls(request, env):
    pool = request.getfixturevalue("pool") if env == "cartpole" else None
    sampler = task_sampler(TaskConfig(env=env), generator(), pool)
    g = generator(1)
    first, again = sampler.sample(8, 30, g), sampler.sample(8, 30, g)
    same = sampler.sample(8, 30, generator(1))
    for name in ("r", "features"):
        x, y, z = (getattr(mrp, name) for mrp, _ in (first, again, same))
        assert not torch.equal(x, y)
        assert not torch.equal(x[0], x[1])
        assert_close(x, z, atol=0, rtol=0)
    assert_close(first[1], same[1])
    assert not torch.equal(first[1], again[1])


@pytest.mark.parametrize("env", ENVIRONMENTS)
def test_representable_tasks_have_values_in_the_span_of_their_features(request, env):
    pool = request.getfixturevalue("pool") if env == "cartpole" else None
    task = TaskConfig(env=env, representable=True, gamma=0.9)
    mrp, _ = task_sampler(task, generator(), pool).sample(6, 2, generator(), torch.float64)
    w = torch.linalg.lstsq(mrp.features, mrp.value[..., None]).solution
    assert_close(mrp.features @ w, mrp.value[..., None], atol=1e-10, rtol=0)
    plain, _ = task_sampler(TaskConfig(env=env, gamma=0.9), generator(), pool).sample(
        6, 2, generator(), torch.float64
    )
    w = torch.linalg.lstsq(plain.features, plain.value[..., None]).solution
    assert float((plain.features @ w - plain.value[..., None]).abs().max()) > 0.01


def test_a_cart_pole_task_is_a_member_of_the_pool_and_a_window_of_it(pool):
    mrp, states = task_sampler(TaskConfig(env="cartpole"), generator(), pool).sample(
        50, 30, generator(), torch.float64
    )
    pieces = pool.cells.long().unfold(-1, 31, 1)
    for b in range(50):
        poles = [i for i in range(5) if torch.equal(mrp.P[b], pool.P[i])]
        assert len(poles) == 1
        assert_close(mrp.p0[b], pool.p0[poles[0]])
        assert bool((pieces[poles[0]] == states[b]).all(-1).any())


@pytest.mark.slow
def test_without_a_pool_the_generator_makes_the_default_one():
    pytest.importorskip("gymnasium")
    mrp, states = task_sampler(TaskConfig(env="cartpole"), generator(5)).sample(3, 30, generator())
    pool = cart_pole_pool(generator(5))
    pole, windows = pool.windows(3, 30, generator())
    assert_close(states, windows)
    assert_close(mrp.P, pool.P[pole].float())


@pytest.mark.parametrize("feature_dim", [None, 3])
def test_a_file_is_reproduced_exactly_in_float64(write, feature_dim):
    made = tensors(5, feature_dim)
    task = resolve_task(TaskConfig(env=write(made)))
    assert (task.num_states, task.feature_dim) == (5, feature_dim or 4)
    mrp, states = task_sampler(task, generator()).sample(6, 31, generator(2), torch.float64)
    for name, tensor in made.items():
        for copy in getattr(mrp, name):
            assert_close(copy, tensor, atol=0, rtol=0)
    if feature_dim:
        assert_close(states, rollout(mrp, 31, generator(2)))
    else:
        assert_close(mrp.features.norm(dim=-1), torch.ones(6, 5, dtype=torch.float64))
        assert not torch.equal(mrp.features[0], mrp.features[1])
    assert len({tuple(path) for path in states.tolist()}) == 6
    assert_close(mrp.P.sum(-1), torch.ones_like(mrp.r))


@pytest.mark.parametrize("stored", [torch.float32, torch.float64])
def test_a_file_serves_either_precision(write, stored):
    made = tensors(50, 3, stored)
    sampler = task_sampler(resolve_task(TaskConfig(env=write(made))), generator())
    for dtype in (torch.float32, torch.float64):
        mrp, _ = sampler.sample(2, 5, generator(), dtype)
        assert_close(mrp.P[0], made["P"].to(dtype), atol=0, rtol=0)


def test_a_resolved_task_survives_being_stored(write):
    task = resolve_task(TaskConfig(env=write(tensors(5)), features="one-hot", num_states=9))
    assert (task.num_states, task.feature_dim) == (5, 5)
    assert run_config({"task": task.model_dump()}, where="test").task == task
    assert resolve_task(task) == task


@pytest.mark.parametrize("env", ENVIRONMENTS)
def test_other_environments_resolve_to_themselves(env):
    task = TaskConfig(env=env, num_states=7, feature_dim=2)
    assert resolve_task(task) is task


def changed(**changes):
    return {name: x for name, x in (tensors() | changes).items() if x is not None}


def with_entry(name, index, value):
    x = tensors(feature_dim=3)[name].clone()
    x[index] = value
    return {name: x}


BAD_FILES = [
    (changed(r=None), "must hold the tensors P, r, p0 and perhaps features; found no r; FILE$"),
    (changed(P=None, p0=None), "found no P, p0; FILE$"),
    (changed(feature=torch.ones(4, 2)), "found feature too; FILE$"),
    (
        changed(P=torch.eye(4, dtype=torch.int64)),
        "P must be float32 or float64; found int64; FILE, tensor P$",
    ),
    (changed(r=torch.ones(4).half()), "r must be float32 or float64; found float16; FILE, tensor r$"),
    (changed(P=torch.ones(4, 5) / 5), r"P must have the shape \[S, S\]; found \[4, 5\]; FILE, tensor P$"),
    (changed(P=torch.tensor(1.0)), r"P must have the shape \[S, S\]; found \[\]; FILE, tensor P$"),
    (changed(P=torch.ones(0, 0)), r"P must have the shape \[S, S\]; found \[0, 0\]; FILE, tensor P$"),
    (changed(r=torch.ones(3)), r"r must have the shape \[4\]; found \[3\]; FILE, tensor r$"),
    (changed(p0=torch.ones(4, 1)), r"p0 must have the shape \[4\]; found \[4, 1\]; FILE, tensor p0$"),
    (
        changed(features=torch.ones(5, 2)),
        r"features must have the shape \[4, d\]; found \[5, 2\]; FILE, tensor",
    ),
    (
        changed(features=torch.ones(4, 0)),
        r"features must have the shape \[4, d\]; found \[4, 0\]; FILE, tensor",
    ),
    (changed(features=torch.ones(4)), r"features must have the shape \[4, d\]; found \[4\]; FILE, tensor"),
    (changed(features=torch.tensor(1.0)), r"features must have the shape \[4, d\]; found \[\]; FILE, tensor"),
    (
        changed(**with_entry("P", (2, 1), torch.nan)),
        "P must be finite; found .*nan.*; FILE, tensor P, row 2$",
    ),
    (changed(**with_entry("r", 3, torch.inf)), "r must be finite; found inf; FILE, tensor r, row 3$"),
    (changed(**with_entry("features", (1, 0), torch.nan)), "features must be finite; .* features, row 1$"),
    (changed(**with_entry("p0", 1, -0.5)), "p0 must not be negative; found -0.5; FILE, tensor p0, row 1$"),
    (
        changed(**with_entry("P", (2, 1), -0.5)),
        "P must not be negative; found .*-0.5.*; FILE, tensor P, row 2$",
    ),
    (changed(P=torch.diag(torch.tensor([1, 0.9, 1, 1]))), "sum to 1 .*; found 0.9; FILE, tensor P, row 1$"),
    (changed(p0=torch.full((4,), 0.3)), "p0 must sum to 1 within 1e-5; found 1.2; FILE, tensor p0$"),
    (changed(r=torch.ones(4)), "r must differ between states; found the same in all 4; FILE, tensor r$"),
    (changed(features=torch.full((4, 2), 0.5)), "features must differ between states; .* FILE, tensor feat"),
]


@pytest.mark.parametrize(("made", "match"), BAD_FILES)
@pytest.mark.parametrize("use", [resolve_task, lambda task: task_sampler(task, generator())])
def test_an_unusable_file_is_refused(write, made, match, use):
    path = write(made)
    with pytest.raises(InputError, match=match.replace("FILE", path)) as caught:
        use(TaskConfig(env=path, num_states=4))
    assert "\n" not in str(caught.value)


def test_a_file_of_too_few_states_is_refused(write):
    path = write({"P": torch.eye(1), "r": torch.ones(1), "p0": torch.ones(1)})
    with pytest.raises(InputError, match=f"num_states must be .* 2; found 1; {path}"):
        resolve_task(TaskConfig(env=path))


@pytest.mark.parametrize(
    ("asked", "match"),
    [
        (
            {"num_states": 10, "feature_dim": 3},
            "num_states .* the file's; found 10 in the task, 4 in the file; .* P$",
        ),
        (
            {"num_states": 4, "feature_dim": 5},
            "feature_dim .*; found 5 in the task, 3 in the file; .* features$",
        ),
    ],
)
def test_a_task_of_other_sizes_than_the_file_is_refused(write, asked, match):
    with pytest.raises(InputError, match=match):
        task_sampler(TaskConfig(env=write(tensors(4, 3)), **asked), generator())


@pytest.mark.parametrize("use", [resolve_task, lambda task: task_sampler(task, generator())])
def test_a_file_cannot_be_made_representable_or_one_hot(write, use):
    path = write(tensors(4, 3))
    with pytest.raises(InputError, match=f"brings its own rewards; found representable, .*; {path}"):
        use(TaskConfig(env=path, num_states=4, feature_dim=3, representable=True))
    with pytest.raises(
        InputError, match=r"found 4 \(one-hot features\) in the task, 3 in the file; .* features$"
    ):
        use(TaskConfig(env=path, num_states=4, features="one-hot"))


@pytest.mark.parametrize("use", [resolve_task, lambda task: task_sampler(task, generator())])
@pytest.mark.parametrize(
    ("env", "hint"),
    [
        ("boyn", r" \(did you mean boyan\?\)"),
        ("cart-pole", r" \(did you mean cartpole\?\)"),
        ("xyz", ""),
        ("", ""),
    ],
)
def test_an_unknown_environment_is_refused_with_the_names_that_exist(use, env, hint):
    names = "env must be boyan, loop, garnet, cartpole or the path of a .safetensors file"
    with pytest.raises(InputError, match=f"^{names}; found '{env}'{hint}; task, env$"):
        use(TaskConfig(env=env))


def test_a_path_that_holds_no_safetensors_is_refused(tmp_path, write):
    def found(path):
        with pytest.raises(InputError, match="an environment file must") as caught:
            resolve_task(TaskConfig(env=str(path)))
        assert caught.value.where == str(path)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert "must exist; found none" in found(tmp_path / "none.safetensors")
    assert "found a directory" in found(tmp_path)
    text = tmp_path / "notes.txt"
    text.write_text("P, r, p0")
    assert "readable safetensors file; found Error" in found(text)
    whole = write(tensors())
    half = tmp_path / "half.safetensors"
    with open(whole, "rb") as file:
        half.write_bytes(file.read()[: os.path.getsize(whole) // 2])
    assert "readable safetensors file; found Error" in found(half)
    empty = tmp_path / "empty.safetensors"
    empty.touch()
    assert "readable safetensors file" in found(empty)
