"""Results: nothing without its reasons, bit for bit through a file, and one line for every damage."""

import json
import math
import os
import re
from dataclasses import replace
from pathlib import Path

import jsonschema
import pandas as pd
import pytest
import torch
from torch.testing import assert_close

from valuelens.analyses import (
    Array,
    Control,
    Finding,
    Result,
    load_result,
    merged,
    result_schema,
    save_result,
)
from valuelens.models import InputError

WHY = {"interval": "single seed", "control": "not applicable", "estimate": "not defined"}


def finding(estimate: object = 0.1 + 0.2, **changes: object) -> Finding:
    fields = {"name": "step_size", "unit": "1", "n": 3, "definition": "derived", "reasons": WHY, **changes}
    return Finding(estimate=estimate, **fields)


def example() -> Result:
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return Result(
        kind="in-context-rl",
        verdict="Alles « gut ».",
        findings=(
            finding(index={"layer": 0}),
            finding([1.0, math.nan, 1e-320], index={"layer": "all", "seed": 3}),
            finding("++-", name="sign_pattern", control=Control(name="TD", estimate="++-")),
            finding(1 / 3, interval=(0.1, 1 - 1e-16), control=Control(name="theta*", estimate=[1.0, None])),
        ),
        skipped=({"what": "credit", "why": "nothing to see"},),
        provenance={"request": {"num_tasks": 4}, "seconds": 0.1},
        arrays={
            "seed-0/x": Array(axes="layer task", values=x),
            "view": Array(axes="task layer", values=x.T),
            "same": Array(axes="layer task", values=x),
            "float32": Array(axes="n", values=torch.tensor([1.1, math.nan, -0.0])),
            "states": Array(axes="n", values=torch.arange(4)),
            "empty": Array(axes="n", values=torch.zeros(0)),
            "scalar": Array(axes="", values=torch.tensor(2.5)),
        },
        tables={"emergence": pd.DataFrame({"step": [0, 10], "loss": [0.1, math.nan], "name": ["a", "b"]})},
    )


def test_a_result_survives_its_file_bit_for_bit(tmp_path: Path) -> None:
    saved = example()
    save_result(saved, tmp_path)
    read = load_result(tmp_path)
    assert (read.kind, read.verdict, read.provenance) == (saved.kind, saved.verdict, saved.provenance)
    assert read.findings == saved.findings
    assert read.skipped == saved.skipped
    assert read.arrays.keys() == saved.arrays.keys()
    for name, array in saved.arrays.items():
        assert read.arrays[name].axes == array.axes
        assert_close(read.arrays[name].values, array.values, rtol=0, atol=0, equal_nan=True)
    assert read.tables.keys() == saved.tables.keys()
    pd.testing.assert_frame_equal(read.tables["emergence"], saved.tables["emergence"], check_exact=True)


def test_an_empty_result_survives(tmp_path: Path) -> None:
    save_result(Result(kind="in-context-rl"), tmp_path)
    assert load_result(tmp_path) == Result(kind="in-context-rl")


def test_a_second_result_replaces_the_first(tmp_path: Path) -> None:
    save_result(example(), tmp_path)
    save_result(Result(kind="in-context-rl", verdict="new"), tmp_path)
    read = load_result(tmp_path)
    assert (read.verdict, dict(read.arrays), dict(read.tables)) == ("new", {}, {})


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_becomes_null(bad: float) -> None:
    assert finding(bad).estimate is None
    assert finding([1.0, bad]).estimate == [1.0, None]
    assert Control(name="a", estimate=bad).estimate is None
    text = json.dumps(Result(kind="in-context-rl", findings=(finding([bad]),)).summary(), allow_nan=False)
    assert json.loads(text)["findings"][0]["estimate"] == [None]


@pytest.mark.parametrize("key", ["estimate", "interval", "control"])
def test_what_is_missing_says_why(key: str) -> None:
    reasons = {other: text for other, text in WHY.items() if other != key}
    with pytest.raises(ValueError, match=f"a finding without {key} says why; found no reason; step_size"):
        finding(math.nan, reasons=reasons)


