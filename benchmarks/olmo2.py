"""`costates` and `impact` on revisions of OLMo-2 1B, given a GPU and the hub; `docs/olmo2.md` says what it needs.

    .venv/bin/python benchmarks/olmo2.py --revisions every:10 --device cuda --out olmo2
    .venv/bin/python benchmarks/olmo2.py --dry-run --out olmo2-dry

A second call goes on where the first one stopped. The dry run takes the same way on three tiny OLMo-2 revisions in a
hub cache of its own, without network: it shows that the way is open, and its numbers mean nothing.
"""

import argparse
import hashlib
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from valuelens.models.lm import Prompt, revisions, word_tokenizer

MODEL = "allenai/OLMo-2-0425-1B"
TINY = "valuelens/tiny-olmo2"
TINY_COMMITS = {
    "stage1-step0-tokens0B": "a" * 40,
    "stage1-step9000-tokens19B": "b" * 40,
    "stage1-step140000-tokens294B": "c" * 40,
}
ITEMS = (
    *(
        "apple",
        "bread",
        "chair",
        "door",
        "earth",
        "fish",
        "glass",
        "house",
        "island",
        "juice",
        "king",
        "lamp",
    ),
    *("money", "night", "ocean", "paper"),
)
SEPARATOR = "="


@dataclass(frozen=True, kw_only=True, slots=True)
class LetterCopy:
    """Label copying for a model that reads English: common words with capital letters, which are then repeated.

    `apple B door A =` is answered by ` B A`. A letter with a space before it is one token, so that K labels are K
    tokens (`check_letters` makes sure); `label-copy` itself has labels such as `L0`, which are two.

    Attributes:
        num_labels: Letters to draw from.
        num_pairs: K, pairs in a prompt.
    """

    num_labels: int = 6
    num_pairs: int = 6

    @property
    def reward_range(self) -> tuple[float, float]:
        """No label right, all of them right."""
        return 0.0, 1.0

    @property
    def completion_length(self) -> int:
        """K."""
        return self.num_pairs

    @property
    def ends(self) -> bool:
        """Never before K labels."""
        return False

    @property
    def vocabulary(self) -> Sequence[str]:
        """Words, letters, separator."""
        return (*ITEMS, *self._letters, SEPARATOR)

    def prompts(self, count: int, generator: torch.Generator) -> list[Prompt]:
        """Prompts with their right labels.

        Args:
            count: How many.
            generator: Source of all randomness.
        """
        items = torch.rand(count, len(ITEMS), generator=generator).argsort(1)[:, : self.num_pairs]
        labels = torch.randint(self.num_labels, (count, self.num_pairs), generator=generator)
        found = []
        for row, given in zip(items.tolist(), labels.tolist(), strict=True):
            letters = [self._letters[label] for label in given]
            pairs = [f"{ITEMS[item]} {letter}" for item, letter in zip(row, letters, strict=True)]
            found.append(Prompt(text=" ".join([*pairs, SEPARATOR]), answer=" " + " ".join(letters)))
        return found

    def reward(self, prompt: Prompt, completion: str) -> float:
        """Share of the labels that are right, word by word.

        Args:
            prompt: As drawn.
            completion: Words beyond the K-th do not count; those that lack are wrong.
        """
        right = (prompt.answer or "").split()
        return sum(a == b for a, b in zip(right, completion.split(), strict=False)) / len(right)

    @property
    def _letters(self) -> Sequence[str]:
        return "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[: self.num_labels]


def valuelens(*arguments: str | Path) -> None:
    """Run a verb as the command line does, and stop at its first error."""
    from valuelens.cli import app

    print("==", "valuelens", *arguments, file=sys.stderr, flush=True)
    code = app([str(each) for each in arguments], standalone_mode=False)
    if code not in (None, 0, 3):  # 3: parts of the input could not be used, and the result names them
        sys.exit(int(code))


