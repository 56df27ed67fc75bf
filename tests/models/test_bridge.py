"""The TransformerLens bridge computes what the plain model computes, forward and backward, until it folds weights."""

import copy

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch.testing import assert_close
from transformers import PreTrainedTokenizerFast

from valuelens.models import InputError
from valuelens.models.lm import bridge, load_language_model, plain_model


def objective(logits, ids):
    return logits.log_softmax(-1)[:, :-1].gather(-1, ids[:, 1:, None]).sum()


def plain_gradients(model, ids):
    """d objective / d h_l as `probe` measures it."""
    leaf = model.get_input_embeddings()(ids).detach().requires_grad_()
    out = model(inputs_embeds=leaf, attention_mask=torch.ones_like(ids), output_hidden_states=True)
    return torch.autograd.grad(objective(out.logits, ids), out.hidden_states[:-1])


def bridge_gradients(lens, ids, num_layers):
    found = {}
    hooks = [
        (f"blocks.{layer}.hook_in", lambda x, hook: found.update({hook.name: x}))
        for layer in range(num_layers)
    ]
    leaf = [("embed.hook_out", lambda x, hook: x.detach().requires_grad_())]
    with lens.hooks(fwd_hooks=leaf, bwd_hooks=hooks):
        objective(lens(ids), ids).backward()
    return [found[name] for name, _ in hooks]


def test_logits_and_hidden_gradients_are_those_of_the_plain_model(tiny_language_model, family, generator):
    language_model = tiny_language_model(family, vocab_size=20, num_layers=3)
    ids = torch.randint(20, (2, 12), generator=generator)
    lens, logits = bridge(language_model), language_model.model(ids).logits
    assert_close(lens(ids), logits, rtol=0, atol=1e-5)
    wanted = plain_gradients(language_model.model, ids)
    for found, right in zip(bridge_gradients(lens, ids, 3), wanted, strict=True):
        assert (found - right).norm() < 1e-5 * right.norm()
    assert_close(language_model.model(ids).logits, logits, rtol=0, atol=0)  # the model itself is left alone
    for found, right in zip(plain_gradients(plain_model(lens), ids), wanted, strict=True):
        assert (found - right).norm() < 1e-5 * right.norm()


@pytest.mark.parametrize("prepends", [False, True])
def test_text_becomes_the_tokens_that_the_tokenizer_makes_of_it(tiny_model, tmp_path, prepends):
    words = Tokenizer(models.WordLevel({str(i): i for i in range(5)}, unk_token="0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if prepends:
        words.post_processor = processors.TemplateProcessing("4 $A", special_tokens=[("4", 4)])
    tiny_model("llama").save_pretrained(tmp_path)
    PreTrainedTokenizerFast(tokenizer_object=words, bos_token="4", eos_token="4").save_pretrained(tmp_path)
    language_model = load_language_model(tmp_path)
    lens = bridge(language_model)
    assert lens.cfg.model_name == str(tmp_path)
    ids = language_model.tokenizer("3 1 2", return_tensors="pt").input_ids
    assert ids.shape[1] == 3 + prepends
    assert_close(lens("3 1 2"), language_model.model(ids).logits, rtol=0, atol=1e-5)
    assert language_model.tokenizer.pad_token is None  # the bridge gave its own copy one


@pytest.mark.parametrize("family", ["olmo2", "olmo3"])
def test_families_that_it_cannot_run_in_half_precision_are_refused(tiny_language_model, family):
    language_model = tiny_language_model(family, dtype=torch.bfloat16)
    told = f"found torch.bfloat16 for {family}; load it with dtype float32; tiny-{family}"
    with pytest.raises(InputError, match=f"TransformerLens must be able to run the model; {told}"):
        bridge(language_model)
    bridge(tiny_language_model(family, dtype=torch.float64))


def test_other_families_run_in_half_precision(tiny_language_model):
    language_model = tiny_language_model("qwen2", dtype=torch.bfloat16)
    assert bridge(language_model)(torch.tensor([[1, 2, 3]])).dtype == torch.bfloat16


def test_a_family_that_it_lacks_is_told(tiny_language_model):
    language_model = copy.copy(tiny_language_model("llama"))
    model = copy.deepcopy(language_model.model)
    model.__class__ = type("NovelForCausalLM", (type(model),), {})
    object.__setattr__(language_model, "model", model)
    with pytest.raises(InputError, match=r"TransformerLens must know this family; found .*NovelForCausalLM"):
        bridge(language_model)


def test_a_plain_model_is_plain(tiny_model):
    assert plain_model(tiny_model("llama")) is tiny_model("llama")


@pytest.mark.parametrize(
    ("no_processing", "found"), [(False, "folded or centred weights"), (True, "compatibility mode")]
)
def test_a_bridge_with_compatibility_processing_is_refused(tiny_language_model, no_processing, found):
    lens = bridge(tiny_language_model("gpt2"))
    assert plain_model(lens) is lens.original_model
    lens.enable_compatibility_mode(disable_warnings=True, no_processing=no_processing)
    with pytest.raises(InputError, match=f"changes the residual stream\\); found {found}; TransformerBridge"):
        plain_model(lens)


def test_a_tokenizer_of_whole_words_keeps_its_tokens(tiny_model, tmp_path):
    """TransformerLens asks for the letter a, which such a tokenizer refuses."""
    tiny_model("llama").save_pretrained(tmp_path)
    strict = Tokenizer(models.WordLevel({"one": 0, "two": 1, "end": 2}))
    strict.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=strict, eos_token="end", pad_token="end").save_pretrained(
        tmp_path
    )
    lens = bridge(load_language_model(tmp_path))
    assert lens.to_tokens("two one").tolist() == [[1, 0]]
    assert (lens.cfg.default_prepend_bos, lens.cfg.tokenizer_appends_eos) == (False, False)