def test_a_control_with_a_hole_says_why() -> None:
    with pytest.raises(ValueError, match="a finding without control says why"):
        finding(control=Control(name="a", estimate=[1.0, math.nan]), reasons={"interval": "single seed"})


def test_the_schema_refuses_unknown_names() -> None:
    result = Result(kind="in-context-rl", findings=(finding(name="step_sise"),))
    with pytest.raises(jsonschema.ValidationError, match="'step_sise' is not one of"):
        result.summary()
    brought = Result(kind="in-context-rl", findings=(finding(name="order.Agreement"),))
    with pytest.raises(jsonschema.ValidationError, match=r"'order\.Agreement' does not match"):
        brought.summary()


def test_nothing_is_written_of_what_does_not_fit(tmp_path: Path) -> None:
    with pytest.raises(jsonschema.ValidationError, match="'tea leaves' is not one of"):
        save_result(Result(kind="tea leaves"), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(result_schema())


def test_findings_are_found_by_name_and_index() -> None:
    result = example()
    assert result.find("step_size", layer=0) == [result.findings[0]]
    assert result.find("step_size", layer="all", seed=3) == [result.findings[1]]
    assert result.find("step_size", layer=7) == []
    assert len(result.find("step_size")) == 3


def test_parts_are_joined_in_their_order() -> None:
    one, two = Result(kind="in-context-rl", findings=(finding(1.0),)), example()
    whole = merged([one, two], verdict="both")
    assert whole.findings == (*one.findings, *two.findings)
    assert (whole.verdict, whole.skipped, whole.arrays, whole.tables.keys()) == (
        "both",
        two.skipped,
        two.arrays,
        two.tables.keys(),
    )


def test_the_table_holds_numbers_as_they_are() -> None:
    table = example().table()
    assert table["where"].tolist() == ["layer 0", "layer all seed 3", "", ""]
    assert table["estimate"].tolist() == [0.1 + 0.2, [1.0, None, 1e-320], "++-", 1 / 3]
    assert table.loc[3, ["low", "high"]].tolist() == [0.1, 1 - 1e-16]
    assert table["low"].isna().tolist() == [True, True, True, False]
    assert table.loc[2, ["control", "control_name"]].tolist() == ["++-", "TD"]
    assert Result(kind="costates").table().columns.tolist() == table.columns.tolist()


def test_a_printed_result_is_its_table_what_was_skipped_and_the_verdict() -> None:
    *rows, gap, skipped, verdict = str(example()).splitlines()
    assert [row.split()[0] for row in rows] == ["finding", *(f.name for f in example().findings)]
    assert rows[4].split() == ["step_size", "0.3333", "[0.1,", "1]", "[1,", "-]", "(theta*)"]
    assert (gap, skipped, verdict) == ("", "skipped: credit: nothing to see", "Alles « gut ».")
    assert str(Result(kind="costates", verdict="nothing")) == "\n\nnothing"


def test_whole_numbers_stay_whole_and_long_words_stand_below_the_table() -> None:
    words = "Every group has the same reward, so that there is no advantage and no update."
    printed = str(Result(kind="costates", findings=(finding(15000), finding(words, name="diagnosis"))))
    assert printed.splitlines()[1].split() == ["step_size", "15000"]
    assert printed.splitlines()[2].split() == ["diagnosis", "(below)"]
    assert printed.splitlines()[4] == f"diagnosis: {words}"
    said = Result(kind="costates", verdict=f"{words} So be it.", findings=(finding(words, name="diagnosis"),))
    assert str(said).count(words) == 1


def test_a_notebook_shows_a_result_and_trusts_no_word() -> None:
    evil = "<script>&\"'"
    spoilt = replace(
        example(),
        verdict=evil,
        skipped=({"what": evil, "why": evil},),
        findings=(finding(evil, index={evil: evil}, control=Control(name=evil, estimate=evil)),),
    )
    html = spoilt._repr_html_()
    assert "<script" not in html
    assert html.count("&lt;script&gt;&amp;") == 8
    shown = example()._repr_html_()
    assert "Alles « gut »." in shown
    assert "4 findings" in shown
    assert re.findall("<td>(.*)</td>", shown)[-3:] == ["0.3333", "[0.1, 1]", "[1, -] (theta*)"]
    assert "findings" not in Result(kind="costates", verdict="nothing")._repr_html_()


def test_a_long_result_is_folded_in_a_notebook() -> None:
    many = replace(example(), findings=(finding(),) * 41)
    assert "<details><summary>41 findings" in many._repr_html_()
    assert "<details open><summary>4 findings" in example()._repr_html_()
    assert repr(many) == str(many)


def test_the_table_of_one_name_is_what_is_found_of_it() -> None:
    table = example().table("step_size", layer=0)
    assert table[["finding", "where"]].values.tolist() == [["step_size", "layer 0"]]
    assert len(example().table("step_size")) == len(example().find("step_size")) == 3
    assert example().table("entropy").columns.tolist() == example().table().columns.tolist()


def test_a_finding_is_one_line() -> None:
    assert str(example().findings[-1]) == "step_size: 0.3333 [0.1, 1] (theta*: [1, -])"
    assert str(example().findings[0]) == "step_size layer 0: 0.3"


def damaged(folder: Path, name: str, content: bytes | None) -> str:
    save_result(example(), folder)
    path = folder / name
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    with pytest.raises(InputError) as error:
        load_result(folder)
    assert "\n" not in str(error.value)
    assert str(path.parent) in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "a result folder has a result.json; found none"),
        (b"{", "must fit the result schema; found Expecting property name"),
        (b"\xff\xfe", "must fit the result schema; found 'utf-8' codec"),
        (b"[]", "must fit the result schema; found"),
        (b"[" * 100_000, "must fit the result schema; found maximum recursion depth exceeded"),
        (b'{"schema": {"name": "other", "version": 1}}', "must fit the result schema; found"),
    ],
)
def test_a_damaged_summary_is_one_line(tmp_path: Path, content: bytes | None, told: str) -> None:
    assert told in damaged(tmp_path, "result.json", content)