def check_letters(name: str, revision: str) -> None:
    """Stop unless the tokenizer of a revision, which is downloaded, makes one token of each label."""
    from transformers import AutoTokenizer

    from valuelens.models.lm._hub import snapshot

    task = LetterCopy()
    tokenizer = AutoTokenizer.from_pretrained(snapshot(name, revision), local_files_only=True)
    answer = task.prompts(1, torch.Generator().manual_seed(0))[0].answer
    tokens = tokenizer(answer, add_special_tokens=False)["input_ids"]
    if len(tokens) != task.completion_length:
        sys.exit(f"a label must be one token; found {len(tokens)} tokens in {answer!r}; {name}@{revision}")


def run(name: str, asked: argparse.Namespace, more: Sequence[str]) -> None:
    """Costates of the first, the middle and the last revision, then the ranking of all, one at a time on the disk."""
    named = revisions(name, asked.revisions)
    check_letters(name, named[0])
    task = ["--task", "olmo2:LetterCopy", "--device", asked.device, "--dtype", asked.dtype]
    for each in dict.fromkeys((named[0], named[len(named) // 2], named[-1])):
        out = asked.out / "costates" / each
        if not (out / "result.json").exists():  # it would have to be there again to be hashed
            valuelens("costates", f"{name}@{each}", *task, "--objective", "reward", "--out", out, *more)
    ranking = ["--revisions", ",".join(named), "--evict", "--jobs", "1", "--recipe", asked.recipe]
    valuelens(
        *("impact", name, *task, *ranking),
        *("--rl-seeds", str(asked.rl_seeds), "--out", asked.out / "impact", *more),
    )


def tiny_revisions(cache: Path) -> None:
    """Three revisions of a tiny OLMo-2 as downloads leave them: references, snapshots, and blobs that they link to."""
    from transformers import Olmo2Config, Olmo2ForCausalLM

    task, folder = LetterCopy(), cache / f"models--{TINY.replace('/', '--')}"
    words = word_tokenizer(task.vocabulary, longest=64)
    for seed, (revision, commit) in enumerate(TINY_COMMITS.items()):
        torch.manual_seed(seed)
        config = Olmo2Config(
            vocab_size=len(words),
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            max_position_embeddings=64,
            pad_token_id=words.pad_token_id,
            eos_token_id=words.eos_token_id,
        )
        model: Any = Olmo2ForCausalLM(config)
        model.lm_head.weight.data.mul_(20)  # not nearly uniform
        snapshot = folder / "snapshots" / commit
        model.save_pretrained(snapshot)
        words.save_pretrained(snapshot)
        for file in sorted(snapshot.iterdir()):
            blob = folder / "blobs" / hashlib.sha256(file.read_bytes()).hexdigest()
            blob.parent.mkdir(exist_ok=True)
            file.rename(blob)
            file.symlink_to(blob)
        (folder / "refs").mkdir(exist_ok=True)
        (folder / "refs" / revision).write_text(commit, encoding="utf-8")


def dry_run(asked: argparse.Namespace) -> None:
    """The same way with tiny revisions and no network."""
    from huggingface_hub import constants

    asked.device, asked.recipe, asked.rl_seeds, asked.revisions = "cpu", "fast", 1, "all"
    with tempfile.TemporaryDirectory() as cache:
        constants.HF_HUB_CACHE, constants.HF_HUB_OFFLINE = cache, True
        tiny_revisions(Path(cache))
        run(TINY, asked, ["--num-prompts", "4", "--num-generations", "4", "--quiet"])
        left = sorted(each.name for each in Path(cache).glob("models--*/snapshots/*"))
    print(f"the way is open; revisions left in the cache: {len(left)}", file=sys.stderr)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--revisions", default="every:10", help="a,b or every:10 or all")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--recipe", default="default")
    parser.add_argument("--rl-seeds", type=int, default=1, help="0 for scores alone")
    parser.add_argument("--out", type=Path, default=Path("olmo2"))
    parser.add_argument("--dry-run", action="store_true", help="three tiny revisions, no network, no GPU")
    asked = parser.parse_args()
    if asked.dry_run:
        dry_run(asked)
    else:
        run(MODEL, asked, [])


if __name__ == "__main__":
    main()
