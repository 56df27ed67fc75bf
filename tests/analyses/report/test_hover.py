"""What is pointed at says what was drawn there: targets lie on the marks, and their words hold the numbers."""

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm

from valuelens.analyses import Control, Finding, Result
from valuelens.analyses.report._hop_figures import hop_map_figure, hop_share_figure
from valuelens.analyses.report._hover import MOST, MOST_HELD, tell
from valuelens.analyses.report._numbers import interval_words
from valuelens.analyses.report._style import blank, styled, svg_text
from valuelens.analyses.report._value_figures import value_lens_figure

SVG = "{http://www.w3.org/2000/svg}"
Draw = Callable[[Axes], object]


def drawn(draw: Draw) -> str:
    with styled():
        figure = blank(5, 4)
        draw(figure.subplots())
        return svg_text(figure)


def targets(svg: str) -> list[tuple[dict[str, float], str]]:
    """Places and words."""
    groups = [g for g in ET.fromstring(svg).iter(f"{SVG}g") if g.get("class") == "hover"]
    assert len(groups) <= 1
    return [
        ({key: float(value) for key, value in each.attrib.items()}, each.findtext(f"{SVG}title") or "")
        for group in groups
        for each in group
    ]


def words(draw: Draw) -> list[str]:
    return [said for _, said in targets(drawn(draw))]


def places(svg: str, tag: str) -> np.ndarray:
    """Where matplotlib put its own marks (`use`), or we our targets (`circle`)."""
    names = {"use": ("x", "y"), "circle": ("cx", "cy")}[tag]
    data = [
        [float(each.attrib[name]) for name in names]
        for group in ET.fromstring(svg).iter(f"{SVG}g")
        if tag == "circle" or (group.get("id") or "").startswith("line2d_")
        for each in group.findall(f".//{SVG}{tag}")
        if tag == "circle" or group.get("clip-path") or group.find(f"{SVG}g[@clip-path]") is not None
    ]
    return np.unique(np.round(data, 2), axis=0)


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_targets_lie_on_the_marks_and_say_their_numbers(scale: str) -> None:
    x, y = [1.0, 2.0, 5.0], [0.01234, 3.0, 47.5]

    def draw(ax: Axes) -> None:
        ax.plot(x, y, marker="o", label="the model")
        ax.set(xlabel="layer", ylabel="error", yscale=scale)

    svg = drawn(draw)
    np.testing.assert_allclose(places(svg, "circle"), places(svg, "use"), atol=0.02)
    assert [said for _, said in targets(svg)] == [
        "the model\nlayer: 1\nerror: 0.0123",
        "the model\nlayer: 2\nerror: 3",
        "the model\nlayer: 5\nerror: 47.5",
    ]


def test_intervals_are_said_with_their_mark_and_with_no_other() -> None:
    def draw(ax: Axes) -> None:
        ax.plot([0, 1], [1.0, 2.0], marker="o", color="#0173b2", label="a")
        ax.vlines(0, 0.5, 1.5, color="#0173b2")
        ax.vlines(0, 0.0, 9.0, color="#ff0000", label="_range")
        ax.plot([0, 1], [3.0, 4.0], marker="s", color="#00aa00", label="b")
        ax.fill_between([0, 1], [2.5, 3.5], [3.25, 5.0], color="#00aa00", alpha=0.2)
        ax.errorbar([2], [1.0], [[0.25], [0.5]], color="#222222", marker="D", capsize=3, label="c")
        ax.plot([0.5, 0.75], [1, 1], color="#222222")

    said = words(draw)
    assert said == [
        "a\n0\n1\ninterval: 0.50 to 1.50",
        "a\n1\n2",
        "b\n0\n3\ninterval: 2.50 to 3.25",
        "b\n1\n4\ninterval: 3.50 to 5",
        "c\n2\n1\ninterval: 0.75 to 1.50",
    ]


def test_bars_and_cells_cover_what_they_speak_of() -> None:
    def bars(ax: Axes) -> None:
        ax.bar([0, 1], [2.0, 3.0], width=1, label="groups")
        ax.set(xlim=(-1, 2), ylim=(0, 4), xlabel="x", ylabel="n")

    (first, second) = targets(drawn(bars))
    assert (first[1], second[1]) == ("groups\nx: -0.50 to 0.50\nn: 2", "groups\nx: 0.50 to 1.50\nn: 3")
    assert second[0]["x"] == pytest.approx(first[0]["x"] + first[0]["width"], abs=0.02)
    assert second[0]["height"] == pytest.approx(1.5 * first[0]["height"], abs=0.02)

    def cells(ax: Axes) -> None:
        ax.pcolormesh([-0.5, 0.5, 1.5], [-0.5, 0.5], [[0.125, np.nan]]).set_label("_share")
        ax.set_yticks([0], ["a row"])

    svg = drawn(cells)
    ((place, said),) = targets(svg)
    assert said == "0\na row\nshare: 0.125"
    path = re.findall(r'<g id="QuadMesh_1">.*?<path d="([^"]+)"', svg, flags=re.S)[0]
    corners = np.array(re.findall(r"[ML] (\S+) (\S+)", path), dtype=float)
    assert [place["x"], place["y"]] == pytest.approx(corners.min(0).tolist(), abs=0.02)
    ends = [place["x"] + place["width"], place["y"] + place["height"]]
    assert ends == pytest.approx(corners.max(0).tolist(), abs=0.02)


