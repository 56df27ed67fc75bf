"""Devices that exist, and those that do not."""

import pytest
import torch

from valuelens.models import InputError, device


def test_a_device_exists_or_is_told():
    assert device("cpu") == torch.device("cpu")
    with pytest.raises(InputError, match=r"the device must exist here; found 'nowhere': .*; option --device"):
        device("nowhere")
