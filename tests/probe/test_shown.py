"""Records of tensors show sizes, and numbers only where they are few."""

import dataclasses

import torch

from valuelens.probe._shown import Measured


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Record(Measured):
    """One field of each kind."""

    many: torch.Tensor
    few: torch.Tensor
    yes: torch.Tensor
    word: str


def test_a_record_is_a_line_a_field():
    record = Record(
        many=torch.full((3, 4), 2.0, dtype=torch.float64),
        few=torch.tensor([[1.0, 2 / 3], [float("nan"), -1e-9]]),
        yes=torch.tensor([True, False, True]),
        word="layer",
    )
    assert repr(record).splitlines() == [
        "Record",
        "  many  float64 [3, 4], norm 6.928",
        "  few   float32 [2, 2] [[1, 0.6667], [nan, -1e-09]]",
        "  yes   bool [3], 2 of 3 true",
        "  word  layer",
    ]
    scalar = Record(many=torch.tensor(5), few=torch.zeros(0), yes=torch.tensor(True), word="")
    assert "  many  int64 [] 5" in repr(scalar)
    assert "  few   float32 [0] []" in repr(scalar)
