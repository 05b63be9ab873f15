"""One answer as it grows: engine outputs in, text deltas and usage out. Pure.

Endpoints turn deltas into their own shapes; what ends an answer is decided here alone.
"""

from collections.abc import Iterable, Sequence

import msgspec

from engine_shim.engine.admission.outcome import TokenOutput
from engine_shim.engine.tokenizer.output_text import OutputText


class Delta(msgspec.Struct, frozen=True, kw_only=True):
    """What one output added to one answer."""

    #: Position of the answer among those of its request.
    index: int
    text: str
    token_ids: tuple[int, ...]
    #: None while the answer goes on.
    finish_reason: str | None = None
    #: Stop string or stop token that ended it; None for the model's own end and for other reasons.
    stop_reason: str | int | None = None
    prompt_tokens: int
    cached_tokens: int
    #: Tokens of this answer so far.
    output_tokens: int


class Usage(msgspec.Struct, frozen=True):
    """Token counts of a whole request."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


class Answer:
    """Collects one answer."""

    def __init__(self, index: int, output: OutputText, *, dp_rank: int, prompt_tokens: int, eos_id: int) -> None:
        self.index = index
        self.dp_rank = dp_rank
        self._output = output
        self._eos_id = eos_id
        self._pieces: list[str] = []
        self.token_ids: list[int] = []
        self.prompt_tokens = prompt_tokens
        self.cached_tokens = 0
        #: None while it goes on.
        self.finish_reason: str | None = None
        self.stop_reason: str | int | None = None

    @property
    def text(self) -> str:
        """Everything so far."""
        return "".join(self._pieces)

    def take(self, output: TokenOutput) -> Delta:
        """Add one engine output. Must not be called after the answer has finished."""
        new_ids = () if output.token_id is None else (output.token_id,)
        self.token_ids += new_ids
        if new_ids:
            self.cached_tokens = output.cached_tokens
        text = self._add_text(output)
        self._pieces.append(text)
        return Delta(
            index=self.index,
            text=text,
            token_ids=new_ids,
            finish_reason=self.finish_reason,
            stop_reason=self.stop_reason,
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            output_tokens=len(self.token_ids),
        )

    def _add_text(self, output: TokenOutput) -> str:
        """Text that is safe to send now; notes the end and its reason."""
        self.finish_reason = output.finish_reason
        text = ""
        if output.finish_reason == "stop":  # the stop token itself is no text
            self.stop_reason = None if output.token_id == self._eos_id else output.token_id
        elif output.token_id is not None:
            piece = self._output.push(output.token_id)
            text = piece.text
            if piece.stop is not None:
                self.finish_reason, self.stop_reason = "stop", piece.stop
                return text
        if output.finish_reason is not None:
            rest = self._output.finish()
            text += rest.text
            if rest.stop is not None:
                self.finish_reason, self.stop_reason = "stop", rest.stop
        return text


def sum_usage(answers: Sequence[Answer], choices: int) -> Usage:
    """Counts of a request: each prompt once, as its first answer found it, and every generated token."""
    firsts: Iterable[Answer] = answers[::choices]
    return Usage(
        prompt_tokens=sum(answer.prompt_tokens for answer in firsts),
        completion_tokens=sum(len(answer.token_ids) for answer in answers),
        cached_tokens=sum(answer.cached_tokens for answer in firsts),
    )
