"""The prompts of a diagnosis, one by one."""

from typing import Any

from valuelens.analyses._result import Result
from valuelens.analyses.report._numbers import readable
from valuelens.analyses.report._table import Cell, Row, Table

_SHOWN = 40
"""Groups of a long list: half of them those with the smallest mean reward, half those with the largest."""

_LONGEST = 160
"""Characters of a prompt."""

_COLUMNS = {
    "n": "rollouts",
    "reward_mean": "mean reward",
    "reward_std": "std",
    "reward_min": "least",
    "reward_max": "largest",
    "entropy": "entropy, nats",
    "length": "tokens",
}


def groups_table(result: Result) -> Table | None:
    """Prompts with their rewards, by mean reward; none if a result has no groups.

    Args:
        result: With the table `groups`.
    """
    if "groups" not in result.tables:
        return None
    groups = result.tables["groups"]
    groups = groups.sort_values([name for name in ("reward_mean", "group") if name in groups])
    if len(groups) > _SHOWN:
        groups = groups.iloc[[*range(_SHOWN // 2), *range(len(groups) - _SHOWN // 2, len(groups))]]
    columns = [name for name in _COLUMNS if name in groups and groups[name].notna().any()]
    rows = [
        Row(
            name=_prompt(row["prompt"]),
            small=(f"group {row['group']}",),
            cells=tuple(Cell(main=_number(row[name])) for name in columns),
        )
        for row in groups.to_dict("records")
    ]
    return Table(
        columns=("prompt", *(_COLUMNS[name] for name in columns)),
        rows=tuple(rows),
        source=("tables/groups.parquet",),
    )


def groups_title(result: Result) -> str:
    """How many prompts there are, and how many are shown.

    Args:
        result: With the table `groups`.
    """
    count, half = len(result.tables["groups"]), _SHOWN // 2
    least = (
        "least and the {} most rewarded" if "reward_mean" in result.tables["groups"] else "first and {} last"
    )
    shown = f", of which the {half} {least.format(half)}" if count > _SHOWN else ""
    return f"Prompt by prompt, {count} groups{shown}"


def _prompt(text: Any) -> str:
    line = " ".join(str(text).split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST // 2]} ... {line[-_LONGEST // 2 :]}"


def _number(x: float) -> str:
    return "" if x != x else readable(float(x))
