"""Which models a ranking compares: the members of a series, several series, or single models side by side."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from valuelens.models import InputError
from valuelens.models.icrl import content_hash
from valuelens.models.lm import commit_of, is_in_context, revisions, series

_STEP = re.compile(r"(?:step|checkpoint)-?(\d+)")
_LATER = re.compile(r"stage-?0*(?:[2-9]|[1-9]\d)")
_ALONE = "models"
_SHAPE = ("model_type", "vocab_size", "num_hidden_layers", "n_layer", "hidden_size", "n_embd")


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """A checkpoint of a series.

    Attributes:
        series: That it belongs to; single models form one, in the order in which they were named.
        label: Its name there: folder, revision, or the path of a single model.
        source: What `load_language_model` takes.
        revision: On the hub.
    """

    series: str
    label: str
    source: str
    revision: str | None = None

    @property
    def name(self) -> str:
        """Its label, behind that of its series."""
        return self.label if self.series == _ALONE else f"{self.series}/{self.label}"

    @property
    def step(self) -> int | None:
        """Of the pretraining, where its name says so; none in a later stage, which counts its steps anew."""
        found = [] if _LATER.search(self.label) else _STEP.findall(self.label)
        return int(found[-1]) if found else None

    @property
    def local(self) -> bool:
        """Whether it lies on this machine."""
        return Path(self.source).expanduser().exists()

    @property
    def identity(self) -> str:
        """Hash of its files, or the commit that the hub has of it: what its answers are kept by."""
        if self.local:
            return str(content_hash(Path(self.source).expanduser()))
        return commit_of(self.source, self.revision)


def members(sources: Sequence[str], asked: str | None = None) -> list[Member]:
    """The checkpoints that are named, in the order of their steps.

    Args:
        sources: Directories of checkpoints (`pretrain-lm` with several seeds included), models, or names on the hub.
        asked: Revisions of those on the hub: `a,b`, `every:10` or `all`.

    Raises:
        InputError: There is nothing, two have one name, architectures or vocabularies differ, or revisions are asked of
            a path.
    """
    found = _short([each for source in sources for each in _members_of(source, asked)])
    if not found:
        raise InputError("there must be a model or a series", "found none", "argument SERIES_OR_MODELS")
    names = Counter((each.series, each.label) for each in found)
    if twice := [label for (_, label), count in names.items() if count > 1]:
        where = "argument SERIES_OR_MODELS"
        raise InputError("a checkpoint must be named once", f"found {twice[0]} twice", where)
    _check_alike(found)
    return found


def _short(found: Sequence[Member]) -> list[Member]:
    """Series by the names of their folders, where these tell them apart."""
    names = {each.series: Path(each.series).name for each in found if each.local and each.series != _ALONE}
    if len(set(names.values())) < len(names):
        return list(found)
    return [replace(each, series=names.get(each.series, each.series)) for each in found]


def _members_of(source: str, asked: str | None) -> list[Member]:
    path = Path(source).expanduser()
    if not path.exists():
        name, _, revision = source.partition("@")
        if asked is not None and revision:
            raise InputError("revisions are asked for once", f"found @{revision} too", "option --revisions")
        if asked is None:
            return [Member(series=_ALONE, label=source, source=name, revision=revision or None)]
        return [
            Member(series=name, label=each, source=name, revision=each) for each in revisions(name, asked)
        ]
    if asked is not None:
        raise InputError(
            "revisions belong to a model of the hub", f"found a path: {source}", "option --revisions"
        )
    if is_in_context(path):
        found = "found an in-context value learner: `valuelens analyze` is meant"
        raise InputError("a ranking compares language models", found, source)
    seeds = [each for each in sorted(path.glob("seed-*")) if series(each)]
    if whole := [(source, path)] if series(path) else [(f"{source}/{each.name}", each) for each in seeds]:
        return [
            Member(series=name, label=each.name, source=str(each))
            for name, at in whole
            for each in series(at)
        ]
    return [Member(series=_ALONE, label=source, source=source)]


def _check_alike(found: Sequence[Member]) -> None:
    """Scores of different architectures are not on one scale; only what a configuration file says is looked at."""
    first: tuple[Member, dict[str, object]] | None = None
    for member in found:
        shape = _shape(Path(member.source).expanduser())
        if not shape:
            continue
        first = first or (member, shape)
        for key, value in shape.items():
            if first[1].get(key) != value:
                must = f"checkpoints of a ranking must have one architecture and vocabulary: {key} {first[1].get(key)}"
                raise InputError(must, f"found {value}", f"{member.source} beside {first[0].source}")


def _shape(folder: Path) -> dict[str, object]:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return {key: config[key] for key in _SHAPE if key in config} if isinstance(config, dict) else {}
