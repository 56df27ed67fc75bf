"""A state dict under foreign names with a foreign config, identified: `python examples/state_dict.py`.

Where the architecture is one of ours, the adapter only has to rename and reshape, and `network_of` does the rest. Here
a folder holds `hyperparameters.json` and `weights.safetensors`, in which every layer stores its keys and queries apart,
head by head and transposed, and one output row.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from valuelens.models.icrl import LearnerNetwork, TaskConfig, network_of, softmax_td_from_matrices


@dataclass(frozen=True)
class Theirs(LearnerNetwork):
    """One of our networks, and the tasks that it was trained on."""

    task: TaskConfig


def their_network(folder: Path) -> Theirs:
    """The adapter: `analyze FOLDER --adapter state_dict:their_network`."""
    config = json.loads((folder / "hyperparameters.json").read_text())
    weights = load_file(folder / "weights.safetensors")
    layers = range(config["depth"])
    width = config["n_inputs"] + 3  # features, reward, target memory, current memory
    A = torch.stack(
        [weights[f"net.{layer}.to_k"].T @ weights[f"net.{layer}.to_q"] for layer in layers]
    )  # their scores are (to_k z_src)' (to_q z_dest)
    V = torch.zeros(len(layers), width, width, dtype=A.dtype)
    for layer in layers:
        V[layer, -1] = weights[f"net.{layer}.out"].squeeze(0)
    network = network_of(softmax_td_from_matrices(A, V, gamma=config["discount"]))
    task = TaskConfig(feature_dim=config["n_inputs"], gamma=config["discount"])
    return Theirs(module=network.module, slots=network.slots, task=task)


def save_theirs(folder: Path, *, depth: int = 3) -> None:
    """A small network as somebody else may have stored it: its layers overstep rewards and successors alike."""
    generator = torch.Generator().manual_seed(0)
    inputs, weights = 4, {}
    for layer in range(depth):
        mix = torch.linalg.qr(torch.randn(inputs, inputs, generator=generator, dtype=torch.float64)).Q
        keys = torch.cat([mix, torch.zeros(inputs, 3, dtype=mix.dtype)], dim=1)
        weights[f"net.{layer}.to_k"], weights[f"net.{layer}.to_q"] = keys, 4.0 * keys
        weights[f"net.{layer}.out"] = torch.tensor([[0.0] * inputs + [1.1, 1.1, -1.1]], dtype=mix.dtype)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "weights.safetensors")
    config = {"depth": depth, "n_inputs": inputs, "discount": 0.7}
    (folder / "hyperparameters.json").write_text(json.dumps(config))


if __name__ == "__main__":
    import valuelens as vl

    save_theirs(Path("theirs"))
    config = vl.AnalysisConfig(adapter="state_dict:their_network", num_tasks=64)
    result = vl.analyze(Path("theirs"), config)
    for name in ("algorithm", "algorithm_class", "identified_discount"):
        print(f"{name}: {result.find(name)[0].estimate}")
