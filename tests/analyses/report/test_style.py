"""Figures can be read by day, by night, on paper, and by those who see fewer colours."""

import itertools
import re

import numpy as np
import pytest
from matplotlib import colormaps
from matplotlib.colors import to_hex

from valuelens.analyses.report._inline import figure_css
from valuelens.analyses.report._style import (
    BLUE,
    BROWN,
    CARD,
    FAINT,
    GREEN,
    GREY,
    GRID,
    INK,
    ORANGE,
    PAGE_COLOURS,
    PURPLE,
    RED,
    SHADES,
    SOFT,
)

TOGETHER = (BLUE, ORANGE, GREEN, RED, PURPLE, BROWN, INK, GREY)
SEEN = {  # linear RGB, the strongest form: Machado, Oliveira and Fernandes 2009
    "all": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}


def linear(shade: str) -> np.ndarray:
    rgb = np.array([int(shade[k : k + 2], 16) for k in (1, 3, 5)]) / 255
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """As WCAG has it."""
    low, high = sorted(float(linear(each) @ [0.2126, 0.7152, 0.0722]) for each in (one, other))
    return (high + 0.05) / (low + 0.05)


def lab(rgb: np.ndarray) -> np.ndarray:
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ np.clip(rgb, 0, 1) / [0.9505, 1, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("page", [0, 1], ids=["light", "dark"])
def test_marks_and_words_stand_out_from_the_card(page: int) -> None:
    words = {INK, SOFT}
    for shades in PAGE_COLOURS:
        if shades[0] != GRID:
            least = 4.5 if shades[0] in words else 3
            assert contrast(shades[page], CARD[page]) >= least, shades


@pytest.mark.parametrize("kind", SEEN)
@pytest.mark.parametrize("page", [0, 1], ids=["light", "dark"])
def test_no_two_colours_look_alike(page: int, kind: str) -> None:
    shown = dict(PAGE_COLOURS) if page else {light: light for light, _ in PAGE_COLOURS}
    places = {shade: lab(np.array(SEEN[kind]) @ linear(shown[shade])) for shade in TOGETHER}
    apart = {
        pair: np.linalg.norm(places[pair[0]] - places[pair[1]])
        for pair in itertools.combinations(TOGETHER, 2)
    }
    assert min(apart.values()) > 12, min(apart, key=lambda pair: apart[pair])
    lightness = [lab(linear(shown[shade]))[0] for shade in SHADES]
    assert (np.abs(np.diff(lightness)) > 8).all()


@pytest.mark.parametrize("name", ["Blues", "Blues_r", "RdBu_r"])
def test_cells_of_maps_keep_their_colours(name: str) -> None:
    cells = {to_hex(shade) for shade in colormaps[name](range(256))}
    assert cells & {light for light, _ in PAGE_COLOURS} == set()


def test_dark_is_for_screens_only() -> None:
    light, dark = figure_css().strip().splitlines()
    assert dark.startswith("@media screen and (prefers-color-scheme: dark)")
    assert re.findall(r"(--f[\w-]+): ", light) == re.findall(r"(--f[\w-]+): ", dark)
    assert len({light for light, _ in PAGE_COLOURS}) == len(PAGE_COLOURS)
    assert FAINT in dict(PAGE_COLOURS)
