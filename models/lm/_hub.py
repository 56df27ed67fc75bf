"""A model of the Hugging Face hub as a folder: from the cache where it is there, else over the network.

Its revisions come one at a time, whichever processes ask for them, and go again on request: a hub model of 200
revisions of 3 GB each fits no disk.
"""

import contextlib
import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from filelock import FileLock
from huggingface_hub import HfApi, constants, errors, scan_cache_dir, snapshot_download
from huggingface_hub.file_download import repo_folder_name

from valuelens.models._errors import InputError
from valuelens.models._files import nearest

MODEL = "a model must exist (a Hugging Face folder, a hub name, a PEFT adapter folder or a GGUF file)"

_TEXTS = ("*.json", "*.jinja", "*.txt", "*.model", "*.safetensors")
_PICKLES = ("pytorch_model*.bin", "adapter_model.bin")
_LEFT = ("*/*", "consolidated*")
_SHOWN = 12
Found = TypeVar("Found")
_COMMIT = re.compile(r"[0-9a-f]{7,40}")
_DEFINITE = (errors.HFValidationError, errors.RepositoryNotFoundError, errors.RevisionNotFoundError)
"""What no cache makes good."""


def snapshot(name: str, revision: str | None = None) -> Path:
    """The folder of one revision of a model: configuration, tokenizer and weights.

    Pickled weights are fetched only where there are no others; they go through weights-only loading.

    Args:
        name: `organisation/model`.
        revision: Branch, tag or commit; the main branch if none.

    Raises:
        InputError: There is no such model or revision, it is not open to the user, or neither network nor cache
            has it.
    """
    try:
        with _alone():
            folder = _download(name, revision, _TEXTS)
            if not any(folder.glob("*.safetensors")):
                folder = _download(name, revision, _TEXTS + _PICKLES)
    except Exception as error:  # its own errors, those of its http client, and the system's
        raise _explained(error, name, revision) from error
    return folder


def cached_revisions(name: str) -> list[str]:
    """Branches and tags of a model that the cache on this machine holds, then commits that none of them names.

    Args:
        name: `organisation/model`.
    """
    refs = _cached_refs(name)
    commits = _cached_commits(name)
    return [name for name, commit in refs.items() if commit in commits] + sorted(commits - {*refs.values()})


def revisions(name: str, asked: str) -> list[str]:
    """The revisions of a model that are asked for, in the order of the numbers in their names.

    So `stage1-step9000-tokens19B` stands before `stage1-step140000-tokens294B`; a name without a number, such as
    `main`, stands last.

    Args:
        name: `organisation/model`.
        asked: `a,b` names them, in any order; `every:10` takes the first of those with a number, each tenth after it
            and the last; `all` takes all, but one name for each commit.

    Raises:
        InputError: There is no such model or revision, one is named twice, or neither network nor cache tells.
    """
    known = _known(name)
    if asked == "all":
        first = {commit: each for each, commit in reversed(_sorted(known).items())}
        return [each for each in _sorted(known) if first[known[each]] == each]
    if asked.startswith("every:"):
        return _spaced([each for each in _sorted(known) if re.search(r"\d", each)], asked, name)
    named = [each.strip() for each in asked.split(",")]
    if twice := [each for each in named if named.count(each) > 1 or not each]:
        found = f"found {twice[0]!r} twice" if twice[0] else f"found nothing between commas: {asked!r}"
        raise InputError("each revision must be named once", found, "option --revisions")
    for each in named:
        if each not in known and not _COMMIT.fullmatch(each):
            found = f"found none of this name, but {_named(list(known), each)}"
            raise InputError("the revision must exist", found, f"{name}@{each}")
    return list(_sorted(dict.fromkeys(named, "")))


def commit_of(name: str, revision: str | None = None) -> str:
    """The commit that a revision names now: asked of the hub without a download, or of the cache.

    Args:
        name: `organisation/model`.
        revision: Branch, tag or commit; the main branch if none.

    Raises:
        InputError: As `snapshot`.
    """
    wanted = revision or constants.DEFAULT_REVISION
    cached = _cached_refs(name).get(wanted) or (wanted if wanted in _cached_commits(name) else None)
    return _asked(lambda: str(HfApi().model_info(name, revision=wanted).sha), cached, name, revision)


def evict(name: str, revision: str | None = None) -> int:
    """Remove a revision from the cache of this machine, but for what other revisions share.

    Args:
        name: `organisation/model`.
        revision: Branch, tag or commit; the main branch if none. It goes whoever downloaded it, and with it every other
            name of the same commit.

    Returns:
        Bytes that became free; 0 if it was not there.
    """
    wanted = revision or constants.DEFAULT_REVISION
    if not _cache(name).is_dir():
        return 0
    with _alone():
        cache = scan_cache_dir(constants.HF_HUB_CACHE)
        commits = [
            each.commit_hash
            for repo in cache.repos
            if repo.repo_id == name and repo.repo_type == "model"
            for each in repo.revisions
            if wanted in (each.commit_hash, *each.refs)
        ]
        removal = cache.delete_revisions(*commits)
        removal.execute()
        return int(removal.expected_freed_size)


def _cache(name: str) -> Path:
    return Path(constants.HF_HUB_CACHE, repo_folder_name(repo_id=name, repo_type="model"))


