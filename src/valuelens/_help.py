"""The pages that --help prints: options in sections, and examples that a test parses."""

import re
from typing import Any

from typer.core import TyperCommand, TyperGroup

EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "": (
        ("valuelens demo", "three minutes: trains, analyses, writes demo/report.html"),
        ("valuelens doctor", "does everything needed work here?"),
        ("valuelens VERB --help", "options and examples of a verb"),
    ),
    "pretrain": (
        ("valuelens pretrain --out runs/default", "the default: 10 tied layers, Boyan chains"),
        ("valuelens pretrain --out runs/two --num-seeds 2 --jobs 2", "two models, two processes"),
        ("valuelens pretrain --out runs/opaque --arch transformer --env loop", "a standard transformer"),
        (
            "valuelens pretrain --out runs/neu --loss neu --untied --num-layers 3 --weights full --dtype float64",
            "the expected update, untied full weights",
        ),
    ),
    "analyze": (
        ("valuelens analyze runs/default --out results/default", "every question; writes report.html"),
        ("valuelens analyze runs/default/checkpoints/step-00002000", "one checkpoint; only prints"),
        ("valuelens analyze runs/default --only slots,distance --json", "two questions, as data"),
        ("valuelens analyze weights.pt --adapter mypackage.nets:load", "your own network: its algorithm"),
        ("valuelens analyze --list", "the questions, by name"),
    ),
    "pretrain-lm": (
        ("valuelens pretrain-lm --out series/copy", "label copying: 14 checkpoints in a minute"),
        ("valuelens pretrain-lm --out series/sum --task modular-sum --num-seeds 2", "two series"),
        ("valuelens pretrain-lm --out series/own --task mypackage.tasks:Mine", "a task of your own"),
    ),
    "costates": (
        ("valuelens costates series/copy/step-00002500 --out results/copy", "the task of its series"),
        ("valuelens costates HuggingFaceTB/SmolLM2-135M --task addition", "a model of the hub"),
        ("valuelens costates model --rollouts trl_output --loss-type dapo", "what TRL logged, as it trains"),
        (
            "valuelens costates model --rollouts r.parquet --reward-targets gold --layers all --full",
            "a differentiable reward: credit over hops, and heads",
        ),
    ),
    "impact": (
        ("valuelens impact series/copy --out results/impact", "score, RL from each checkpoint, ranking"),
        ("valuelens impact series/copy --rl-seeds 0", "scores alone: seconds a checkpoint"),
        ("valuelens impact series/copy --gains gains.csv", "beside gains that you measured"),
        (
            "valuelens impact allenai/OLMo-2-0425-1B --revisions every:10 --task addition --evict --rl-seeds 0",
            "checkpoints of the hub, one on the disk at a time",
        ),
    ),
    "report": (
        ("valuelens report results/default", "writes results/default/report.html"),
        ("valuelens report results/a results/b --out compared.html", "side by side"),
    ),
    "demo": (
        ("valuelens demo", "into the folder demo"),
        ("valuelens demo --out elsewhere --seed 1", "another seed"),
        ("valuelens demo --overwrite --jobs 1", "afresh, in one process"),
    ),
    "doctor": (
        ("valuelens doctor", "this machine"),
        ("valuelens doctor HuggingFaceTB/SmolLM2-135M", "can this model be used here?"),
        ("valuelens doctor series/copy/step-00002500 --json", "as data"),
    ),
}
"""Command lines and what they are for, by verb; the empty name is the front page."""

