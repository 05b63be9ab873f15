"""The engine model of ai-dynamo-runtime 1.6, as measured on it: polynomials of new tokens and of occupancy.

One pass at a time. Its prefill part depends on the new prompt tokens of all requests together and not on what is
cached; its decode part on the context of those that get a token, as a share of the cache and at most all of it,
whatever their number. A block that two of them share counts twice.
"""

from collections.abc import Sequence

from engine_shim.engine.admission.admission import PlannedRow
from simulator.fleet.times import StepTimes

#: Milliseconds of a prefill of n tokens: square, linear and constant coefficient.
PREFILL_MS = (4.209989e-7, 1.518344e-2, 16.50142)
#: Milliseconds of a decode step at share p of the cache: constant, linear and square coefficient.
DECODE_MS = (5.74, 54.01, -25.74)


class DynamoTimes:
    """`speedup_ratio` divides every duration."""

    def __init__(self, *, capacity_tokens: int, speedup_ratio: float) -> None:
        self._capacity_tokens = capacity_tokens
        self._scale_s = 1e-3 / speedup_ratio

    def measure(self, rows: Sequence[PlannedRow]) -> StepTimes:
        """See `EngineTimes`. A prompt's last chunk brings the first token without a decode part.

        A request that lost its pages gets a decode part with the last chunk of its second prefill, for its first token
        is long out.
        """
        prefilling = end_tokens = begin_tokens = decoding = context_tokens = 0
        for row in rows:
            sequence = row.sequence
            computed_tokens, prompt_tokens = sequence.computed_tokens, sequence.prompt_tokens
            if computed_tokens < prompt_tokens:
                prefilling += 1
                end_tokens += min(row.end_token, prompt_tokens)
                begin_tokens += computed_tokens
            if sequence.output_tokens and row.samples:
                decoding += 1
                context_tokens += sequence.total_tokens
        prefill_ms = 0.0
        if prefilling:
            # Means in whole tokens, as the original takes them: up to a token a request is lost.
            new_tokens = prefilling * (end_tokens // prefilling - begin_tokens // prefilling)
            square, linear, constant = PREFILL_MS
            prefill_ms = square * new_tokens * new_tokens + linear * new_tokens + constant
        if not decoding:
            return StepTimes(self._scale_s * prefill_ms)
        constant, linear, square = DECODE_MS
        missing_tokens = self._capacity_tokens - context_tokens
        if missing_tokens <= 0:
            return StepTimes(self._scale_s * (prefill_ms + constant + linear + square))
        share, added = context_tokens / self._capacity_tokens, decoding / self._capacity_tokens
        decode_ms = constant + linear * share + square * share * share
        return StepTimes(
            self._scale_s * (prefill_ms + decode_ms),
            self._scale_s * (linear * added + 2 * square * share * added),
            self._scale_s * square * added * added,
            steps=missing_tokens // decoding + 1,
        )
