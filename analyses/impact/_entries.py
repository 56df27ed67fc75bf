"""The cache of a ranking: one file for each answer, found by everything that decides it, and checked when it is read.

A file is canonical JSON: `key` (what decides the answer), `payload` (the answer) with its sha256, and `provenance` (how
long it took) with its own. Two runs of the same request write the same bytes outside `provenance`.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from valuelens.models import atomic_path

PROVENANCE = "seconds"
"""Members of an answer whose names start so are no part of it: they say how it came about."""

_FLOAT = "float"


class CorruptEntryError(ValueError):
    """A file of the cache is not what was written there."""


def canonical(data: Any) -> str:
    """The one JSON text of some data: sorted keys, floats that read back exactly, NaN and infinities as words.

    Args:
        data: Of dicts with text keys, lists, tuples, text, numbers, booleans and None.

    Raises:
        TypeError: It holds something else.

    Example:
        >>> canonical({"b": [0.1, float("nan")], "a": None})
        '{"a":null,"b":[0.1,{"float":"nan"}]}'
    """
    return json.dumps(_encoded(data), sort_keys=True, separators=(",", ":"), allow_nan=False)


def parsed(text: str | bytes) -> Any:
    """The reverse of `canonical`; tuples have become lists.

    Args:
        text: JSON.

    Raises:
        ValueError: It is none.

    Example:
        >>> parsed('{"a":{"float":"-inf"}}')
        {'a': -inf}
    """
    return json.loads(text, object_hook=_decoded)


def digest(data: Any) -> str:
    """sha256 of the canonical JSON of some data.

    Args:
        data: As `canonical` takes it.
    """
    return hashlib.sha256(canonical(data).encode()).hexdigest()


def keep(path: Path, key: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
    """Write an answer, whole or not at all.

    Args:
        path: Of the file.
        key: What decides the answer.
        answer: With the members that are provenance.

    Raises:
        InputError: The place cannot be written.
    """
    provenance = {name: value for name, value in answer.items() if name.startswith(PROVENANCE)}
    payload = {name: value for name, value in answer.items() if name not in provenance}
    entry = {
        "key": dict(key),
        "payload": payload,
        "sha256": digest(payload),
        "provenance": {"said": provenance, "sha256": digest(provenance)},
    }
    text = canonical(entry) + "\n"
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def kept(path: Path, key: Mapping[str, Any]) -> dict[str, Any] | None:
    """The answer that a file holds, to the last bit; none if there is no file.

    Args:
        path: Of the file.
        key: What decides the answer that is looked for.

    Raises:
        CorruptEntryError: It was changed, cut off, or holds the answer to something else.
    """
    try:
        entry = parsed(path.read_bytes())
        payload, provenance = entry["payload"], entry["provenance"]
        hashes = (entry["sha256"], provenance["sha256"])
        found = (digest(entry["key"]), digest(payload), digest(provenance["said"]))
        whole = dict(sorted({**payload, **provenance["said"]}.items()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise CorruptEntryError(f"it cannot be read: {type(error).__name__}") from error
    if found[0] != digest(dict(key)):
        raise CorruptEntryError("it answers another question")
    if found[1:] != hashes:
        raise CorruptEntryError("its sha256 is another one")
    return whole


def _encoded(data: Any) -> Any:
    match data:
        case bool() | int() | str() | None:
            return data
        case float():
            return float(data) if math.isfinite(data) else {_FLOAT: str(float(data))}
        case list() | tuple():
            return [_encoded(each) for each in data]
        case Mapping() if set(data) != {_FLOAT} and all(isinstance(name, str) for name in data):
            return {name: _encoded(value) for name, value in data.items()}
    raise TypeError(
        "an answer must be of dicts with text keys (not `float` alone), lists, text, numbers, booleans and None; "
        f"found {data!r}; {type(data).__name__}"
    )


def _decoded(data: dict[str, Any]) -> Any:
    return float(data[_FLOAT]) if set(data) == {_FLOAT} else data
