"""Figures of credit by hop hold the numbers of the result."""

from collections.abc import Callable

import numpy as np
import pytest
from matplotlib.figure import Figure

from valuelens.analyses import Result
from valuelens.analyses.report._hop_figures import hop_map_figure, hop_share_figure

Make = Callable[..., Result]


def test_a_line_a_layer_holds_the_shares_in_the_order_of_hops(language_result: Make) -> None:
    result = language_result((0, 30), objective="reward")
    ax = hop_share_figure(Figure().subplots(), result)
    lines = [line for line in ax.get_lines() if len(line.get_xdata()) == 4]
    assert [line.get_label() for line in lines] == ["layer 0", "after the final norm"]
    for line, layer in zip(lines, (0, 30), strict=True):
        expected = [f.estimate for f in result.find("hop_share", layer=layer)]
        np.testing.assert_allclose(line.get_ydata(), expected)
        assert sum(expected) == pytest.approx(1)
    assert len({line.get_marker() for line in lines}) == 2  # not by colour alone


def test_the_map_shows_the_lowest_layer_relative_to_its_largest_norm(language_result: Make) -> None:
    result = language_result((15, 0, 22), objective="reward")
    ax = hop_map_figure(Figure().subplots(), result)
    (mesh,) = ax.collections
    table = result.tables["hops"]
    norms = table[table.layer == 0].pivot(index="hop", columns="state", values="norm").to_numpy()
    np.testing.assert_allclose(np.asarray(mesh.get_array()), np.clip(norms / norms.max(), 1e-4, 1))
    assert ax.get_title() == "norm / largest norm, layer 0"
