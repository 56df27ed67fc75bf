"""The record of a language model says its sizes, whatever its family calls them; test models are not nearly uniform."""

import math

import torch


def test_sizes_are_those_of_the_family(tiny_language_model, family):
    language_model = tiny_language_model(family, num_layers=3, d_model=32)
    assert (language_model.num_layers, language_model.d_model) == (3, 32)
    assert language_model.device == torch.device("cpu")
    assert language_model.model.config.model_type == language_model.family == family


def test_entropy_of_the_test_models_is_in_the_middle(tiny_model, family, generator):
    for vocab_size in (5, 20):
        model = tiny_model(family, vocab_size=vocab_size)
        logits = model(torch.randint(vocab_size, (64, 10), generator=generator)).logits
        entropy = torch.distributions.Categorical(logits=logits).entropy().mean()
        assert 0.3 < entropy / math.log(vocab_size) < 0.7
        assert model is tiny_model(family, vocab_size=vocab_size)
