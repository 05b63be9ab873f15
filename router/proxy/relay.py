"""Carries one worker's answer to one client: streamed in the pieces that arrive, or whole.

Nothing reaches the client before the answer has proved to be one, so that a worker which answers garbage, or dies
at once, becomes a proper error. What was sent already is never sent again and never ended as if complete.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

import msgspec

from router.errors import UpstreamClosedError
from router.fleet.breaker import Verdict
from router.placement.stimuli import Outcome
from router.proxy.client import Client
from router.proxy.headers import find_header, response_headers
from router.proxy.inflate import CODINGS, InflateProblem, inflate
from router.proxy.interrupt import ExchangeWatch
from router.proxy.kept import is_id
from router.proxy.ports import ProxyLimits
from router.proxy.sse import StreamScanner, Usage, looks_like_stream
from router.proxy.told_error import SERVER_ERROR
from router.proxy.upstream import Exchange, GarbledAnswerError, read_whole
from router.proxy.verdicts import judge_status
from router.proxy.whole_answer import NOTHING_TOLD, AnswerSummary, read_answer

#: Output chunks between two words to placement about a request's progress.
PROGRESS_CHUNKS = 32
#: Longest decompressed answer that is looked into for its usage.
_MAX_INFLATED_BYTES = 64 << 20
#: What the line of its coding says where there is none.
_PLAIN = frozenset({None, b"identity"})


class Relayed(msgspec.Struct, frozen=True):
    """How an answer went."""

    #: Its status; that of an error within it where the error is none of the engine's.
    status: int
    outcome: Outcome
    usage: Usage | None = None


class Expected(msgspec.Struct, frozen=True):
    """What an answer is looked through for."""

    #: Whether a stream was asked for.
    is_stream: bool = False
    #: Whether the router asked for the chunk of usage, which the client is not to see.
    drops_usage_chunk: bool = False
    #: Answers that must end, over all prompts.
    choices: int = 1
    #: Answers to each prompt.
    choices_of_prompt: int = 1
    #: What an error in a stream stands for that tells neither code nor type.
    untold_status: int = SERVER_ERROR


class Witness(Protocol):
    """Is told of an answer's progress."""

    def see_first_byte(self) -> None:
        """The answer began."""

    def see_whole_answer(self) -> None:
        """All of an answer came that is not streamed."""

    def see_first_output(self) -> None:
        """The model's first output came."""

    def see_progress(self, output_tokens: int) -> None:
        """Output so far."""

    def see_full_client(self) -> None:
        """The client has to take something before more of a stream is read."""

    def see_ready_client(self) -> None:
        """It did."""

    def keep_response(self, response_id: str) -> None:
        """The engine named its answer."""


class Relay:
    """One answer on its way."""

    def __init__(
        self,
        exchange: Exchange,
        client: Client,
        witness: Witness,
        watch: ExchangeWatch,
        *,
        limits: ProxyLimits,
        own_headers: Mapping[bytes, bytes],
    ) -> None:
        self._exchange = exchange
        self._client = client
        self._witness = witness
        self._watch = watch
        self._limits = limits
        self._own_headers = own_headers
        #: Whether the client got the head of the answer: from then on an error is an event of the stream.
        self.has_started = False
        #: Whether it is carried as an event stream.
        self.is_stream = False

    def carry(self, asked: Expected) -> Coroutine[Any, Any, Relayed]:
        """Relay the answer to its end.

        Raises:
            UpstreamClosedError: The worker's answer ended too early.
            GarbledAnswerError: It is none.
        """
        if asked.is_stream and self._is_stream():
            return self._carry_stream(self._make_scanner(asked))
        return self._carry_whole(asked)

    async def carry_as_it_is(self, see: Callable[[int, bytes], None], *, is_opaque: bool = False) -> Relayed:
        """Relay an answer that need be no JSON object.

        Args:
            see: Is shown status and body of a whole answer before the client is.
            is_opaque: A stream of it is of a form that is not known: its end is believed.

        Raises:
            UpstreamClosedError: The worker's answer ended too early.
            GarbledAnswerError: It is none.
        """
        if self._is_stream():
            return await self._carry_stream(self._make_scanner(Expected(), is_opaque=is_opaque))
        body = await self._read_answer()
        status = self._exchange.status
        see(status, body)
        await self._send_whole(body)
        return Relayed(status, Outcome.DONE if status < 300 else Outcome.ERROR)

    def _is_stream(self) -> bool:
        content_type = find_header(self._exchange.headers, b"content-type") or b""
        return self._exchange.status == 200 and content_type.startswith(b"text/event-stream")

    def _make_scanner(self, asked: Expected, *, is_opaque: bool = False) -> StreamScanner:
        is_encoded = find_header(self._exchange.headers, b"content-encoding") not in _PLAIN
        return StreamScanner(
            choices=asked.choices,
            choices_of_prompt=asked.choices_of_prompt,
            drop_usage_chunk=asked.drops_usage_chunk,
            is_opaque=is_opaque or is_encoded,
            untold_status=asked.untold_status,
        )

    async def _carry_stream(self, scanner: StreamScanner) -> Relayed:
        piece = await self._exchange.read()
        if not scanner.is_opaque and not looks_like_stream(piece):
            raise GarbledAnswerError("the worker's stream is not an event stream")
        if not piece:
            raise UpstreamClosedError("the worker closed its stream before the first event")
        self._witness.see_first_byte()
        self._watch.limit(self._limits.idle_s)
        headers = response_headers(self._exchange.headers, self._own_headers)
        self.has_started = self.is_stream = True
        self._client.start(self._exchange.status, headers)
        stream = _Stream(scanner, self._client, self._witness, self._watch)
        if stream.take(piece):
            await stream.drain()
        await self._exchange.pour(stream.take, stream.drain, stream.take_chunks if self._client.takes_chunks else None)
        return await self._finish(scanner, stream)

    async def _finish(self, scanner: StreamScanner, stream: "_Stream") -> Relayed:
        rest = scanner.finish()
        if not scanner.is_complete and not scanner.has_error:
            self._client.write(rest)
            raise UpstreamClosedError("the worker ended its stream before the answer was complete")
        self._client.end(rest)
        if self._client.is_full:
            await stream.drain()
        if scanner.has_error:
            return self._judge_error(scanner.error_status, scanner.to_usage())
        return Relayed(self._exchange.status, Outcome.DONE, scanner.to_usage())

    async def _carry_whole(self, asked: Expected) -> Relayed:
        body = await self._read_answer()
        status = self._exchange.status
        answer = NOTHING_TOLD
        if status < 300:
            encoding = find_header(self._exchange.headers, b"content-encoding")
            answer = _check(body if encoding in _PLAIN else await _make_plain(body, encoding), asked)
        if is_id(answer.id):
            self._witness.keep_response(answer.id)
        await self._send_whole(body)
        if answer.error_status is not None:
            return self._judge_error(answer.error_status, answer.usage)
        return Relayed(status, Outcome.DONE if status < 300 else Outcome.ERROR, answer.usage)

    def _judge_error(self, told_status: int, usage: Usage | None) -> Relayed:
        """An answer of a good status that tells an error."""
        is_failure = judge_status(told_status) is Verdict.FAILED
        return Relayed(self._exchange.status if is_failure else told_status, Outcome.ERROR, usage)

    async def _read_answer(self) -> bytes:
        """The body of a whole answer; its status is one that an answer can have."""
        body = await read_whole(
            self._exchange, whose="the worker's", limit_bytes=self._limits.answer_bytes, see=self._see_piece
        )
        status = self._exchange.status
        if not 200 <= status < 600 or 300 <= status < 400:
            raise GarbledAnswerError(f"the worker answered with status {status}")
        return body

    async def _send_whole(self, body: bytes) -> None:
        client, exchange = self._client, self._exchange
        self._witness.see_whole_answer()
        self.has_started = True
        client.answer(exchange.status, response_headers(exchange.headers, self._own_headers), body)
        if client.is_full:
            self._watch.limit(self._limits.idle_s)
            await client.drain()

    def _see_piece(self, bytes_before: int) -> None:
        if bytes_before:
            self._watch.touch()
        else:
            self._watch.limit(self._limits.idle_s)


