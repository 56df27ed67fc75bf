"""A model that nnsight wraps, identified: `python examples/nnsight_model.py` (needs `pip install nnsight`).

nnsight reads and edits the very module that it wraps, and leaves that in the wrapper's `_module`. An adapter hands out
this module, whose submodules carry the names that `wrapped.get(name)` takes; traces keep working beside it. The model
keeps its values somewhere in a residual stream, so the slots say `residual` and the direction is found.
"""

from pathlib import Path

import nnsight
import torch
from torch import Tensor, nn

from valuelens.models.icrl import Slot, TaskConfig

WIDTH, DEPTH, STEP = 16, 5, 2.0


class Block(nn.Module):
    """Attention without softmax: a step of linear TD, written into one direction of the stream."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Linear(WIDTH, 4, bias=False)
        self.value = nn.Linear(WIDTH, 1, bias=False)
        self.write = nn.Linear(1, WIDTH, bias=False)

    def forward(self, stream: Tensor, rewards: Tensor, gamma: float) -> Tensor:
        n = rewards.shape[1]
        x, v = self.features(stream), self.value(stream)
        error = rewards[..., None] + gamma * v[:, 1 : n + 1] - v[:, :n]
        return stream + STEP / n * self.write(x @ (x[:, :n].mT @ error))


class Stream(nn.Module):
    """Five blocks between an embedding and a read-out."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(4, WIDTH, bias=False)
        self.blocks = nn.ModuleList(Block() for _ in range(DEPTH))
        self.read_out = nn.Linear(WIDTH, 1, bias=False)
        self._tie(torch.Generator().manual_seed(0))

    @torch.no_grad()
    def _tie(self, generator: torch.Generator) -> None:
        """Blocks that read what others wrote: features and values hidden in one random basis."""
        basis = torch.linalg.qr(torch.randn(WIDTH, WIDTH, generator=generator)).Q
        self.embed.weight.copy_(basis[:, :4])
        for block in self.blocks:
            block.features.weight.copy_(basis[:, :4].T)
            block.value.weight.copy_(basis[:, 4:5].T)
            block.write.weight.copy_(basis[:, 4:5])
        self.read_out.weight.copy_(basis[:, 4:5].T)

    def forward(self, columns: Tensor, rewards: Tensor, gamma: float) -> Tensor:
        stream = self.embed(columns)
        for block in self.blocks:
            stream = block(stream, rewards, gamma)
        return self.read_out(stream)[:, rewards.shape[1] :, 0]


class WrappedNetwork:
    """The adapter: `analyze stream.pt --adapter nnsight_model:WrappedNetwork`."""

    task = TaskConfig()

    def __init__(self, path: Path) -> None:
        model = Stream()
        model.load_state_dict(torch.load(path, weights_only=True))
        self.wrapped = nnsight.NNsight(model.double())
        self.module = self.wrapped._module
        self.slots = [Slot(hook=f"blocks.{layer}", layer=layer, holds="residual") for layer in range(DEPTH)]

    def inputs(self, context, queries):
        return torch.cat([context.features, queries], dim=1), context.rewards, context.gamma

    def values(self, output):
        return output

    def traced(self, context) -> list[Tensor]:
        """The same streams, read by nnsight."""
        streams = []
        with self.wrapped.trace(*self.inputs(context, context.features[:, :0])):
            for block in self.wrapped.blocks:
                streams.append(block.output.save())
        return streams


if __name__ == "__main__":
    import valuelens as vl

    torch.save(Stream().state_dict(), "stream.pt")
    config = vl.AnalysisConfig(adapter="nnsight_model:WrappedNetwork", num_tasks=64)
    result = vl.analyze(Path("stream.pt"), config)
    for name in ("algorithm", "algorithm_class", "identified_discount"):
        print(f"{name}: {result.find(name)[0].estimate}")
