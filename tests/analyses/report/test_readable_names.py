"""Every finding has a name that can stand in a list."""

from valuelens.analyses.report._phrases import PHRASES
from valuelens.analyses.report._readable_names import readable_name


def test_no_name_has_holes_or_underscores() -> None:
    names = {name: readable_name(name) for name in PHRASES}
    assert [name for name, words in names.items() if "{" in words or not words] == []
    assert [name for name, words in names.items() if "_" in name and name in words] == []
    assert len(set(names.values())) == len(names)


def test_an_unknown_name_is_its_own_words() -> None:
    assert readable_name("brand_new") == "brand new"
