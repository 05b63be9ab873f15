"""Trains the toy tokenizer and writes its two files: `python -m engine_shim.engine.tokenizer.train [FOLDER]`.

Byte-level BPE with one split expression and no normalizer, so that any byte string has tokens and
the files can be read by `tokenizers`, `transformers` and converters to tiktoken alike.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from engine_shim.engine.tokenizer.codec import TOY_FOLDER
from engine_shim.engine.tokenizer.corpus import iter_corpus

#: Entries of the vocabulary, special tokens included; equals the toy model's output width.
VOCABULARY_TOKENS = 4_096
CORPUS_SEED = 20_260

#: Ids 0, 1, ... in this order.
SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|tool_call|>",
    "<|tool_call_end|>",
    "<|tool_result|>",
    "<|tool_result_end|>",
)
#: Splits text before merging: contractions, words, numbers of three digits, punctuation, line ends, blanks.
SPLIT_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEMPLATE_PATH = Path(__file__).parent / "chat_template.jinja"


def train_tokenizer(texts: Iterable[str], vocabulary_tokens: int) -> Tokenizer:
    """Byte-level BPE over `texts`; the same texts give the same tokenizer."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT_PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_tokens,
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def build_config() -> dict[str, object]:
    """What `tokenizer_config.json` says: names of special tokens and the chat template."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": None,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 131_072,
        "chat_template": TEMPLATE_PATH.read_text(encoding="utf-8"),
    }


def write_tokenizer(folder: Path) -> None:
    """Train on the full corpus and write both files into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer(iter_corpus(CORPUS_SEED), VOCABULARY_TOKENS)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    config = json.dumps(build_config(), ensure_ascii=False, indent=2)
    (folder / "tokenizer_config.json").write_text(config + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_tokenizer(Path(sys.argv[1]) if len(sys.argv) > 1 else TOY_FOLDER)
