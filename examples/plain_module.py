"""A plain torch module, identified: `python examples/plain_module.py`."""

from pathlib import Path

import torch
from torch import nn

from valuelens.models.icrl import Slot, TaskConfig


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.step, self.sharpness = nn.Parameter(torch.tensor(0.8)), nn.Parameter(torch.tensor(5.0))

    def forward(self, x, r, v):
        n = r.shape[1]
        attention = torch.softmax(self.sharpness * x @ x[:, :n].mT, dim=-1)
        return v + self.step * torch.einsum("bji,bi->bj", attention, r + 0.6 * v[:, 1 : n + 1] - v[:, :n])


class MyModule(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(4))

    def forward(self, x, r):
        v = torch.zeros_like(x[..., 0])
        for layer in self.layers:
            v = layer(x, r, v)
        return v[:, r.shape[1] :]


class MyNetwork:
    """The adapter: how to load the module, call it, and where its layers show their values."""

    task = TaskConfig(gamma=0.6, context_length=30)  # what it was trained on; left out, the default tasks

    def __init__(self, path):
        self.module = MyModule().double()
        self.module.load_state_dict(torch.load(path, weights_only=True))
        self.slots = [Slot(hook=f"layers.{layer}", layer=layer) for layer in range(4)]

    def inputs(self, context, queries):
        """S_0..S_n, then extra states whose values are wanted too (S_n and they are no sources)."""
        return torch.cat([context.features, queries], dim=1), context.rewards

    def values(self, output):
        """Of S_n first, then of the extra states."""
        return output


if __name__ == "__main__":
    import valuelens as vl

    torch.save(MyModule().double().state_dict(), "weights.pt")
    config = vl.AnalysisConfig(adapter="plain_module:MyNetwork", num_tasks=64)
    result = vl.analyze(Path("weights.pt"), config)
    for name in ("algorithm", "algorithm_class", "identified_discount"):
        print(f"{name}: {result.find(name)[0].estimate}")
