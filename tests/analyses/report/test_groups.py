"""Prompts are listed as they are, long ones shortened, long lists cut in the middle."""

from collections.abc import Callable
from dataclasses import replace

from valuelens.analyses import Result
from valuelens.analyses.report._groups import groups_table, groups_title

Make = Callable[..., Result]


def test_groups_are_listed_by_their_mean_reward(language_result: Make) -> None:
    result = language_result(groups=5)
    table = groups_table(result)
    assert table is not None
    heads = ("rollouts", "mean reward", "std", "least", "largest", "entropy, nats", "tokens")
    assert table.columns == ("prompt", *heads)
    ordered = result.tables["groups"].sort_values(["reward_mean", "group"])
    assert [row.small[0] for row in table.rows] == [f"group {group}" for group in ordered["group"]]
    assert [row.cells[0].main for row in table.rows] == ["16"] * 5
    assert 'What is <b>2 & 3</b>, "quoted"?' in [row.name for row in table.rows]
    assert groups_title(result) == "Prompt by prompt, 5 groups"


def test_long_prompts_and_long_lists_are_cut(language_result: Make) -> None:
    result = language_result(groups=128)
    table = groups_table(result)
    assert table is not None
    assert len(table.rows) == 40
    assert max(len(row.name) for row in table.rows) == 165
    assert groups_title(result).endswith("128 groups, of which the 20 least and the 20 most rewarded")
    lines = replace(result, tables={"groups": result.tables["groups"].assign(prompt="a\n\n b\t c")})
    assert {row.name for row in groups_table(lines).rows} == {"a b c"}


def test_what_is_not_known_has_no_column(language_result: Make) -> None:
    result = language_result(groups=3)
    table = result.tables["groups"].assign(reward_std=None)
    cut = groups_table(replace(result, tables={"groups": table}))
    assert cut is not None
    assert "std" not in cut.columns
    assert groups_table(replace(result, tables={})) is None


def test_without_rewards_prompts_stand_in_their_order(language_result: Make) -> None:
    result = language_result(groups=128)
    table = result.tables["groups"].drop(columns=[f"reward_{x}" for x in ("mean", "std", "min", "max")])
    bare = replace(result, tables={"groups": table})
    cut = groups_table(bare)
    assert cut is not None
    assert cut.columns == ("prompt", "rollouts", "entropy, nats", "tokens")
    assert [row.small[0] for row in cut.rows] == [f"group {k}" for k in (*range(20), *range(108, 128))]
    assert groups_title(bare).endswith("of which the 20 first and 20 last")
