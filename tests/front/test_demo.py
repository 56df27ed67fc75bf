"""The demo, whole: three trained models, their results, one report; and the default model on seeds 0-4."""

import json
import re
from pathlib import Path
from statistics import median

import pytest

import valuelens as vl
from valuelens.analyses import load_result, measurements, subject
from valuelens.models.icrl import checkpoint_paths, load, load_config, pretrain, run_config

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.slow
def test_the_demo_trains_analyses_and_reports_and_a_second_call_continues(tmp_path, follow):
    folder, tmp_path = tmp_path, tmp_path / "demo"
    summary = vl.demo(tmp_path, jobs=1)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    starts = dict.fromkeys(("tied", "untied-full"), "This model evaluates states in context")
    starts["label-copy"] = "By subtractive signal x tilt headroom, RL should gain most from step "
    assert summary["verdicts"].keys() == starts.keys()
    for name, verdict in summary["verdicts"].items():
        assert verdict.startswith(starts[name])
        assert verdict in page.replace("&#39;", "'")
        assert load_result(tmp_path / f"{name}-results").verdict == verdict
        assert any((tmp_path / f"{name}-results" / "figures").glob("*.svg"))
    ranking = load_result(tmp_path / "label-copy-results")
    assert len(ranking.tables["scores"]) == 6
    assert {each.reasons["estimate"] for each in ranking.find("spearman")} == {"fewer than 8 checkpoints"}
    untied = load_result(tmp_path / "untied-full-results")
    first, *others = untied.find("sign_pattern", checkpoint="step-00002000")
    assert first.estimate == "unidentified"
    assert "zero gradient" in first.reasons["estimate"]
    assert [finding.estimate for finding in others] == ["++-", "++-"]
    before = (tmp_path / "tied-results" / "result.json").read_bytes()
    assert vl.demo(tmp_path, jobs=1) == summary
    assert (tmp_path / "tied-results" / "result.json").read_bytes() == before
    assert json.loads(before)["provenance"]["full_analyses_on"][-1] == "seed-0/step-00002000"
    follow(DOCS / "tutorial.md", folder)
    readme = DOCS.parent / "README.md"
    shown = re.search(r"^print\(.+\)  # ([^;]+);", readme.read_text(encoding="utf-8"), re.MULTILINE)
    assert shown
    assert follow(readme, folder)["result"].find("algorithm")[0].estimate == shown[1]


@pytest.mark.slow
def test_the_default_model_learns_softmax_td_on_seeds_0_to_4(tmp_path):
    config = run_config({"task": {}, "model": {}, "train": {}}, where="test")
    pretrain(config, tmp_path, num_seeds=5)
    rows = []
    for seed in range(5):
        run = [each for each in checkpoint_paths(tmp_path) if each.seed == seed]
        task = load_config(run[0].path / "config.json").task
        start, end = (
            measurements(subject(load(each.path), task, num_tasks=512)) for each in (run[0], run[-1])
        )
        rows.append({**end, "growth": end["kernel_diagonal_mean"] / start["kernel_diagonal_mean"]})

    def middle(name):
        return median(row[name] for row in rows)

    assert middle("signs") == 1
    assert middle("weight_cosine") >= 0.97
    assert middle("growth") >= 3
    assert middle("msve_vs_constant") <= 1 / 3
    assert middle("within_chain_r2") >= 0.85
