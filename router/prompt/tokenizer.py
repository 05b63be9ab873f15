"""Token ids of a text, equal to a full tokenization, at the price of what is new in it.

A text is cut after added tokens that separate what tokenizes apart, and the ids of each segment are kept: an appended
conversation costs the encoding of its new segments and one pass over its bytes. Tokenizers for which this does not
hold (prefix spaces, first-only rules) are found at load and encoded whole. Byte-level BPE files with one split pattern
run through tiktoken where it gives the same ids.
Source: design section 3; the boundary rule had no mismatch in 20,000 random edits (shared prototypes).
"""

import logging
import threading
from array import array
from pathlib import Path
from typing import Protocol

import tokenizers

from router.prompt.added import Cuts, find_cuts
from router.prompt.bpe import FastEncoder, build_fast_encoder
from router.prompt.description import check_description
from router.prompt.files import MAX_TOKENIZER_BYTES, identify, parse_object, read_file
from router.prompt.panics import LibraryFailed, as_value_error, pass_on
from router.prompt.segments import SegmentCache

_log = logging.getLogger("dovecote.prompt")
_PROBES = ("a", " b", "  \n\n c", "\n", "é", "\u0301x", "12", "'s", "\ud55c\uad6d", "\U0001f600", "")


class TextEncoder(Protocol):
    """Plain text to ids."""

    @property
    def cuts(self) -> Cuts:
        """Where texts can be cut; empty where they are encoded whole."""

    @property
    def cache(self) -> SegmentCache:
        """Ids that are remembered."""

    def encode(self, text: str, *, add_special_tokens: bool = False) -> "array[int]":
        """Ids of a text."""


class Tokenizer:
    """A `tokenizers` model that knows where its texts can be cut. Safe to call from several threads."""

    def __init__(
        self, model: "tokenizers.Tokenizer", *, cache: SegmentCache | None = None, fast: FastEncoder | None = None
    ) -> None:
        model.no_truncation()
        model.no_padding()
        self._model = model
        self._fast = fast
        self._lock = threading.Lock()
        self.cache = SegmentCache() if cache is None else cache
        self._added_ids = {token.content: token_id for token_id, token in model.get_added_tokens_decoder().items()}
        #: Names the file it was made of; None where it was not made of one.
        self.identity: bytes | None = None
        #: Where texts can be cut; empty where they are encoded whole.
        self.cuts: Cuts = find_cuts(model)
        if self.cuts and not self._cuts_hold():
            self.cuts = Cuts((), normalizes=False)
            self._fast = None
        if not self.cuts.is_complete:
            self._fast = None

    @property
    def is_incremental(self) -> bool:
        """Whether texts are cut at added tokens; False means each text is encoded whole."""
        return bool(self.cuts)

    @property
    def is_fast(self) -> bool:
        """Whether texts run through tiktoken."""
        return self._fast is not None

    def encode(self, text: str, *, add_special_tokens: bool = False) -> "array[int]":
        """Ids of `text`, always those of a full tokenization.

        Args:
            text: Rendered prompt, or what stands after a cut of one.
            add_special_tokens: Whether the tokenizer's own start and end tokens are put around it, as engines
                do for plain completions and not for rendered chats.

        Raises:
            ValueError: The text has no UTF-8 form, or the library fails on it.
        """
        if add_special_tokens or not self.cuts:
            return self._encode_whole([text], add_special_tokens=add_special_tokens)[0]
        return self._encode_segments(self.cuts.split(text))

    def _encode_segments(self, segments: list[str]) -> "array[int]":
        with self._lock:
            known = [self.cache.find(segment) for segment in segments]
        missing = list(dict.fromkeys(s for s, ids in zip(segments, known, strict=True) if ids is None))
        fresh = dict(zip(missing, self._encode_fresh(missing), strict=True)) if missing else {}
        with self._lock:
            for segment, ids in fresh.items():
                self.cache.put(segment, ids)
        joined: array[int] = array("I")
        for segment, found in zip(segments, known, strict=True):
            joined.extend(fresh[segment] if found is None else found)
        return joined

    def _encode_fresh(self, segments: list[str]) -> "list[array[int]]":
        if self._fast is None:
            return self._encode_whole(segments)
        return [self._encode_fast(self._fast, segment) for segment in segments]

    def _encode_fast(self, fast: FastEncoder, segment: str) -> "array[int]":
        """Ids of a segment: text, and the added tokens in it."""
        ids: array[int] = array("I")
        start = 0
        try:
            for match in self.cuts.find_tokens(segment):
                ids.extend(fast.encode(segment[start : match.start()]))
                ids.append(self._added_ids[match.group()])
                start = match.end()
            ids.extend(fast.encode(segment[start:]))
        except LibraryFailed:
            # Its stack is too small for a million blanks in a row.
            return self._encode_whole([segment])[0]
        return ids

    def _encode_whole(self, texts: list[str], *, add_special_tokens: bool = False) -> "list[array[int]]":
        # The batch call releases the interpreter lock, the single one does not.
        try:
            encodings = self._model.encode_batch_fast(texts, add_special_tokens=add_special_tokens)
        except BaseException as error:  # noqa: BLE001  (passed on unless it is the library's)
            pass_on(error)
        return [array("I", encoding.ids) for encoding in encodings]

    def _cuts_hold(self) -> bool:
        """Whether cutting gives the ids of the whole on a battery of awkward neighbours."""
        added = sorted(self.cuts.contents)[:4]
        texts = [f"{a}{token}{b}" for token in added for a in _PROBES for b in _PROBES]
        texts += [f"x{first}{second} y" for first in added for second in added]
        return all(
            whole == self._encode_segments(self.cuts.split(text))
            for text, whole in zip(texts, self._encode_whole(texts), strict=True)
        )


def load_tokenizer(folder: Path, *, cache: SegmentCache | None = None) -> Tokenizer:
    """The tokenizer of a folder holding `tokenizer.json`.

    Raises:
        ValueError: The file cannot be read or is no tokenizer; the text names it.
    """
    path = folder / "tokenizer.json"
    data = read_file(path, MAX_TOKENIZER_BYTES)
    try:
        check_description(parse_object(data))
        with as_value_error():
            model = tokenizers.Tokenizer.from_buffer(data)
            fast = build_fast_encoder(model)
            tokenizer = Tokenizer(model, cache=cache, fast=None if isinstance(fast, str) else fast)
    except ValueError as error:
        raise ValueError(f"{path}: not a tokenizer: {error}") from error
    if isinstance(fast, str):
        _log.info("tokenizer_without_fast_path file=%a reason=%a", str(path), fast)
    tokenizer.identity = identify(data)
    return tokenizer
