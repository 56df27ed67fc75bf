"""Rollouts from files of our own with every column, and whatever may be wrong in one."""

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from valuelens.models import InputError
from valuelens.models.lm import CompletionEnds, ReadConfig, Rollouts, read_rollouts

END = 4
CONFIG = ReadConfig(vocabulary=5)
TWO = {"prompt": ["b", "b"], "completion": ["a a c", "a"], "r": [1.0, 0.0]}
IDS = {"prompt_ids": [[1], [1]], "completion_ids": [[0, 0, 2], [0, END]], "r": [1.0, 0.0]}


@pytest.fixture
def read(tmp_path: Path, word_tokenizer: Callable[..., Any]) -> Callable[..., Rollouts]:
    """Writes columns to `r.parquet` and reads them with a tokenizer of five words."""

    def reader(columns: dict[str, Any], **changes: Any) -> Rollouts:
        file = tmp_path / "r.parquet"
        pd.DataFrame(columns).to_parquet(file)
        tokenizer = word_tokenizer("a b c d end", end="end")
        return read_rollouts(str(file), tokenizer, dataclasses.replace(CONFIG, **changes))

    return reader


@pytest.mark.parametrize(
    ("ends", "longest", "expected"),
    [
        ("auto", None, ((0, 0, 2), (0, END))),  # the longest counts as cut
        ("auto", 4, ((0, 0, 2, END), (0, END))),
        ("yes", None, ((0, 0, 2, END), (0, END))),
        ("no", 4, ((0, 0, 2), (0,))),
    ],
)
def test_a_text_ends_as_said_or_where_no_cut_explains_it(
    read: Callable[..., Rollouts], ends: CompletionEnds, longest: int | None, expected: tuple[Any, ...]
) -> None:
    rollouts = read(TWO, completion_ends=ends, max_completion_length=longest)
    assert rollouts.completion_ids == expected
    assert rollouts.ended == tuple(tokens[-1] == END for tokens in expected)


def test_a_list_for_each_token_says_whether_a_text_ended(read: Callable[..., Rollouts]) -> None:
    columns = {**TWO, "logprobs": [[-1.0, -1.0, -1.0, -0.5], [-2.0]]}
    rollouts = read(columns)
    assert rollouts.completion_ids == ((0, 0, 2, END), (0,))
    assert rollouts.log_probs == ((-1.0, -1.0, -1.0, -0.5), (-2.0,))


def test_an_empty_completion_is_kept_and_listed(read: Callable[..., Rollouts]) -> None:
    columns = {**TWO, "completion": ["a a c", ""]}
    assert read(columns).completion_ids[1] == (END,)  # it ended at once
    rollouts = read(columns, completion_ends="no")
    assert rollouts.completion_ids == ((0, 0, 2), ())
    assert rollouts.skipped[0]["what"].endswith("r.parquet, row 1")
    assert rollouts.skipped[0]["why"] == "the completion is empty and contributes zero"


def test_token_ids_lose_what_stands_behind_their_end(read: Callable[..., Rollouts]) -> None:
    columns = {**IDS, "completion_ids": [[0, END, END, END], [0, 1, 2, 3]]}
    rollouts = read({**columns, "log_probs": [[-1.0, -2.0, 0.0, 0.0], [-1.0] * 4]})
    assert rollouts.completion_ids == ((0, END), (0, 1, 2, 3))
    assert rollouts.ended == (True, False)
    assert rollouts.log_probs == ((-1.0, -2.0), (-1.0,) * 4)
    assert read(columns, completion_ends="no").completion_ids[0] == (0, END, END, END)
    assert read(columns, completion_ends="yes").completion_ids[1] == (0, 1, 2, 3, END)


def test_a_mask_s_zeros_are_padding_or_leave_a_completion_out(read: Callable[..., Rollouts]) -> None:
    columns = {**IDS, "completion_ids": [[0, 1, 0, 0], [2, 2, 2, 2]]}
    rollouts = read({**columns, "completion_mask": [[1, 1, 0, 0], [0, 0, 0, 0]]})
    assert rollouts.completion_ids == ((0, 1), (2, 2, 2, 2))
    assert rollouts.mask == ((1, 1), (0, 0, 0, 0))
    assert read(columns).mask is None
    assert read({**TWO, "completion_mask": [[1, 1, 1, 1], [1, 0]]}).completion_ids == ((0, 0, 2, END), (0,))


