"""Records show themselves: in one line a row, with nothing that escapes into a page or moves a cursor."""

import pandas as pd
import pytest
import torch

from valuelens.models import Shown
from valuelens.models._shown import plain, shown_html
from valuelens.models.icrl import TaskConfig, context_of, task_sampler
from valuelens.models.lm import GRPORun, ReadConfig, Rollouts, read_rollouts

HOSTILE = "<script>alert('1')</script> & \"q\" \u202egnp.x\u202c \x1b[31m\n\u05e9\u05dc\u05d5\u05dd"
SAFE = "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt; &amp; &#34;q&#34; gnp.x [31m \u05e9\u05dc\u05d5\u05dd"


class Named(Shown):
    def shown(self):
        return HOSTILE, {"a": 1, "longer": HOSTILE}

    def preview(self):
        return pd.DataFrame({"<b>": [HOSTILE] * 9})


def test_names_of_others_are_words_and_nothing_else():
    text, html = str(Named()), Named()._repr_html_()
    assert repr(Named()) == text
    assert text.splitlines() == [plain(HOSTILE), "  a       1", f"  longer  {plain(HOSTILE)}"]
    assert text.replace("\n", "").isprintable()
    assert html.count(SAFE) == 2
    for bad in ("<script", "<b>", "\x1b[31m\n", 'alert("'):
        assert bad not in html.replace("<b></b>", "")
    assert "<p>6 of 9 rows</p>" in html


def test_a_record_without_rows_is_its_title():
    assert shown_html("a", {}) == '<p><strong dir="auto">a</strong></p>'
    with pytest.raises(NotImplementedError):
        str(Shown())


ROLLOUTS = Rollouts(
    prompt_ids=((1, 2), (1, 2), (3,), (3,)),
    completion_ids=((4, 5), (4,), (), (5,)),
    group=(0, 0, 1, 1),
    ended=(True, True, False, True),
    rewards=(0.5, 0.25, 1.0, 1.0),
    log_probs=((-0.5, -1.0), (-0.25,), (), (-2.0,)),
    targets=((4, 5), (4,), (), (6,)),
    source="a <b>",
)


def test_rollouts_say_what_they_are():
    assert str(ROLLOUTS).splitlines() == [
        "4 rollouts in 2 groups",
        "  tokens  0 to 2 a completion, mean 1",
        "  ended   75% by themselves, the others were cut",
        "  reward  mean 0.6875, 0.25 to 1; the same throughout 1 of 2 groups",
        "  also    log-probs, targets",
        "  source  a <b>",
    ]
    html = ROLLOUTS._repr_html_()
    assert "a &lt;b&gt;" in html
    assert "[4, 5]" in html
    empty = Rollouts(prompt_ids=(), completion_ids=(), group=(), ended=())
    assert str(empty).splitlines()[0] == "0 rollouts in 0 groups"
    assert "0 rollouts" in empty._repr_html_()


def test_the_table_of_rollouts_is_read_again(tmp_path):
    ROLLOUTS.table().to_parquet(tmp_path / "rollouts.parquet")
    config = ReadConfig(vocabulary=7, reward_targets="targets")
    again = read_rollouts(str(tmp_path / "rollouts.parquet"), None, config)
    for field in ("prompt_ids", "completion_ids", "group", "ended", "rewards", "log_probs", "targets"):
        assert getattr(again, field) == getattr(ROLLOUTS, field), field


def test_a_language_model_says_what_it_is(tiny_language_model):
    model = tiny_language_model("llama")
    text = str(model)
    assert text.splitlines()[0] == "Language model tiny-llama"
    assert "4 layers, width 16" in text
    assert "float32 on cpu" in text
    assert "<td" in model._repr_html_()
    run = GRPORun(language_model=model, rewards=(0.25, 0.5), zero_variance=(1, 2))
    assert "GRPO from tiny-llama, 2 steps" in str(run)
    assert "groups without variance              3" in str(run)
    assert run.table().reward.tolist() == [0.25, 0.5]


def test_tasks_and_contexts_say_their_sizes(generator):
    task = TaskConfig(num_states=6, context_length=8)
    mrp, states = task_sampler(task, generator).sample(3, 8, generator, torch.float64)
    assert str(mrp).splitlines()[:2] == ["Markov reward processes [3]", "  states    6"]
    assert str(context_of(mrp, states)).splitlines() == [
        "3 contexts",
        "  transitions  8",
        "  features     4",
        "  discount     0.5",
    ]
