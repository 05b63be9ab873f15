"""Token ids of a text, equal to a full tokenization, at the price of what is new in it.

An added token that no flag widens and no other added token continues cuts a text in two parts that tokenize
apart. A prompt is therefore split at such tokens, and the ids of each segment are kept in a bounded cache:
an appended conversation costs the encoding of its new segments and one pass over its bytes.
Tokenizers for which this does not hold (prefix spaces, first-only rules) are found at load and encoded whole.
Source: design section 3; the boundary rule had no mismatch in 20,000 random edits (shared prototypes).
"""

import re
import threading
from array import array
from collections import OrderedDict
from pathlib import Path
from typing import Any

import tokenizers

#: Tokens kept over all segments: about 100 conversations of 100k tokens, some 80 MB with their texts.
DEFAULT_CACHE_TOKENS = 8_000_000
_PROBES = ("a", " b", "  \n\n c", "\n", "é", "\u0301x", "12", "'s", "\ud55c\uad6d", "\U0001f600", "")


class SegmentCache:
    """Ids by segment text, least recently used out first. Owned by one `Tokenizer`; calls hold its lock."""

    def __init__(self, limit_tokens: int) -> None:
        self.limit_tokens = limit_tokens
        #: Tokens held now, plus one a segment so that empty ones count; never above the limit after `put`.
        self.held_tokens = 0
        self._ids: OrderedDict[str, array[int]] = OrderedDict()

    def find(self, segment: str) -> "array[int] | None":
        """Ids of a segment, which is then the most recently used."""
        ids = self._ids.get(segment)
        if ids is not None:
            self._ids.move_to_end(segment)
        return ids

    def put(self, segment: str, ids: "array[int]") -> None:
        """Keep a segment; what was not used longest makes room. One larger than the limit is not kept."""
        if segment in self._ids or len(ids) >= self.limit_tokens:
            return
        self._ids[segment] = ids
        self.held_tokens += len(ids) + 1
        while self.held_tokens > self.limit_tokens:
            _, dropped = self._ids.popitem(last=False)
            self.held_tokens -= len(dropped) + 1


class Tokenizer:
    """A `tokenizers` model that knows where its texts can be cut. Safe to call from several threads."""

    def __init__(self, model: "tokenizers.Tokenizer", *, cache_tokens: int = DEFAULT_CACHE_TOKENS) -> None:
        model.no_truncation()
        model.no_padding()
        self._model = model
        self._lock = threading.Lock()
        self.cache = SegmentCache(cache_tokens)
        self._cut: re.Pattern[str] | None = _cut_pattern(model)
        if self._cut is not None and not self._cuts_hold():
            self._cut = None

    @property
    def is_incremental(self) -> bool:
        """Whether texts are cut at added tokens; False means each text is encoded whole."""
        return self._cut is not None

    def encode(self, text: str, *, add_special_tokens: bool = False) -> "array[int]":
        """Ids of `text`, always those of a full tokenization.

        Args:
            text: Rendered prompt.
            add_special_tokens: Whether the tokenizer's own start and end tokens are put around it, as engines
                do for plain completions and not for rendered chats.
        """
        if add_special_tokens or self._cut is None:
            return self._encode_whole([text], add_special_tokens=add_special_tokens)[0]
        return self._encode_segments(_split(self._cut, text))

    def _encode_segments(self, segments: list[str]) -> "array[int]":
        with self._lock:
            known = [self.cache.find(segment) for segment in segments]
        missing = list(dict.fromkeys(s for s, ids in zip(segments, known, strict=True) if ids is None))
        fresh = dict(zip(missing, self._encode_whole(missing), strict=True)) if missing else {}
        with self._lock:
            for segment, ids in fresh.items():
                self.cache.put(segment, ids)
        joined: array[int] = array("I")
        for segment, found in zip(segments, known, strict=True):
            joined.extend(fresh[segment] if found is None else found)
        return joined

    def _encode_whole(self, texts: list[str], *, add_special_tokens: bool = False) -> "list[array[int]]":
        # The batch call releases the interpreter lock, the single one does not.
        encodings = self._model.encode_batch_fast(texts, add_special_tokens=add_special_tokens)
        return [array("I", encoding.ids) for encoding in encodings]

    def _cuts_hold(self) -> bool:
        """Whether cutting gives the ids of the whole on a battery of awkward neighbours."""
        added = [token.content for token in _safe_tokens(self._model)][:4]
        texts = [f"{a}{token}{b}" for token in added for a in _PROBES for b in _PROBES]
        texts += [f"x{first}{second} y" for first in added for second in added]
        return all(self._encode_whole([text])[0] == self.encode(text) for text in texts)


def _safe_tokens(model: "tokenizers.Tokenizer") -> list[Any]:
    """Added tokens that end wherever their text ends: no widening flag, and no longer token starts alike."""
    added = list(model.get_added_tokens_decoder().values())
    texts = [token.content for token in added]
    return [
        token
        for token in added
        if token.content
        and not (token.normalized or token.lstrip or token.rstrip or token.single_word)
        and not any(other != token.content and token.content in other for other in texts)
        and not any(_overlaps(token.content, other) for other in texts if other != token.content)
        and not _overlaps(token.content, token.content)
    ]


def _overlaps(left: str, right: str) -> bool:
    """Whether a proper end of one text is a start of the other, so that a match could straddle the cut."""
    shorter = min(len(left), len(right))
    return any(left.endswith(right[:n]) or right.endswith(left[:n]) for n in range(1, shorter))


def _cut_pattern(model: "tokenizers.Tokenizer") -> re.Pattern[str] | None:
    texts = sorted((token.content for token in _safe_tokens(model)), key=len, reverse=True)
    if not texts:
        return None
    return re.compile("|".join(re.escape(text) for text in texts))


def _split(cut: re.Pattern[str], text: str) -> list[str]:
    """Segments that end with a cut token each, then what is left; joined they are the text."""
    segments, start = [], 0
    for match in cut.finditer(text):
        segments.append(text[start : match.end()])
        start = match.end()
    if start < len(text):
        segments.append(text[start:])
    return segments


def load_tokenizer(folder: Path, *, cache_tokens: int = DEFAULT_CACHE_TOKENS) -> Tokenizer:
    """The tokenizer of a folder holding `tokenizer.json`.

    Raises:
        ValueError: The file is absent or is no tokenizer.
    """
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    try:
        model = tokenizers.Tokenizer.from_buffer(path.read_bytes())
    except Exception as error:  # the library raises bare Exception
        raise ValueError(f"{path}: not a tokenizer: {error}") from error
    return Tokenizer(model, cache_tokens=cache_tokens)