def test_groups_are_step_and_prompt_or_as_numbered(read: Callable[..., Rollouts]) -> None:
    columns = {
        "prompt": ["b", "c", "b", "b", "c", "b"],
        "completion": ["a", "b", "c", "d", "a a", "b b"],
        "r": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0],
        "step": [1, 1, 1, 2, 1, 2],
    }
    rollouts = read(columns)
    assert rollouts.group == (0, 0, 1, 1, 2, 2)
    assert rollouts.rewards == (0, 2, 1, 4, 3, 5)
    assert rollouts.prompt_ids == ((1,), (1,), (2,), (2,), (1,), (1,))
    numbered = read({**columns, "group": [7, 3, 7, 7, 3, 7]})
    assert numbered.group == rollouts.group
    same = read({**columns, "prompt": ["b"] * 6, "group": ["x", "y", "x", "x", "y", "y"], "step": [1] * 6})
    assert same.rewards == (0, 2, 3, 1, 4, 5)


def test_the_same_number_in_two_files_is_two_groups(
    tmp_path: Path, word_tokenizer: Callable[..., Any]
) -> None:
    for name, prompt in (("x", [1]), ("y", [2])):
        columns = {**IDS, "prompt_ids": [prompt, prompt], "group": [0, 0]}
        pd.DataFrame(columns).to_parquet(tmp_path / f"{name}.parquet")
    rollouts = read_rollouts(str(tmp_path / "?.parquet"), word_tokenizer("a b c d end", end="end"), CONFIG)
    assert rollouts.group == (0, 0, 1, 1)


def test_rewards_are_the_sum_of_the_columns_of_floats_or_of_those_named(
    read: Callable[..., Rollouts],
) -> None:
    columns = {**TWO, "other": [0.5, math.nan], "count": [10, 20], "note": ["x", "y"]}
    assert read(columns).rewards == (1.5, 0.0)
    assert read(columns, rewards=("count", "r")).rewards == (11.0, 20.0)
    assert read({"prompt": ["b"] * 2, "completion": ["a", "b"], "reward": [True, False]}).rewards == (1, 0)


def test_a_row_without_any_reward_is_skipped(read: Callable[..., Rollouts]) -> None:
    rollouts = read({"prompt": ["b"] * 3, "completion": ["a", "b", "c"], "r": [1.0, math.nan, 0.0]})
    assert rollouts.rewards == (1.0, 0.0)
    assert rollouts.skipped[0]["why"] == "no reward is a number"


def test_a_rollout_alone_is_skipped_if_others_are_not(read: Callable[..., Rollouts]) -> None:
    rollouts = read({"prompt": ["b", "c", "b"], "completion": ["a", "b", "c"], "r": [1.0, 2.0, 0.0]})
    assert rollouts.rewards == (1.0, 0.0)
    assert rollouts.skipped[0]["why"] == "it is alone in its group (n_group = 1)"


def test_advantages_without_rewards_have_lost_their_scale(read: Callable[..., Rollouts]) -> None:
    rollouts = read({**{k: TWO[k] for k in ("prompt", "completion")}, "advantage": [0.7, -0.7]})
    assert rollouts.rewards is None
    assert rollouts.advantages == ((0.7,) * 3, (-0.7,) * 2)
    assert rollouts.advantages_scaled
    assert read({**TWO, "advantage": [0.7, -0.7]}).advantages is None


