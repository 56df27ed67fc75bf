"""Every question on a checkpoint or a run: what is answered where, what is remembered, and what is refused."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from valuelens.analyses import ANALYSES, RUN_ANALYSES, AnalysisConfig, Result, analyze, load_result
from valuelens.analyses import _analyze as module
from valuelens.models import InputError
from valuelens.models.icrl import (
    RunConfig,
    build,
    checkpoint_hash,
    checkpoint_paths,
    load,
    pretrain,
    save_checkpoint,
    theta_star,
)

QUICK = AnalysisConfig(num_tasks=8)
MODELS = {
    "tsm": {"num_layers": 2},
    "tsm untied factored": {"num_layers": 2, "tied": False, "weights": "factored"},
    "dual": {"arch": "dual", "num_layers": 2},
    "dual full": {"arch": "dual", "weights": "full", "num_layers": 2},
    "one layer": {"num_layers": 1},
    "linear": {"arch": "linear", "num_layers": 2},
    "linear full": {"arch": "linear", "num_layers": 2, "weights": "full", "tied": False},
    "transformer": {"arch": "transformer", "num_layers": 1, "d_model": 8, "num_heads": 2},
}
NO_RULE = "contraction, rate, fixed point, statistical floor and bottleneck"
SKIPPED = {
    "tsm": ["opaque"],
    "one layer": ["depth extrapolation", NO_RULE, "opaque"],
    "tsm untied factored": ["depth extrapolation", NO_RULE, "opaque"],
    "dual": [NO_RULE, "opaque"],
    "dual full": [NO_RULE, "NEU by the weights and its landscape", "opaque", "credit"],
    "linear": ["reparameterisation", "diagonality", NO_RULE, "NEU landscape", "opaque", "credit"],
    "linear full": [
        "reparameterisation",
        "diagonality",
        "depth extrapolation",
        NO_RULE,
        "NEU landscape",
        "opaque",
        "credit",
    ],
    "transformer": [
        "distance",
        "reparameterisation",
        "depth extrapolation",
        NO_RULE,
        "NEU landscape",
        "credit",
        "generalisation to context x 2",
        "generalisation to context x 10",
    ],
}


def config(**model: object) -> RunConfig:
    return RunConfig.model_validate(
        {
            "task": {"num_states": 5, "context_length": 10},
            "model": {"num_layers": 2, **model},
            "train": {"steps": 30, "batch_size": 8, "num_checkpoints": 5},
        }
    )


def checkpoint(folder: Path, **model: object) -> Path:
    chosen = config(**model)
    learner = build(chosen.model, chosen.task, torch.Generator().manual_seed(0))
    save_checkpoint(folder / "model", learner, chosen, step=0)
    return folder / "model"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two seeds, 30 steps each."""
    run = tmp_path_factory.mktemp("runs") / "run"
    pretrain(config(), run, num_seeds=2)
    return run


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the questions that were computed, in order."""
    made: list[str] = []

    def counted(name: str, function: object) -> object:
        def call(*arguments: object) -> object:
            made.append(name)
            return function(*arguments)

        return call

    monkeypatch.setattr(
        module,
        "question",
        lambda name: replace(ANALYSES[name], ask=counted(name, ANALYSES[name].ask)),
    )
    monkeypatch.setattr(module, "measurements", counted("emergence", module.measurements))
    return made


@pytest.mark.parametrize("name", ["tied", "untied"])
def test_a_run_of_incontexttd_is_analysed_like_one_of_ours(tmp_path: Path, name: str) -> None:
    run = Path(__file__).parents[1] / "fixtures" / "incontexttd" / name
    result = analyze(run, QUICK, out=tmp_path / "out")
    labels = [f"seed-{each.seed}/{each.name}" for each in checkpoint_paths(run)]
    assert list(result.provenance["request"]["checkpoints"]) == labels
    places = result.provenance["full_analyses_on"]
    assert places == [labels[0], labels[len(labels) // 2], labels[-1]]
    assert len(result.tables["emergence"]) == len(labels)
    assert result.provenance["config"]["incontexttd"]["activation"] == "identity"
    found = {each.name for each in result.findings}
    assert {"value_difference", "implicit_weight_similarity", "sensitivity_similarity", "sparsity"} <= found
    assert "emergence_step" in found


@pytest.mark.parametrize("name", MODELS)
def test_every_architecture_is_analysed(tmp_path: Path, name: str) -> None:
    path = checkpoint(tmp_path, **MODELS[name])
    result = analyze(path, QUICK, out=tmp_path / "out")
    assert [each["what"] for each in result.skipped] == SKIPPED.get(name, [])
    assert all(each["why"] for each in result.skipped)
    assert result.verdict.startswith("This model has not learned")
    assert load_result(tmp_path / "out").findings == result.findings
    assert result.find("msve_ratio")
    assert not any({"checkpoint", "seed"} & set(finding.index) for finding in result.findings)


def test_theta_star_is_recognised(tmp_path: Path) -> None:
    chosen = config(num_layers=8)
    model = theta_star(feature_dim=4, num_layers=8, gamma=0.5, alpha=0.9, sharpness=7.0)
    save_checkpoint(tmp_path / "model", model, chosen, step=0)
    result = analyze(tmp_path / "model", AnalysisConfig(num_tasks=64))
    assert result.verdict.startswith("This model evaluates states in context: ")
    assert "Its update weights have the TD signs ++- with cosine 1 to (1, 1, -1)" in result.verdict
    assert "effective discount is 0.5." in result.verdict
    assert_close(result.find("sharpness")[0].estimate, 7.0)


STARTED = {
    "valuelens analyze 'my run' --seed 8": ["/bin/valuelens", "analyze", "my run", "--seed", "8"],
    "a notebook": ["/lib/ipykernel_launcher.py", "-f", "kernel.json"],
    "''": [],
}


@pytest.mark.parametrize("told", STARTED)
def test_the_provenance_tells_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str) -> None:
    monkeypatch.setattr("sys.argv", STARTED[told])
    given = analyze(checkpoint(tmp_path), AnalysisConfig(num_tasks=8, only=("slots",)))
    assert given.provenance["command"] == told


def test_the_provenance_repeats_the_request(tmp_path: Path) -> None:
    path = checkpoint(tmp_path)
    given = analyze(path, AnalysisConfig(num_tasks=8, seed=3, only=("slots",))).provenance
    request = given["request"]
    assert request["checkpoints"] == {"model": checkpoint_hash(path)}
    assert (tuple(request["only"]), request["num_tasks"], request["seed"]) == (("slots",), 8, 3)
    assert given["config"]["model"]["num_layers"] == 2
    assert given["full_analyses_on"] == ["model"]
    assert {"torch", "valuelens", "python"} <= set(given["versions"])


def test_a_weight_file_will_do(tmp_path: Path) -> None:
    path = checkpoint(tmp_path)
    folder, file = analyze(path, QUICK), analyze(path / "model.safetensors", QUICK)
    assert folder.findings == file.findings


def test_a_run_is_followed(trained: Path) -> None:
    result = analyze(trained, QUICK)
    paths = checkpoint_paths(trained)
    assert len(result.tables["emergence"]) == len(paths)
    names = [each.name for each in paths if each.seed == 0]
    full = [names[0], names[len(names) // 2], names[-1]]
    assert result.provenance["full_analyses_on"] == [f"seed-{s}/{name}" for s in (0, 1) for name in full]
    found = [(finding.index["seed"], finding.index["checkpoint"]) for finding in result.find("msve_ratio")]
    assert found == [(seed, name) for seed in (0, 1) for name in full]
    assert {finding.index["seed"] for finding in result.find("emergence_step")} == {0, 1}
    assert result.arrays[f"seed-1/{full[-1]}/w"].axes == "layer 3"
    row = result.tables["emergence"].query("seed == 1 and step == 30").iloc[0]
    (last,) = result.find("msve_vs_constant", seed=1, checkpoint=full[-1])
    assert_close(float(row["msve_vs_constant"]), last.estimate)


def test_generalisation_is_asked_of_the_last_checkpoint_of_each_seed(trained: Path) -> None:
    quick = AnalysisConfig(num_tasks=4, only=("generalisation",))
    result = analyze(trained, quick)
    last = [each for each in checkpoint_paths(trained) if each.step == 30]
    assert {(f.index["seed"], f.index["checkpoint"]) for f in result.find("generalisation")} == {
        (each.seed, each.name) for each in last
    }
    labels = [f"seed-{each.seed}/{each.name}" for each in last]
    assert result.provenance["on_the_last_only"] == {"generalisation": labels}
    full = analyze(trained, AnalysisConfig(num_tasks=4, only=("generalisation",), full=True))
    assert len(full.find("generalises_to")) == len(checkpoint_paths(trained))


def test_a_full_analysis_asks_everywhere(trained: Path) -> None:
    result = analyze(trained, AnalysisConfig(num_tasks=4, only=("slots",), full=True))
    assert len(result.find("msve_ratio")) == len(checkpoint_paths(trained))


def test_emergence_alone_is_light(trained: Path, calls: list[str]) -> None:
    result = analyze(trained, AnalysisConfig(num_tasks=4, only=("emergence",)))
    assert set(calls) == {"emergence"}
    assert {finding.name.split("_")[0] for finding in result.findings} == {"emergence"}
    assert result.verdict == "Nothing was measured that supports a verdict."


def test_questions_stand_in_their_own_order(tmp_path: Path, calls: list[str]) -> None:
    analyze(checkpoint(tmp_path), AnalysisConfig(num_tasks=4, only=("diagonality", "slots")))
    assert calls == ["slots", "diagonality"]


def test_progress_counts_every_unit(trained: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    analyze(
        trained,
        AnalysisConfig(num_tasks=4, only=("slots", "emergence")),
        progress=lambda what, done, total: seen.append((what, done, total)),
    )
    shares = [done for _, done, _ in seen]
    assert len(set(shares)) == len(checkpoint_paths(trained)) + 7  # and one before the first
    assert shares == sorted(shares)
    assert sum(what.startswith("slots seed-0/") for what, *_ in seen) == 3


def test_a_second_call_reads_the_result(tmp_path: Path, calls: list[str]) -> None:
    path, out = checkpoint(tmp_path), tmp_path / "out"
    first = analyze(path, QUICK, out=out)
    assert calls == list(ANALYSES)
    again = analyze(path, QUICK, out=out)
    assert calls == list(ANALYSES)
    assert (again.findings, again.verdict) == (first.findings, first.verdict)
    assert json.loads(json.dumps(first.provenance)) == again.provenance


def test_an_interrupted_analysis_goes_on(
    tmp_path: Path, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, out = checkpoint(tmp_path), tmp_path / "out"

    def interrupt(_: object) -> Result:
        raise KeyboardInterrupt

    counted = module.question
    stopped = replace(counted("reparameterisation"), ask=interrupt)
    monkeypatch.setattr(module, "question", lambda name: stopped if name == stopped.name else counted(name))
    with pytest.raises(KeyboardInterrupt):
        analyze(path, QUICK, out=out)
    assert calls == ["slots", "distance"]
    assert not (out / "result.json").exists()
    monkeypatch.setattr(module, "question", counted)
    resumed = analyze(path, QUICK, out=out)
    assert calls == list(ANALYSES)
    assert resumed.findings == analyze(path, QUICK).findings


def test_an_interrupted_run_goes_on_where_it_stopped(
    trained: Path, tmp_path: Path, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, out = AnalysisConfig(num_tasks=4, only=("slots", "emergence")), tmp_path / "out"
    counted, done = module.measurements, len(checkpoint_paths(trained)) // 2

    def interrupt_in_the_middle(studied: object) -> dict[str, float]:
        if calls.count("emergence") == done:
            raise KeyboardInterrupt
        return counted(studied)

    monkeypatch.setattr(module, "measurements", interrupt_in_the_middle)
    with pytest.raises(KeyboardInterrupt):
        analyze(trained, asked, out=out)
    before = calls.count("slots")
    monkeypatch.setattr(module, "measurements", counted)
    resumed = analyze(trained, asked, out=out)
    assert before > 0
    assert (calls.count("slots"), calls.count("emergence")) == (6, 2 * done)  # nothing was asked twice
    assert resumed.findings == analyze(trained, asked).findings


@pytest.mark.parametrize("name", ["result.json", "arrays.safetensors"])
def test_a_corrupt_cache_entry_is_computed_again(tmp_path: Path, calls: list[str], name: str) -> None:
    path, out = checkpoint(tmp_path), tmp_path / "out"
    first = analyze(path, QUICK, out=out)
    (out / "result.json").unlink()
    sorted((out / "cache").glob(f"*/{name}"))[0].write_bytes(b"{")
    again = analyze(path, QUICK, out=out)
    assert len(calls) == len(ANALYSES) + 1
    assert again.findings == first.findings


def test_what_a_killed_run_left_is_taken_up(tmp_path: Path, calls: list[str]) -> None:
    path, out = checkpoint(tmp_path), tmp_path / "out"
    first = analyze(path, QUICK, out=out)
    (out / "result.json").unlink()  # written last; arrays and tables are there
    (out / "tables").mkdir(exist_ok=True)
    (out / ".valuelens-tmp-1-new-result.json").write_text("{", encoding="utf-8")
    assert analyze(path, QUICK, out=out).findings == first.findings
    assert calls == list(ANALYSES)
    assert not list(out.glob(".*"))


def test_a_run_takes_its_own_questions(trained: Path) -> None:
    with pytest.raises(
        InputError, match=r"--only takes .*emergence; found 'emergency' \(did you mean emergence\?\)"
    ):
        analyze(trained, AnalysisConfig(num_tasks=4, only=("emergency",)))
    assert RUN_ANALYSES == ("emergence",)


def broken_run(trained: Path, folder: Path, *positions: int) -> tuple[Path, list[str]]:
    """A copy of a run with some weight files cut short, and the labels of the broken checkpoints."""
    shutil.copytree(trained, folder / "run")
    broken = [checkpoint_paths(folder / "run")[position] for position in positions]
    for each in broken:
        (each.path / "model.safetensors").write_bytes(b"cut")
    return folder / "run", [f"seed-{each.seed}/{each.name}" for each in broken]


def test_a_corrupt_checkpoint_of_a_run_is_left_out(trained: Path, tmp_path: Path) -> None:
    run, (label,) = broken_run(trained, tmp_path, -1)
    asked = AnalysisConfig(num_tasks=4, only=("slots", "emergence"))
    result = analyze(run, asked, out=tmp_path / "out")
    (lost,) = result.skipped
    assert lost["what"] == f"every question of {label}"
    assert lost["why"].startswith("a weight file must be readable and whole; found ")
    assert Path(lost["input"]) == checkpoint_paths(run)[-1].path
    assert len(result.tables["emergence"]) == len(checkpoint_paths(run)) - 1
    whole = analyze(trained, asked)
    kept = [f for f in whole.find("msve_ratio", seed=0)]
    assert result.find("msve_ratio", seed=0) == kept
    assert analyze(run, asked, out=tmp_path / "out").skipped == result.skipped


def test_a_run_without_a_usable_checkpoint_is_refused(trained: Path, tmp_path: Path) -> None:
    run, _ = broken_run(trained, tmp_path, *range(len(checkpoint_paths(trained))))
    with pytest.raises(InputError, match="a weight file must be readable and whole"):
        analyze(run, QUICK)


def test_a_checkpoint_that_overflows_is_left_out(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = module.subject

    def overflowing(model: object, task: object, **options: object) -> object:
        if not model.w.detach().ne(first.w).any():
            raise InputError("the model's values must be finite", "found overflow", "read-out")
        return real(model, task, **options)

    paths = checkpoint_paths(trained)
    first = load(paths[0].path)
    monkeypatch.setattr(module, "subject", overflowing)
    module._subject.cache_clear()
    result = analyze(trained, AnalysisConfig(num_tasks=4, only=("slots", "emergence")))
    assert {each["what"] for each in result.skipped} == {
        f"{name} of seed-0/{paths[0].name}" for name in ("slots", "emergence")
    }
    assert len(result.tables["emergence"]) == len(paths) - 1


def test_a_run_of_which_nothing_can_be_analysed_is_refused(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overflowing(*_: object, **__: object) -> object:
        raise InputError("the model's values must be finite", "found overflow", "read-out")

    monkeypatch.setattr(module, "subject", overflowing)
    module._subject.cache_clear()
    told = "a run must have a checkpoint that can be analysed; found none: the model's values must be finite"
    with pytest.raises(InputError, match=told):
        analyze(trained, AnalysisConfig(num_tasks=4, only=("slots",)), out=tmp_path / "out")
    assert not (tmp_path / "out" / "result.json").exists()


@pytest.mark.parametrize("name", ["tsm", "linear", "transformer"])
def test_two_tasks_are_enough(tmp_path: Path, name: str) -> None:
    result = analyze(checkpoint(tmp_path, **MODELS[name]), AnalysisConfig(num_tasks=2, dtype="float32"))
    result.summary()


@pytest.mark.slow
def test_processes_agree_with_one(trained: Path, tmp_path: Path) -> None:
    asked = AnalysisConfig(num_tasks=4, only=("slots", "emergence"))
    assert analyze(trained, asked, jobs=2, out=tmp_path).findings == analyze(trained, asked).findings
