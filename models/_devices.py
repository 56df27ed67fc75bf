"""Where to compute."""

import torch

from valuelens.models._errors import InputError


def device(name: str) -> torch.device:
    """A device that exists here.

    Args:
        name: As torch has it: cpu, cuda, cuda:1, mps, ...

    Raises:
        InputError: There is none of this name.
    """
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        found = f"found {name!r}: {str(error).splitlines()[0]}"
        raise InputError("the device must exist here", found, "option --device") from None
    return torch.device(name)
