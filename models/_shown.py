"""How a record shows itself: a line and a few rows, as text for a terminal and as HTML for a notebook."""

import unicodedata
from collections.abc import Mapping

import pandas as pd
from markupsafe import Markup

_CELL, _ROWS = 60, 6
"""Characters of a cell, and rows, of the table that stands below."""


class Shown:
    """Shows itself: printed, in a session, or last in a notebook's cell.

    A subclass says what with `shown`, and may put a table below it with `preview`.
    """

    __slots__ = ()

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """A title, and what stands below it by its name."""
        raise NotImplementedError

    def preview(self) -> pd.DataFrame | None:
        """A table of which a notebook shows the first rows; none by default."""
        return None

    def __str__(self) -> str:
        title, rows = self.shown()
        width = max(map(len, rows), default=0)
        return "\n".join([plain(title), *(f"  {key:{width}}  {plain(value)}" for key, value in rows.items())])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        title, rows = self.shown()
        return shown_html(title, rows, self.preview())


def plain(value: object) -> str:
    """A value in one line, without characters that move the cursor or turn the direction of writing.

    Args:
        value: Of a row, or a title.

    Example:
        >>> plain("a\\x1b[2J\\nb")
        'a [2J b'
    """
    kept = ("" if unicodedata.category(each) == "Cf" else each for each in str(value))
    return " ".join("".join(each if each.isprintable() else " " for each in kept).split())


def shown_html(title: str, rows: Mapping[str, object], table: pd.DataFrame | None = None) -> str:
    """The same for a notebook, everything escaped.

    Args:
        title: Of the record.
        rows: What stands below it, by its name.
        table: Of which the first rows are shown.

    Example:
        >>> shown_html("<b>", {})
        '<p><strong dir="auto">&lt;b&gt;</strong></p>'
    """
    line = Markup(
        '<tr><th style="text-align: left">{}</th><td style="text-align: left" dir="auto">{}</td></tr>'
    )
    body = Markup("").join(line.format(key, plain(value)) for key, value in rows.items())
    told = Markup('<p><strong dir="auto">{}</strong></p>').format(plain(title))
    if rows:
        told += Markup("<table>{}</table>").format(body)
    if table is not None:
        with pd.option_context("display.max_colwidth", _CELL):
            cells = table.head(_ROWS).to_html(index=False, justify="left", border=0)  # it escapes every cell
        told += Markup('<div style="overflow-x: auto">{}</div>').format(Markup(cells))
        told += Markup("<p>{} of {} rows</p>").format(min(_ROWS, len(table)), len(table))
    return str(told)