_SIZES = ("num_items", "num_labels", "num_pairs", "num_digits")
_ROLLOUTS = (
    *("task", "rollouts", "reward_targets", *_SIZES, "num_prompts", "num_generations"),
    *("max_completion_length", "temperature", "top_k", "top_p", "completion_ends"),
)
_REST = "Running and output"
SECTIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "pretrain": {
        "Task": (
            *("env", "num_states", "features", "feature_dim", "representable", "context_length", "gamma"),
        ),
        "Model": (
            *("arch", "weights", "num_layers", "tied", "num_heads", "d_model", "causal", "positions"),
            "normalization",
        ),
        "Training": (
            *("loss", "steps", "batch_size", "learning_rate", "clip_norm", "num_checkpoints", "dtype"),
            *("num_seeds", "seed"),
        ),
    },
    "analyze": {"Questions": ("only", "list_", "adapter", "full", "num_tasks", "dtype", "seed")},
    "pretrain-lm": {
        "Task": ("task", "shuffled", *_SIZES),
        "Model": ("num_layers", "d_model", "num_heads"),
        "Training": (
            *("steps", "batch_size", "learning_rate", "num_checkpoints", "dtype", "num_seeds", "seed"),
        ),
    },
    "costates": {
        "Rollouts": (*_ROLLOUTS, "seed"),
        "Update": ("objective", "loss_type", "scale_rewards", "baseline"),
        "Measurement": ("layers", "positions", "max_hops", "tolerance", "full", "micro_batch"),
        "Loading": ("revision", "base", "dtype"),
    },
    "impact": {
        "Score": ("signal", "headroom", "beta", "layer", "max_hops", "tolerance", "micro_batch"),
        "RL": ("recipe", "rl_seeds", "gains"),
        "Rollouts": (*_ROLLOUTS, "seed"),
        "Loading": ("revisions", "evict", "base", "dtype"),
    },
}
"""Options by the section they stand in; what is in none stands last."""

PLACEHOLDERS = {
    **{"only": "NAME,...", "layers": "LAYER,...", "layer": "LAYER", "revisions": "NAME,..."},
    **{"rollouts": "PATH", "reward_targets": "COLUMN", "base": "MODEL", "scheduler": "ADDRESS"},
    **{"out": "DIR", "device": "DEVICE"},
}
"""What stands for the value of an option, where it is not its kind."""

_KINDS = {"int": "N", "int range": "N", "float": "NUMBER", "path": "PATH"}

WIDTH = 100
SETTINGS: dict[str, Any] = {"max_content_width": WIDTH}


class Verb(TyperCommand):
    """A verb whose options stand in sections, with examples below."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Arguments by their names: in brackets if they may be left out."""
        return [re.sub(r"^\{(.*)\}$", r"\1", _once(piece)) for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, then the sections."""
        records = {
            (param.param_type_name, param.name): (_placeholder(param, first), _default(second))
            for param in self.get_params(ctx)
            if (record := param.get_help_record(ctx)) is not None
            for first, second in [record]
        }
        arguments = [record for (kind, _), record in records.items() if kind == "argument"]
        options = {name: record for (kind, name), record in records.items() if kind == "option"}
        sections = SECTIONS.get(str(self.name), {})
        named = {name for names in sections.values() for name in names}
        rest = tuple(name for name in options if name not in named)
        titled = {**sections, (_REST if sections else "Options"): rest}
        found = {title: [options[name] for name in names] for title, names in titled.items()}
        for title, rows in {"Arguments": arguments, **found}.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """The examples, each as it is typed."""
        _write_examples(str(self.name), formatter, "Examples")


class Front(TyperGroup):
    """The front page, also where nothing is asked: verbs, then where to begin."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Nothing is `--help`."""
        return super().parse_args(ctx, args or ["--help"])

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Where to begin."""
        _write_examples("", formatter, "Where to begin")


def _write_examples(verb: str, formatter: Any, title: str) -> None:
    with formatter.section(title):
        longest = max(len(line) for line, _ in EXAMPLES[verb])
        beside = longest + max(len(what) for _, what in EXAMPLES[verb]) + 6 <= formatter.width
        for line, what in EXAMPLES[verb]:
            formatter.write(f"  {line:<{longest}}  # {what}\n" if beside else f"  # {what}\n  {line}\n")


def _placeholder(param: Any, text: str) -> str:
    """What stands for a value, in capitals, not its type."""
    name, bracket, kind = text.partition(" <")
    if not bracket:
        return text
    if param.param_type_name == "argument":
        return name
    return f"{name} {PLACEHOLDERS.get(str(param.name)) or _KINDS.get(kind.rstrip('>'), 'NAME')}"


def _once(text: str) -> str:
    """Dots after the brackets only once."""
    return re.sub(r"\.\.\.(\}|\])\.\.\.$", r"...\1", text)


def _default(text: str) -> str:
    """Without the parentheses around defaults that are told in words, and with limits in words."""
    text = re.sub(r"\bx>=(\d+)\]", r"at least \1]", text)
    return re.sub(r"\[default: \((.*)\)(; required)?\]", r"[default: \1\2]", text)