@pytest.mark.parametrize("scale", [1.0, 0.02, 1e-6])
def test_logged_advantages_that_do_not_follow_from_the_rewards_are_told(
    read: Callable[..., Rollouts], scale: float
) -> None:
    first, second = torch.tensor([1.0, 0.0, 0.5, 0.0]), torch.tensor([0.1, 0.4, 0.2, 0.0])
    rows = {"prompt": ["b"] * 4, "completion": ["a", "b", "c", "d"], "first": first, "second": second}
    for weight, told in ((1.0, False), (3.0, True)):
        weighted = scale * (first + weight * second)
        advantage = (weighted - weighted.mean()) / (weighted.std() + 1e-4)
        rollouts = read({**rows, "advantage": advantage})
        assert rollouts.advantages is None
        expected = told and scale > 1e-3  # the 1e-4 of TRL makes the others as good as nothing
        assert [each["what"] for each in rollouts.skipped] == ["column advantage"] * expected
    why = read({**rows, "advantage": [1.0, -1.0, -1.0, 1.0]}).skipped[0]["why"]
    assert why == "does not follow from the sum of first, second: were they weighted, or groups others?"


def test_advantages_and_values_of_tokens_need_no_group(read: Callable[..., Rollouts]) -> None:
    lists = [[0.1, 0.2, 0.3], [0.5, 0.25]]
    columns = {**IDS, "prompt_ids": [[1], [2]]}
    rollouts = read({**columns, "advantage": lists, "values": lists})
    assert rollouts.advantages == rollouts.values == tuple(map(tuple, lists))
    assert not rollouts.advantages_scaled
    assert read({**columns, "values": lists}).group == (0, 1)


@pytest.mark.parametrize("targets", [[[0, 1, 2], [3, END]], ["a b c", "d"]])
def test_right_tokens_are_aligned_with_completions(read: Callable[..., Rollouts], targets: Any) -> None:
    rollouts = read({**IDS, "right": targets}, reward_targets="right")
    assert rollouts.targets == ((0, 1, 2), (3, END))
    only = {name: IDS[name] for name in ("prompt_ids", "completion_ids")}
    assert read({**only, "right": targets}, reward_targets="right").rewards is None


def test_token_ids_need_no_tokenizer(tmp_path: Path) -> None:
    pd.DataFrame(IDS).to_parquet(tmp_path / "r.parquet")
    config = dataclasses.replace(CONFIG, stops=(END,))
    assert read_rollouts(str(tmp_path / "r.parquet"), None, config).ended == (False, True)


