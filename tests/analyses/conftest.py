"""A small language model that can be asked to copy labels, and what it sampled; what only colours tell apart."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from valuelens.models.lm import LabelCopy, LanguageModel, Rollouts


class Copier(NamedTuple):
    """A random Llama with the words of label copying for its vocabulary."""

    model: "LanguageModel"
    task: "LabelCopy"
    sample: "Callable[..., Rollouts]"


@pytest.fixture(scope="session")
def copier(tiny_language_model: "Callable[..., LanguageModel]") -> Copier:
    """Two pairs of two labels: 49 continuations of each prompt."""
    from valuelens.models.lm import GenerateConfig, LabelCopy, generate, word_tokenizer

    task = LabelCopy(num_items=2, num_labels=2, num_pairs=2)
    tokenizer = word_tokenizer(task.vocabulary, longest=64)
    model = tiny_language_model("llama", vocab_size=len(tokenizer))
    model = dataclasses.replace(model, tokenizer=tokenizer, name="copier", sha256="0" * 64)

    def sample(**sizes: Any) -> "Rollouts":
        return generate(model, task, GenerateConfig(**{"num_prompts": 4, "num_generations": 8, **sizes}))

    return Copier(model, task, sample)


def colours_alone(figure: "Figure") -> list[str]:
    """Lines (bars) of one panel that differ in colour and in nothing else: mark, dash, filling (hatch, edge)."""
    from matplotlib.colors import to_hex

    from valuelens.analyses.report._mark_words import line_color, marked_lines

    found = []
    for ax in figure.axes:
        looks: dict[tuple[Any, ...], set[str]] = {}
        for line in (each for each in marked_lines(ax) if len(each.get_xdata())):
            hollow, joined = str(line.get_markerfacecolor()) == "none", line.get_linestyle() != "None"
            dash = line._unscaled_dash_pattern if joined else None
            looks.setdefault((line.get_marker(), hollow, str(dash)), set()).add(line_color(line))
        for patch in ax.patches:
            shape = (type(patch).__name__, patch.get_hatch() or "", patch.get_linestyle(), patch.get_fill())
            looks.setdefault(shape, set()).add(to_hex(patch.get_facecolor()))
        found += [f"{ax.get_title(loc='left')}: {look}" for look, shades in looks.items() if len(shades) > 1]
    return found


@pytest.fixture(scope="session")
def told_by_colour_alone() -> "Callable[[Figure], list[str]]":
    """What in a figure only its colour tells from another; of a good one nothing."""
    return colours_alone
