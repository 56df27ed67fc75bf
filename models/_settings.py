"""Configurations as frozen pydantic models that refuse unknown keys, and their errors in one line."""

import re
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from valuelens.models._errors import InputError, did_you_mean

_Settings = TypeVar("_Settings", bound=BaseModel)


class Frozen(BaseModel):
    """A part of a configuration: immutable, without unknown keys, and finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def validated(kind: type[_Settings], data: dict[str, Any], where: str) -> _Settings:
    """A configuration from plain data.

    Args:
        kind: Its class.
        data: Nested dictionary.
        where: Named in the error (a file, or `command line`).

    Raises:
        InputError: A key is unknown or a value is out of range; the line names the key and the finding.
    """
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise as_input_error(error, where) from None


def as_input_error(error: ValidationError, where: str) -> InputError:
    """What pydantic found first, in one line that names the key.

    Args:
        error: Of a configuration.
        where: Named in the error.
    """
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"]) or "config"
    if first["type"] == "missing":
        return InputError(f"{key} must be given", "found none", f"{where}, key {key}")
    if first["type"] == "extra_forbidden":
        return InputError("config keys must be known ones", f"found unknown key {key}", where)
    message = first["msg"].removeprefix("Value error, ")
    if "; found" in message:
        must, found = message.split("; ", 1)
        return InputError(must, found, f"{where}, key {key}")
    rule = message.removeprefix("Input should be ").removeprefix("a valid ")
    offered = re.findall(r"'([^']*)'", rule) if first["type"] == "literal_error" else []
    found = f"found {first['input']!r}{did_you_mean(first['input'], offered)}"
    return InputError(f"{key} must be {rule}", found, f"{where}, key {key}")
