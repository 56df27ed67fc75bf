"""A tokenizer whose tokens are the words of a task, for plain transformers."""

from collections.abc import Sequence

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from valuelens.models._errors import InputError

PAD, END = "<pad>", "<eos>"


def word_tokenizer(
    vocabulary: Sequence[str], *, longest: int, where: str = "vocabulary"
) -> PreTrainedTokenizerFast:
    """A token for each word, and two more: 0 is padding, 1 the end of a sequence; texts are split at spaces.

    It adds no token by itself, and there is none for unknown words: to encode a text with one raises.

    Args:
        vocabulary: Words, each once.
        longest: Tokens that a model reads at most.
        where: Named in the error.

    Raises:
        InputError: A word is empty, holds a space, comes twice or is one of the two others.

    Example:
        >>> tokenizer = word_tokenizer(["yes", "no"], longest=8)
        >>> tokenizer("no yes").input_ids, tokenizer.decode([3, 2, 1], skip_special_tokens=True)
        ([3, 2], 'no yes')
    """
    words = [PAD, END, *vocabulary]
    wrong = [word for word in vocabulary if word.split() != [word] or words.count(word) > 1]
    if wrong:
        must = f"a vocabulary must hold words without spaces, each once, other than {PAD} and {END}"
        raise InputError(must, f"found {wrong[0]!r}", where)
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        padding_side="left",
        model_max_length=longest,
        clean_up_tokenization_spaces=False,
    )


def encoded(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], *, where: str) -> list[list[int]]:
    """Token ids of texts that a word tokenizer knows every word of.

    Args:
        tokenizer: Of `word_tokenizer`.
        texts: Words with spaces between them.
        where: Named in the error.

    Raises:
        InputError: A text is empty, or has a word that the vocabulary lacks.
    """
    known = tokenizer.get_vocab()
    for text in texts:
        if not text.split():
            raise InputError("a text must have a word", f"found {text!r}", where)
        for word in text.split():
            if word not in known:
                must = "every word of a text must stand in the vocabulary"
                raise InputError(must, f"found {word!r}", where)
    return [[known[word] for word in text.split()] for text in texts]
