"""A forward without tensors: it takes the time that a cost model says, and makes reproducible tokens.

Used where only scheduling, caching and events matter. Its "KV" of a page is a digest chained from the page
before, read from the pool and not from the request, so that serving another prefix's page changes the output
here as it would in a model.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b

import msgspec

from engine_shim.engine.cache.token_bytes import TOKEN_BYTES
from engine_shim.engine.forward.base import Draw, ForwardRow
from engine_shim.engine.spec import EngineSpec


class RowSize(msgspec.Struct, frozen=True):
    """As much of a row as its time depends on."""

    new_tokens: int
    #: Position of the first of them.
    start_token: int
    #: Whether a token is sampled after them.
    samples: bool

    @property
    def is_decoding(self) -> bool:
        """Rows of one sampled token are decoding."""
        return self.new_tokens == 1 and self.samples


class CostModel(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds that a step takes; prefill of u tokens up to length L costs c_lin*u + c_att*u*(L - u/2)."""

    #: c_lin, seconds per token.
    prefill_token_s: float = 1 / 20_000
    #: c_att, seconds per pair of a token and one before it.
    prefill_pair_s: float = 0.0
    #: A step with at least one decoding row, seconds.
    decode_step_s: float = 0.01
    #: Each decoding row adds this, seconds.
    decode_row_s: float = 0.0
    #: Each token of context of a decoding row adds this, seconds.
    decode_context_token_s: float = 0.0
    #: Everything is multiplied by it; 0 does not sleep.
    time_scale: float = 1.0

    def step_s(self, rows: Iterable[RowSize]) -> float:
        """Seconds for these rows together."""
        prefill_s = decode_s = 0.0
        decodes = False
        for row in rows:
            if row.is_decoding:
                decodes = True
                decode_s += self.decode_row_s + self.decode_context_token_s * row.start_token
            else:
                pairs = row.new_tokens * (row.start_token + row.new_tokens / 2)
                prefill_s += self.prefill_token_s * row.new_tokens + self.prefill_pair_s * pairs
        if decodes:
            decode_s += self.decode_step_s
        return (prefill_s + decode_s) * self.time_scale


class TimedForward:
    """Sleeps, and answers with tokens that are a function of the whole sequence."""

    def __init__(
        self,
        cost_model: CostModel,
        *,
        spec: EngineSpec,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._cost_model = cost_model
        self._sleep = sleep
        self._page_bytes = spec.page_tokens * TOKEN_BYTES
        #: Digest before each page, and the packed tokens written to it: what stands for the KV.
        self._page_state: list[tuple[bytes, bytes]] = [(b"", b"")] * spec.pool_pages
        stops = frozenset(spec.eos_token_ids)
        #: Tokens to answer with; never one that would end the output.
        self._answers = [token_id for token_id in range(spec.vocabulary_tokens) if token_id not in stops]
        if not self._answers:
            raise ValueError("every token of the vocabulary is an end-of-sequence token")

    def run(self, rows: Sequence[ForwardRow]) -> list[int | None]:
        """Write the rows' pages, sleep, and answer; one token for each row with a draw."""
        duration_s = self._cost_model.step_s(map(measure_row, rows))
        states = [self._write(row) for row in rows]
        if duration_s > 0:
            self._sleep(duration_s)
        return [
            None if row.draw is None else self._answer(state, row.draw) for row, state in zip(rows, states, strict=True)
        ]

    def _write(self, row: ForwardRow) -> bytes:
        """Write the row's tokens page by page; returns a digest of the sequence up to its last token."""
        page_index, filled = divmod(row.start_token * TOKEN_BYTES, self._page_bytes)
        if filled:
            prior, written = self._page_state[row.pages[page_index]]
            content = written[:filled] + row.token_bytes
        else:
            prior = self._read_end(row.pages[page_index - 1]) if page_index else b""
            content = row.token_bytes
        for start in range(0, len(content), self._page_bytes):
            part = content[start : start + self._page_bytes]
            self._page_state[row.pages[page_index]] = prior, part
            prior = _chain(prior, part)
            page_index += 1
        return prior

    def _read_end(self, page: int) -> bytes:
        return _chain(*self._page_state[page])

    def _answer(self, state: bytes, draw: Draw) -> int:
        """The token after `state`; above temperature 0 the draw has its part in it."""
        chance = b"" if draw.temperature == 0 else repr(draw.uniform).encode()
        number = int.from_bytes(blake2b(state + chance, digest_size=8).digest(), "little")
        return self._answers[number % len(self._answers)]


def measure_row(row: ForwardRow) -> RowSize:
    """The size of a row."""
    return RowSize(len(row.token_bytes) // TOKEN_BYTES, row.start_token, row.draw is not None)


def _chain(prior: bytes, token_bytes: bytes) -> bytes:
    return blake2b(prior + token_bytes, digest_size=16).digest()
