"""Tables as they fit: whole where nobody looks, and on a terminal no wider than it is, without losing a number."""

import io
import shutil
import sys
import textwrap

import pandas as pd

from valuelens.analyses import Result

_GAP, _LINES = 2, 2
"""Columns between two cells, and lines of a finding at most, on average, in a table."""


def result_lines(result: Result, *, quiet: bool = False) -> list[str]:
    """Table of findings, what was skipped, and the verdict, for people.

    Args:
        result: Of an analysis or of costates.
        quiet: The verdict alone.
    """
    if quiet:
        return [result.verdict]
    table, below = result.readable()
    text = "" if table.empty else table.to_string(index=False, justify="left")
    if (width := _too_wide(text)) is not None:
        text = _wrapped(table, width) or _listed(result, width)
    return [text, "", *below]


def fitted(table: pd.DataFrame) -> str:
    """A table of numbers; where it is wider than the terminal, its columns stand in blocks below one another.

    Args:
        table: Whose first column names the rows.
    """
    text = str(table.to_string(index=False, na_rep="-", float_format=_four_digits))
    if (width := _too_wide(text)) is None:
        return text
    rows = table.set_index(table.columns[0]).rename_axis(None)
    blocks = str(rows.to_string(line_width=width, na_rep="-", float_format=_four_digits))
    return "\n".join(line.rstrip(" \\") for line in blocks.splitlines())


def _four_digits(number: float) -> str:
    return f"{number:.4g}"


def _too_wide(text: str) -> int | None:
    """The width of the terminal, where there is one and the text does not fit into it."""
    if not sys.stdout.isatty():
        return None
    width = shutil.get_terminal_size().columns
    return width if max(map(len, text.splitlines()), default=0) > width else None


def _wrapped(table: pd.DataFrame, width: int) -> str:
    """Words go on in the next line of their cell; empty where that would break words, or most of the rows in three."""
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    console = Console(file=io.StringIO(), width=width, force_terminal=False, highlight=False)
    shown = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False)
    for name in table.columns:
        longest = max((len(word) for cell in table[name] for word in str(cell).split()), default=0)
        shown.add_column(Text(str(name)), overflow="fold", min_width=longest)
    for row in table.itertuples(index=False):
        shown.add_row(*(Text(str(cell)) for cell in row))
    if Measurement.get(console, console.options, shown).minimum > width:
        return ""
    with console.capture() as captured:
        console.print(shown)
    lines = [line.rstrip() for line in captured.get().splitlines()]
    return "\n".join(lines) if len(lines) <= _LINES * len(table) + 1 else ""


def _listed(result: Result, width: int) -> str:
    """A paragraph for each finding: where, estimate, interval and control."""
    paragraphs = [
        textwrap.wrap(
            str(each), width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )
        for each in result.findings
    ]
    return "\n".join(line for lines in paragraphs for line in lines)
