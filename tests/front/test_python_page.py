"""docs/python.md is true today: every block runs, none is long, and every verb and option stands in the page."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
import typer.main

import valuelens as vl
from valuelens import _front, cli
from valuelens.models import InputError
from valuelens.models.icrl import RunConfig
from valuelens.models.lm import LMRunConfig

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
SECTIONS = dict(zip(*[iter(re.split(r"^## (.+)$", PAGE, flags=re.MULTILINE)[1:])] * 2, strict=True))
COMMANDS = typer.main.get_group(cli.app).commands

each_verb = pytest.mark.parametrize("verb", COMMANDS)
together = pytest.mark.xdist_group("docs/python.md")  # blocks stand on each other


def options(command: Any) -> set[str]:
    """Names of the options of a verb, or of the whole command line."""
    names = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    return {name for name in names if name.startswith("--")}


@each_verb
def test_every_option_stands_in_the_section_of_its_verb(verb: str) -> None:
    said = set(re.findall(r"`(--[\w-]+)`", SECTIONS[verb]))
    assert said == options(COMMANDS[verb]) - {"--help"}


def test_every_section_is_a_verb_and_the_rest_is_said_too() -> None:
    assert [name for name in SECTIONS if name not in COMMANDS] == ["What only a shell needs"]
    said = set(re.findall(r"`(--[\w-]+)`", SECTIONS["What only a shell needs"]))
    assert said | {"--help"} >= options(typer.main.get_group(cli.app))
    assert "`--help`" in PAGE


@pytest.mark.parametrize(("verb", "config"), [("pretrain", RunConfig), ("pretrain-lm", LMRunConfig)])
def test_keys_of_a_part_are_its_fields(verb: str, config: Any) -> None:
    for row in SECTIONS[verb].splitlines():
        for part in re.findall(r"keys of `\"(\w+)\"`", row):
            fields = config.model_fields[part].annotation.model_fields
            named = {name.strip("-").replace("-", "_") for name in re.findall(r"`(--[\w-]+)`", row)}
            assert {name for name in named - {"untied", "no_positions"} if name not in fields} == set()


def test_no_call_is_longer_than_five_lines() -> None:
    assert len(BLOCKS) > 20
    long = [block for block in BLOCKS[1:] if len(block.strip().splitlines()) > 5]
    assert long == []


@pytest.fixture(scope="module")
def ran(
    tmp_path_factory: pytest.TempPathFactory, tiny_model: Any, word_tokenizer: Any
) -> Iterator[dict[int, Any]]:
    """What each block raised, and the names that all of them left; they run in one empty folder."""
    folder, raised = tmp_path_factory.mktemp("page"), dict[Any, Any]()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(ROOT / "examples")
        _prepare(folder, patch, tiny_model, word_tokenizer("i0 i1 L0 L1 =>"))
        names: dict[str, Any] = {}
        for number, block in enumerate(BLOCKS):
            _give(number, names, folder)
            try:
                _run(block, number, names)
            except Exception as error:  # noqa: BLE001  # told by the block's own test
                raised[number] = error
        yield {**raised, "names": names, "folder": folder}


def _run(block: str, number: int, names: dict[str, Any]) -> None:
    if "scheduler=" not in block:
        exec(compile(block, f"docs/python.md, block {number}", "exec"), names)
        return
    from distributed import LocalCluster

    quiet: dict[str, Any] = {"dashboard_address": "127.0.0.1:0", "silence_logs": 50, "memory_limit": 0}
    with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, **quiet) as cluster:
        exec(block.replace("tcp://scheduler:8786", cluster.scheduler_address), names)


def _prepare(folder: Path, patch: pytest.MonkeyPatch, tiny_model: Any, tokenizer: Any) -> None:
    """What the page takes for granted: weights of a network, a model in the hub's cache, and a demo that is known."""
    from huggingface_hub import constants
    from plain_module import MyModule

    torch.save(MyModule().double().state_dict(), folder / "weights.pt")
    patch.setattr(constants, "HF_HUB_CACHE", str(folder / "hub"))
    patch.setattr(constants, "HF_HUB_OFFLINE", True)
    model = folder / "hub" / "models--allenai--OLMo-2-0425-1B"
    for number, revision in enumerate(("main", "step10", "step20")):
        snapshot = model / "snapshots" / f"{number + 1:040x}"
        tiny_model("olmo2", seed=number, num_layers=2).save_pretrained(snapshot)
        tokenizer.save_pretrained(snapshot)
        (model / "refs").mkdir(exist_ok=True)
        (model / "refs" / revision).write_text(f"{number + 1:040x}")
    # the whole demo takes minutes: tests/front/test_demo.py runs this function
    demo = {"report": "demo/report.html", "verdicts": {}}
    patch.setattr(_front._verbs, "demo", lambda out, **options: demo if out == Path("demo") else {})