class _Stream:
    """Shows what passes to those who have to know, and passes it on."""

    def __init__(self, scanner: StreamScanner, client: Client, witness: Witness, watch: ExchangeWatch) -> None:
        self._scanner = scanner
        self._client = client
        self._witness = witness
        self._watch = watch
        self._reported_chunks = 0
        self._has_output = self._is_named = False

    def take(self, piece: bytes) -> bool:
        """One piece; whether to let the client drain before the next."""
        scanner = self._scanner
        forward = scanner.feed(piece)
        if not self._is_named and scanner.response_id is not None:
            self._is_named = True
            self._witness.keep_response(scanner.response_id)
        if not self._has_output and scanner.has_output:
            self._has_output = True
            self._witness.see_first_output()
        self._tell_progress()
        if forward:
            self._client.write(forward)
        return self._client.is_full

    def take_chunks(self, chunks: bytes) -> bool | None:
        """See `upstream.TakeChunks`."""
        if not self._scanner.feed_chunks(chunks):
            return None
        self._tell_progress()
        self._client.write_chunks(chunks)
        return self._client.is_full

    def _tell_progress(self) -> None:
        output_chunks = self._scanner.output_chunks
        if output_chunks - self._reported_chunks >= PROGRESS_CHUNKS:
            self._reported_chunks = output_chunks
            self._witness.see_progress(output_chunks)
        self._watch.touch()

    async def drain(self) -> None:
        """Let the client take what there is. The worker was not read from meanwhile: its silence begins now."""
        self._witness.see_full_client()
        await self._client.drain()
        self._witness.see_ready_client()
        self._watch.touch()


def _check(body: bytes, asked: Expected) -> AnswerSummary:
    """Usage and name of a good answer; one that is no JSON object is none."""
    answer = read_answer(body, choices_of_prompt=asked.choices_of_prompt)
    if answer is None:
        raise GarbledAnswerError("the worker's answer is not a JSON object")
    return answer


async def _make_plain(body: bytes, encoding: bytes | None) -> bytes:
    """A compressed answer as it is; of one in a coding that is not known nothing is said.

    A few kilobytes can become as many as are looked into, which takes longer than others should wait.
    """
    return await asyncio.to_thread(_inflate, body) if encoding in CODINGS else b"{}"


def _inflate(body: bytes) -> bytes:
    """A compressed answer as it is.

    Raises:
        GarbledAnswerError: It is none, is cut off, or grows beyond what is looked into.
    """
    plain = inflate(body, _MAX_INFLATED_BYTES)
    if isinstance(plain, InflateProblem):
        raise GarbledAnswerError(f"the worker's compressed answer is {plain.value.replace('_', ' ')}")
    return plain