def test_places_are_named_as_a_reader_names_them() -> None:
    def rows(ax: Axes) -> None:
        ax.plot([0.5], [1.1], marker="o")
        ax.set_yticks([0, 1], ["theta*", "the <model>"])

    assert words(rows) == ["0.50\nthe <model>"]  # beside its row, and escaped

    def shifted(ax: Axes) -> None:
        ax.plot([3], [1], marker="o")
        ax.set_xticks([0, 4, 8], ["input", "3", "7"])  # 3 has no name, and its number would lie

    assert words(shifted) == ["1"]

    def told(ax: Axes) -> None:
        (mark,) = ax.plot([3, 4], [1, 1], marker="o", label="m")
        ax.fmt_xdata = lambda x: f"step {x:g}"
        tell(mark, ["first", "second"], whole=False)

    assert words(told) == ["m\nfirst\nstep 3\n1", "m\nsecond\nstep 4\n1"]


def test_what_is_not_data_or_not_seen_is_silent() -> None:
    def draw(ax: Axes) -> None:
        ax.plot([0, 1, np.nan, 50], [0, 1, 1, 1], marker="o", label="m")
        ax.set_xlim(-1, 2)
        ax.axhline(0.5, label="threshold")
        ax.axvline(0.5)
        ax.axline((0, 0), slope=1)

    assert words(draw) == ["m\n0\n0", "m\n1\n1"]
    assert 'class="hover"' not in drawn(lambda ax: ax.axhline(1))


def test_there_are_not_too_many() -> None:
    count = len(words(lambda ax: [ax.plot(np.arange(5 * MOST), np.arange(5 * MOST) + k) for k in range(3)]))
    assert MOST / 2 < count <= MOST + 3
    side = int(MOST_HELD**0.5) + 1
    assert words(lambda ax: ax.pcolormesh(np.ones((side, side)))) == []


def test_a_map_of_many_cells_is_one_target_that_holds_all_words() -> None:
    """Lines that follow columns or rows are held once each; ends of cells stand where matplotlib drew them."""
    values = np.arange(30 * 40, dtype=float).reshape(30, 40) / 8
    values[1, 2] = np.nan

    def draw(ax: Axes) -> None:
        ax.pcolormesh(np.linspace(-1, 1, 41), np.linspace(0, 3, 31), values)
        ax.set(xlabel="across", ylabel="it's <up>", title="height")

    svg = drawn(draw)
    (group,) = (g for g in ET.fromstring(svg).iter(f"{SVG}g") if g.get("class") == "hover")
    (target,) = group
    assert target.findtext(f"{SVG}title") == "height"
    held = json.loads(target.attrib["data-plane"])
    assert [list(line) for line in held["lines"]] == [["x"], ["y"], ["v"]]
    across, up, said = (next(iter(line.values())) for line in held["lines"])
    assert (len(across), across[0], across[-1]) == (40, "across: -0.975", "across: 0.975")
    assert (len(up), up[0], up[10]) == (30, "it's <up>: 0.05", "it's <up>: 1.05")
    assert (said[0], said[41], said[-1]) == ("height: 0", "height: 5.12", "height: 150")
    assert (held["silent"], said[42]) == ([42], "")
    left, top, width, height = (float(target.attrib[key]) for key in ("x", "y", "width", "height"))
    assert [held["across"][k] for k in (0, -1)] == pytest.approx([left, left + width], abs=0.02)
    assert [held["up"][k] for k in (-1, 0)] == pytest.approx([top, top + height], abs=0.02)


def test_the_value_lens_says_its_findings() -> None:
    control = Control(name="iterates with exchanged rewards", estimate=[1.0, 3.25, 2.0])
    lens = Finding(
        name="value_lens",
        estimate=[1.0, 0.1234, 0.00567],
        unit="1",
        n=8,
        definition="choice",
        index={"reference": "TD iterate"},
        control=control,
        reasons={"interval": "none"},
    )
    said = words(lambda ax: value_lens_figure(ax, Result(kind="in-context-rl", findings=(lens,))))
    name = "against the TD iterate\nlayer after which the value is read"
    assert [each.rsplit(": ", 1)[1] for each in said] == ["1", "0.123", "0.0057", "1", "3.25", "2"]
    assert [each.split(": ")[0] for each in said[:3]] == [name] * 3
    assert [each.split("\n")[1].split(": ")[1] for each in said[:3]] == ["input", "0", "1"]
    assert said[3].startswith("against iterates with exchanged rewards (control)\n")


def test_credit_says_its_hop_layer_and_interval(language_result: Callable[..., Result]) -> None:
    result = language_result(objective="reward")
    said = words(lambda ax: hop_share_figure(ax, result))
    (found,) = result.find("hop_share", layer=15, hop=2)
    assert found.interval is not None
    between = interval_words(*found.interval)
    mine = next(each for each in said if each.startswith("layer 15\nsampled tokens crossed: 2\n"))
    assert mine.endswith(f"share of the relaxed sum: {found.estimate:.4f}\ninterval: {between}")
    cells = words(lambda ax: hop_map_figure(ax, result))
    norm = result.tables["hops"].query("layer == 0 and hop == 1 and state == 3")["norm"].item()
    assert f"norm {norm:.3f}" in next(each for each in cells if "state 3, hop 1" in each)


def test_exact_numbers_stand_behind_clipped_colours() -> None:
    def draw(ax: Axes) -> None:
        mesh = ax.pcolormesh([[1e-6, 0.5]], norm=LogNorm(1e-6, 1))
        tell(mesh, ["3e-9", "0.5"])

    assert words(draw) == ["3e-9", "0.5"]