@pytest.mark.parametrize(
    ("columns", "changes", "message"),
    [
        (
            {"prompt": ["b"], "r": [1.0]},
            {},
            r"have a column completion or completion_ids; found \['prompt', 'r'\]",
        ),
        (
            {"completion": ["b"], "r": [1.0]},
            {},
            r"have a column prompt or prompt_ids; found \['completion', 'r'\]",
        ),
        ({"prompt": ["b"], "completion": ["a"]}, {}, "must have a column of rewards or advantage; found"),
        (TWO, {"reward_targets": "right"}, "--reward-targets must name a column: right; found"),
        (
            TWO,
            {"rewards": ("x",)},
            "a reward must be a column of numbers; found no such column; .*r.parquet, column x",
        ),
        (
            TWO,
            {"rewards": ("prompt",)},
            "a reward must be a column of numbers; found .*string; .*column prompt",
        ),
        ({**TWO, "tool_mask": [[1], [1]]}, {}, "tool masks are not supported; found column tool_mask"),
        ({name: [] for name in TWO}, {}, "rollouts must have a row; found none"),
        (
            {**IDS, "completion_ids": [[0], [7]]},
            {},
            r"in the model's vocabulary of 5; found 7; .*r.parquet, column completion_ids, row 1",
        ),
        (
            {**IDS, "prompt_ids": [[1], [-1]]},
            {},
            r"vocabulary of 5; found -1; .*r.parquet, column prompt_ids, row 1",
        ),
        (TWO, {"vocabulary": 2}, r"vocabulary of 2; found 2; .*column completion, row 0"),
        (
            {**IDS, "completion_ids": ["a", "b"]},
            {},
            "list of whole numbers; found 'a'; .*column completion_ids, row 0",
        ),
        ({**IDS, "completion_ids": [[0.5], [1.0]]}, {}, r"a list of whole numbers; found \[0.5\]"),
        (
            {**IDS, "prompt_ids": [[], [1]]},
            {},
            "a prompt must have a token; found none; .*column prompt_ids, row 0",
        ),
        (
            {**TWO, "prompt": ["b", None]},
            {},
            "a text or a list of messages; found None; .*column prompt, row 1",
        ),
        (
            {**TWO, "completion": [3, 4]},
            {},
            "a text or a list of messages; found 3; .*column completion, row 0",
        ),
        (
            {**TWO, "completion": [[{"role": "x", "content": "a"}] * 2, [{"role": "x", "content": "a"}]]},
            {},
            "a completion must be one message; found 2; .*column completion, row 0",
        ),
        (
            {**TWO, "completion": [[{"role": "x", "content": "a", "tool_calls": "f"}]] * 2},
            {},
            "a message must be a role and a text; found .*tool_calls",
        ),
        (
            {**TWO, "prompt": ["b", "c"]},
            {},
            r"at least two rollouts; found one in each \(n_group = 1\); .*r.parquet",
        ),
        ({**TWO, "r": [math.nan, math.nan]}, {}, "a rollout must have a reward; found none that is a number"),
        (
            {**TWO, "r": [math.inf, 0.0]},
            {},
            "a number must be finite; found inf; .*r.parquet, column r, row 0",
        ),
        (
            {**IDS, "r": [0.0, 1.0]},
            {"context_window": 3},
            r"window of 3 tokens; found 1 \+ 3; .*r.parquet, row 0",
        ),
        (
            {**IDS, "values": [[0.5], [0.5, 0.5]]},
            {},
            "a number for each of the completion's 3 tokens; found 1; .*column values, row 0",
        ),
        (
            {**IDS, "advantage": [[0.5] * 3, [0.5] * 3]},
            {},
            "completion's 2 tokens; found 3; .*column advantage, row 1",
        ),
        (
            {**IDS, "values": [[0.5] * 3, [0.5, math.inf]]},
            {},
            "numbers must be finite; found .*column values, row 1",
        ),
        (
            {**IDS, "values": ["x", "y"]},
            {},
            "there must be a list of numbers; found 'x'; .*column values, row 0",
        ),
        (
            {**IDS, "values": [[0.5] * 3, None]},
            {},
            "every row or none must have a value; found none; .*values, row 1",
        ),
        (
            {**IDS, "right": [[0], [0, 1]]},
            {"reward_targets": "right"},
            "a target for each of the completion's 3 tokens; found 1; .*column right, row 0",
        ),
        (
            {**IDS, "completion_mask": [[1, 0, 1], [1, 1]]},
            {},
            r"must be ones, then zeros \(tool masks are not supported\); found \[1, 0, 1\]; .*row 0",
        ),
        (
            {**IDS, "completion_ids": [[0, END, 1], [0]]},
            {},
            "nothing may follow the end of a completion, unless --completion-ends no; found tokens behind 4",
        ),
        (
            {**TWO, "completion_mask": [[1, 1], [1, 0]]},
            {},
            "a one for each of the completion's 3 tokens; found 2; .*column completion_mask, row 0",
        ),
        ({**IDS, "group": [1, None]}, {}, "each row must have a group; found none; .*column group, row 1"),
        (
            {**IDS, "prompt_ids": [[1], [2]], "group": [1, 1]},
            {},
            "rows of a group must have the same prompt; found another than in row 0; .*column group, row 1",
        ),
        (
            {**{k: IDS[k] for k in ("prompt_ids", "completion_ids")}, "advantage": [0.5, math.nan]},
            {},
            "an advantage must be a number; found NaN; .*column advantage, row 1",
        ),
        (
            TWO,
            {"completion_ends": "yes", "stops": ()},
            "must have an end-of-sequence token; found none .*row 0",
        ),
    ],
)
def test_what_cannot_be_used_is_named_in_one_line(
    read: Callable[..., Rollouts], columns: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message) as refusal:
        read(columns, **changes)
    assert "\n" not in str(refusal.value)