def test_an_edited_summary_needs_its_reasons_too(tmp_path: Path) -> None:
    save_result(example(), tmp_path)
    text = (tmp_path / "result.json").read_text(encoding="utf-8").replace('"interval": "single seed",', "", 1)
    assert "a finding without interval says why" in damaged(tmp_path, "result.json", text.encode())


@pytest.mark.parametrize("size", [None, 0, 7, -5])
def test_damaged_arrays_are_one_line(tmp_path: Path, size: int | None) -> None:
    save_result(example(), tmp_path)
    whole = (tmp_path / "arrays.safetensors").read_bytes()
    told = damaged(tmp_path, "arrays.safetensors", None if size is None else whole[:size])
    assert ("has an arrays.safetensors; found none" if size is None else "must be whole safetensors") in told


def test_a_damaged_table_is_one_line(tmp_path: Path) -> None:
    assert "a table must be a whole parquet file" in damaged(tmp_path, "tables/emergence.parquet", b"PAR1")


@pytest.mark.parametrize("name", ["arrays.safetensors", "result.json", "emergence.parquet"])
def test_a_killed_write_leaves_the_old_file(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_result(Result(kind="in-context-rl", verdict="old"), tmp_path)
    replace = os.replace

    def killed(source: Path, target: Path) -> None:
        if Path(target).name == name:
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        save_result(example(), tmp_path)
    read = load_result(tmp_path)
    assert (read.verdict, read.findings) == ("old", ())
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith(".")]


def test_a_reason_for_a_control_that_is_there_is_not_kept() -> None:
    """Read beside the control it would be a statement of fact."""
    kept = finding(
        control=Control(name="chance", estimate=0.5), reasons={"control": "none", "interval": "one task"}
    )
    assert kept.reasons == {"interval": "one task"}