def _give(number: int, names: dict[str, Any], folder: Path) -> None:
    """Files that a reader would have, before the block that names them."""
    if "gains.csv" in BLOCKS[number]:
        labels = [each.label for each in names["found"]]
        table = pd.DataFrame({"checkpoint": labels, "reward_before": 0.25, "reward_after": [0.25, 0.5, 0.75]})
        table.to_csv(folder / "gains.csv", index=False)
    if "rollouts/{each.label}" in BLOCKS[number]:
        (folder / "rollouts").mkdir()
        for each in names["found"]:
            model = vl.load_language_model(each.source)
            rollouts = vl.generate(model, names["task"].task, names["source"].generate)
            rollouts.table().drop(columns="targets").to_parquet(folder / "rollouts" / f"{each.label}.parquet")


@pytest.mark.slow
@together
@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_block_runs(ran: dict[Any, Any], number: int) -> None:
    if number in ran:
        raise ran[number]


@pytest.mark.slow
@together
def test_the_blocks_did_what_the_page_says(ran: dict[Any, Any]) -> None:
    names, folder = ran["names"], ran["folder"]
    assert (folder / "results/small/report.html").exists()
    assert any((folder / "results/small/figures").glob("*.svg"))
    assert names["metrics"].seed.unique().tolist() == [0, 1]
    assert names["mine"].find("algorithm")[0].estimate == "weighted softmax TD"
    assert names["everything"].provenance["full_analyses_on"] != names["result"].provenance.get(
        "full_analyses_on"
    )
    assert names["credit"].find("objective")[0].estimate == "reward"
    assert names["judged"].tables["gains"].gain.tolist() == [0.0, 0.25, 0.5]
    assert names["ranking"].tables["gains"].recipe.tolist() == ["fast"]
    assert [each.revision for each in names["revisions"]] == ["step10", "step20"]
    assert names["by_revision"].tables["scores"].checkpoint.tolist() == [
        each.label for each in names["revisions"]
    ]
    kept = folder / "hub" / "models--allenai--OLMo-2-0425-1B" / "snapshots"
    assert [each.name for each in kept.iterdir()] == [f"{1:040x}"]  # main: the others were evicted
    for name in ("found", "far", "read"):
        assert names[name]
    assert names["far"].find("signal")[0].estimate == names["scores"].find("signal")[0].estimate
    page = (folder / "report.html").read_text(encoding="utf-8")
    for result in names["results"].values():
        assert result.verdict[:40] in page
    assert set(names["checks"].columns) == {"what", "state", "found"}
    assert "gradients" in set(names["checks"].what)


def test_clearing_removes_ours_and_refuses_what_is_not(tmp_path: Path) -> None:
    vl.clear(tmp_path / "nothing")
    series = tmp_path / "series"
    (series / "step-00000100").mkdir(parents=True)
    (series / "config.json").write_text(LMRunConfig().model_dump_json())
    (series / "thesis.tex").write_text("")
    with pytest.raises(InputError, match=r"and nothing else; found other files: thesis\.tex; "):
        vl.clear(str(series))
    assert len(list(series.iterdir())) == 3
    (series / "thesis.tex").unlink()
    vl.clear(str(series))
    assert list(series.iterdir()) == []
