"""A model of the Hugging Face hub as a folder: from the cache where it is there, else over the network."""

import difflib
from pathlib import Path

from huggingface_hub import HfApi, constants, errors, snapshot_download
from huggingface_hub.file_download import repo_folder_name

from valuelens.models._errors import InputError

MODEL = "a model must exist (a Hugging Face folder, a hub name, a PEFT adapter folder or a GGUF file)"

_TEXTS = ("*.json", "*.jinja", "*.txt", "*.model", "*.safetensors")
_PICKLES = ("pytorch_model*.bin", "adapter_model.bin")
_LEFT = ("*/*", "consolidated*")
_SHOWN = 12


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
    folder = Path(constants.HF_HUB_CACHE, repo_folder_name(repo_id=name, repo_type="model"))
    refs = {
        file.relative_to(folder / "refs").as_posix(): file.read_text(encoding="utf-8").strip()
        for file in sorted((folder / "refs").rglob("*"))
        if file.is_file()
    }
    commits = {each.name for each in (folder / "snapshots").glob("*")}
    return [name for name, commit in refs.items() if commit in commits] + sorted(commits - {*refs.values()})


def _download(name: str, revision: str | None, wanted: tuple[str, ...]) -> Path:
    answer = snapshot_download(
        name, revision=revision, allow_patterns=list(wanted), ignore_patterns=list(_LEFT)
    )
    return Path(answer)


def _explained(error: Exception, name: str, revision: str | None) -> InputError:
    where = name if revision is None else f"{name}@{revision}"
    match error:
        case errors.HFValidationError():
            return InputError(MODEL, "found nothing", where)
        case errors.GatedRepoError():
            found = "found one whose terms wait to be accepted: do so on its page, then `hf auth login`"
            return InputError("the model must be open to you", found, where)
        case errors.RevisionNotFoundError():
            found = f"found none of this name, but {_named(_revisions(name), revision)}"
            return InputError("the revision must exist", found, where)
        case errors.RepositoryNotFoundError():
            return InputError(MODEL, "found no such folder here and no such model on the hub", where)
        case errors.LocalEntryNotFoundError():
            return _not_cached(name, revision, where)
    found = f"found {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return InputError("the hub must answer", found, where)


def _not_cached(name: str, revision: str | None, where: str) -> InputError:
    network = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else "the hub does not answer"
    cached = cached_revisions(name)
    if not cached:
        found = f"found no such folder here, nothing in the cache {constants.HF_HUB_CACHE}, and {network}"
        return InputError(MODEL, found, where)
    if (revision or constants.DEFAULT_REVISION) in cached:
        return InputError("the cached model must be whole", f"found files missing, and {network}", where)
    found = f"found {network}, and in the cache only {_named(cached, revision)}"
    return InputError("the revision must be in the cache where the hub is not reached", found, where)


def _revisions(name: str) -> list[str]:
    refs = HfApi().list_repo_refs(name)
    return [each.name for each in (*refs.branches, *refs.tags)]


def _named(revisions: list[str], wanted: str | None) -> str:
    """The nearest names first."""

    def distance(revision: str) -> float:
        return -difflib.SequenceMatcher(None, revision, wanted or "").ratio()

    shown = sorted(revisions, key=distance)[:_SHOWN]
    more = len(revisions) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