def _cached_refs(name: str) -> dict[str, str]:
    """Commit of each branch and tag that was ever asked for."""
    folder = _cache(name) / "refs"
    files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    return {file.relative_to(folder).as_posix(): file.read_text(encoding="utf-8").strip() for file in files}


def _cached_commits(name: str) -> set[str]:
    return {each.name for each in (_cache(name) / "snapshots").glob("*")}


def _known(name: str) -> dict[str, str]:
    """Commit of each branch and tag: of the hub, or where it is not reached those that are cached."""
    commits = _cached_commits(name)
    cached = {each: commit for each, commit in _cached_refs(name).items() if commit in commits}
    return _asked(lambda: _refs(name), cached or None, name, None)


def _asked(online: Callable[[], Found], cached: Found | None, name: str, revision: str | None) -> Found:
    """What the hub says; if it is not reached, what the cache does."""
    where = name if revision is None else f"{name}@{revision}"
    try:
        if not constants.HF_HUB_OFFLINE:
            return online()
    except Exception as error:  # its own errors, those of its http client, and the system's
        if isinstance(error, _DEFINITE):
            raise _explained(error, name, revision) from error
    if cached is None:
        raise _not_cached(name, revision, where)
    return cached


def _sorted(known: Mapping[str, str]) -> dict[str, str]:
    """By the numbers in the names, those without any last."""

    def order(name: str) -> tuple[bool, list[str | int]]:
        parts = re.split(r"(\d+)", name)
        return len(parts) == 1, [int(part) if part.isdecimal() else part for part in parts]

    return {name: known[name] for name in sorted(known, key=order)}


def _spaced(numbered: list[str], asked: str, name: str) -> list[str]:
    count = asked.removeprefix("every:")
    if not (count.isascii() and count.isdigit() and int(count)):
        must = "--revisions takes a,b or every:10 or all"
        raise InputError(must, f"found {asked!r}", "option --revisions")
    if not numbered:
        raise InputError("every:N takes revisions with a number in their names", "found none", name)
    chosen = numbered[:: int(count)]
    return chosen if chosen[-1] == numbered[-1] else [*chosen, numbered[-1]]


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """One download at a time, by whichever process; in a cache that cannot be written there are none."""
    with contextlib.ExitStack() as stack:
        if not constants.HF_HUB_OFFLINE:
            lock = Path(constants.HF_HUB_CACHE, ".locks", "valuelens.lock")
            with contextlib.suppress(OSError, NotImplementedError):
                lock.parent.mkdir(parents=True, exist_ok=True)
                stack.enter_context(FileLock(lock))
        yield


def _download(name: str, revision: str | None, wanted: tuple[str, ...]) -> Path:
    answer = snapshot_download(
        name, revision=revision, allow_patterns=list(wanted), ignore_patterns=list(_LEFT)
    )
    return Path(answer)


def _explained(error: Exception, name: str, revision: str | None) -> InputError:
    where = name if revision is None else f"{name}@{revision}"
    match error:
        case errors.HFValidationError():
            return InputError(MODEL, f"found nothing{_meant(name, revision)}", where)
        case errors.GatedRepoError():
            found = "found one whose terms wait to be accepted: do so on its page, then `hf auth login`"
            return InputError("the model must be open to you", found, where)
        case errors.RevisionNotFoundError():
            found = f"found none of this name, but {_named(list(_refs(name)), revision)}"
            return InputError("the revision must exist", found, where)
        case errors.RepositoryNotFoundError():
            found = f"found no such folder here and no such model on the hub{_meant(name, revision)}"
            return InputError(MODEL, found, where)
        case errors.LocalEntryNotFoundError():
            return _not_cached(name, revision, where)
    found = f"found {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return InputError("the hub must answer", found, where)


def _not_cached(name: str, revision: str | None, where: str) -> InputError:
    network = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else "the hub does not answer"
    cached = cached_revisions(name)
    if not cached:
        here = f"no such folder here{_meant(name, revision)}"
        found = f"found {here}, nothing in the cache {constants.HF_HUB_CACHE}, and {network}"
        return InputError(MODEL, found, where)
    if (revision or constants.DEFAULT_REVISION) in cached:
        return InputError("the cached model must be whole", f"found files missing, and {network}", where)
    found = f"found {network}, and in the cache only {_named(cached, revision)}"
    return InputError("the revision must be in the cache where the hub is not reached", found, where)


def _meant(name: str, revision: str | None) -> str:
    """A folder here that is named almost so, or the member of a series here that `@` does not reach."""
    here = Path(name).expanduser()
    if revision is None or not here.is_dir():
        return nearest(here)
    member = here / revision
    return f" (did you mean {member}?)" if member.exists() else nearest(member)


def _refs(name: str) -> dict[str, str]:
    refs = HfApi().list_repo_refs(name)
    return {each.name: each.target_commit for each in (*refs.branches, *refs.tags)}


def _named(revisions: list[str], wanted: str | None) -> str:
    """The nearest names first."""

    def distance(revision: str) -> float:
        return -difflib.SequenceMatcher(None, revision, wanted or "").ratio()

    shown = sorted(revisions, key=distance)[:_SHOWN]
    more = len(revisions) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
