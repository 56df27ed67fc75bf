"""A section of a page: pictures, sentences, caveats, numbers, and what is folded away."""

import re
from dataclasses import dataclass

from markupsafe import Markup

from valuelens.analyses.report._table import Table


@dataclass(frozen=True, kw_only=True, slots=True)
class Fold:
    """Sentences and a table behind a line that opens them; on paper only if they are `printed`.

    Sentences that say `again` what stands in a table of the section are left out of a PDF.
    """

    title: str
    sentences: list[str]
    table: Table | None = None
    printed: bool = False
    again: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """What stands below one heading.

    Attributes:
        title: The heading.
        introduction: What is asked here.
        pictures: Drawings with their captions.
        sentences: What was found.
        notes: How to read it; behind a line that opens them.
        table: The numbers.
        table_open: Whether they stand open: where they are the answer, and not what it rests on.
        folds: What is folded away.
    """

    title: str
    introduction: str
    pictures: list[tuple[Markup, str]]
    sentences: list[str]
    notes: list[str]
    table: Table
    table_open: bool = False
    folds: list[Fold]

    @property
    def slug(self) -> str:
        """Its place within a chapter."""
        return re.sub(r"\W+", "-", self.title.lower()).strip("-")
