"""Byte-level BPE files with one split pattern, encoded by tiktoken: some ten times faster than `tokenizers`.

Takes a loaded tokenizer, gives an encoder of plain text between added tokens, or in words why there is none. Nothing
is believed: the encoder has to give the ids of `tokenizers` on a battery before it is used.
"""

import json
from array import array
from collections.abc import Iterator, Mapping
from itertools import pairwise
from random import Random
from typing import Any

import tiktoken
import tokenizers

from router.prompt.added import changes_nothing
from router.prompt.panics import pass_on

#: Texts that lie at the edges of split patterns: blanks, contractions, digits, scripts, joiners, marks.
_EDGES = (
    "", " ", "a", " a", "a ", "  a", "\n", "\r\n", "\t", " \n \n", "\n\n  a", "a\u00a0b", "'s", "DON'T", "'LL", "it's",
    "1", "12", "123456", "1a2", "3.14", "é", "e\u0301", "\u0301x", "가나다", "日本語テキスト", "\U0001f600",
    "\U0001f469\u200d\U0001f469", "\u200d", "Ω≈ç", "\ufb01", "\u212b", "\u2126", "ẛ̣", "camelCase", "SHOUT", "a_b",
    "//x", "{\n}\n", '"k": [', "—", "...", "!?", "\x00", "\x1b[0m", "\ufeff", "\u3000", "İ", "ß", "\u0391\u0392",
    "мир", "नमस्ते", "ไทย", "\u2028", "\ue000", "\U0010ffff",
)  # fmt: skip
_RANDOM_TEXTS = 400
_VOCABULARY_TEXTS = 200
_MAX_PATTERN_CHARS = 4_096


class FastEncoder:
    """Encodes text without added tokens. Releases the interpreter's lock; safe in several threads."""

    def __init__(self, encoding: tiktoken.Encoding, normalizer: Any) -> None:
        self._encoding = encoding
        self._normalizer = normalizer

    def encode(self, text: str) -> "array[int]":
        """Ids of a text that holds no added token.

        Raises:
            ValueError: The text has no UTF-8 form, or the library fails on it.
        """
        if self._normalizer is not None and not text.isascii():
            text = self._normalizer.normalize_str(text)
        try:
            return array("I", self._encoding.encode_ordinary(text))
        except BaseException as error:  # noqa: BLE001  (passed on unless it is the library's)
            pass_on(error)


def build_fast_encoder(model: "tokenizers.Tokenizer") -> FastEncoder | str:
    """The encoder of a tokenizer, or in words why it has none."""
    description = json.loads(model.to_str())
    added = {token["content"] for token in description["added_tokens"]}
    try:
        pattern, ranks = _find_pattern(description), _find_ranks(description["model"], added)
        encoding = tiktoken.Encoding("dovecote", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    except ValueError as error:
        return str(error)
    except KeyError as error:
        return f"its description lacks {error}"
    fast = FastEncoder(encoding, None if changes_nothing(description["normalizer"]) else model.normalizer)
    texts = [text for text in iter_battery(ranks) if not any(content in text for content in added)]
    for text, whole in zip(texts, model.encode_batch_fast(texts, add_special_tokens=False), strict=True):
        if fast.encode(text).tolist() != whole.ids:
            return f"its ids differ on {text[:40]!r}"
    return fast


def iter_battery(ranks: Mapping[bytes, int]) -> Iterator[str]:
    """Texts on which both have to agree: edges, their mixtures, and pieces of the vocabulary side by side."""
    rng = Random(0)
    yield from _EDGES
    yield from (one + other for one in _EDGES for other in _EDGES)
    yield from ("".join(rng.choices(_EDGES, k=12)) for _ in range(_RANDOM_TEXTS))
    known = list(ranks)
    for _ in range(_VOCABULARY_TEXTS):
        yield b"".join(rng.choices(known, k=20)).decode("utf-8", "replace")


def _find_pattern(description: Mapping[str, Any]) -> str:
    normalizer = description["normalizer"]
    if not changes_nothing(normalizer) and normalizer.get("type") != "NFC":
        raise ValueError(f"its normalizer is {normalizer.get('type')}")
    pre = description["pre_tokenizer"] or {}
    parts = pre.get("pretokenizers", [pre])
    if [part.get("type") for part in parts] != ["Split", "ByteLevel"]:
        raise ValueError("it does not split by one pattern and then to bytes")
    split, level = parts
    pattern = split["pattern"].get("Regex")
    if level["add_prefix_space"] or level["use_regex"] or split["behavior"] != "Isolated" or split["invert"]:
        raise ValueError("its pre-tokenizer has options that are not modelled")
    if not isinstance(pattern, str) or len(pattern) > _MAX_PATTERN_CHARS:
        raise ValueError("its split pattern is no regular expression of a usual length")
    return pattern


def _find_ranks(model: Mapping[str, Any], added: set[str]) -> dict[bytes, int]:
    """Bytes of each vocabulary entry with its id, where merging by id is merging in the file's order."""
    if model["type"] != "BPE" or model["byte_fallback"] or model["dropout"]:
        raise ValueError("it is no plain byte-level BPE")
    if model["continuing_subword_prefix"] or model["end_of_word_suffix"]:
        raise ValueError("its subwords carry marks")
    vocabulary: dict[str, int] = model["vocab"]
    merges = (merge if isinstance(merge, list) else merge.split(" ") for merge in model["merges"])
    results = [vocabulary.get("".join(merge), -1) for merge in merges]
    if any(earlier > later for earlier, later in pairwise(results)) or -1 in results:
        raise ValueError("its merges are not in the order of its ids")
    byte_of = byte_alphabet()
    try:
        return {
            bytes(byte_of[char] for char in name): token_id
            for name, token_id in vocabulary.items()
            if name not in added
        }
    except KeyError as error:
        raise ValueError(f"its vocabulary is not byte-level: {error}") from error


def byte_alphabet() -> dict[str, int]:
    """The byte each character of a byte-level vocabulary stands for: itself where printable, else from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + place): byte for place, byte in enumerate(others)}
