"""Carries one worker's answer to one client: streamed in the pieces that arrive, or whole.

Nothing reaches the client before the answer has proved to be one, so that a worker which answers garbage, or dies
at once, becomes a proper error. What was sent already is never sent again and never ended as if complete.
"""

import zlib
from collections.abc import Mapping
from typing import Any

import msgspec

from router.errors import UpstreamClosedError
from router.placement.stimuli import Outcome
from router.proxy import respond
from router.proxy.attempt import Attempt
from router.proxy.headers import find_header, response_headers
from router.proxy.interrupt import ExchangeWatch
from router.proxy.ports import ProxyLimits
from router.proxy.respond import Send
from router.proxy.sse import StreamScanner, Usage, looks_like_stream, read_usage
from router.proxy.upstream import Exchange, GarbledAnswerError

#: Output chunks between two words to placement about a request's progress.
PROGRESS_CHUNKS = 32
#: Longest decompressed answer that is looked into for its usage.
_MAX_INFLATED_BYTES = 64 << 20


class Relayed(msgspec.Struct, frozen=True):
    """How an answer went."""

    status: int
    outcome: Outcome
    usage: Usage | None = None


class Relay:
    """One answer on its way."""

    def __init__(
        self,
        exchange: Exchange,
        send: Send,
        attempt: Attempt,
        watch: ExchangeWatch,
        *,
        limits: ProxyLimits,
        own_headers: Mapping[bytes, bytes],
    ) -> None:
        self._exchange = exchange
        self._send = send
        self._attempt = attempt
        self._watch = watch
        self._limits = limits
        self._own_headers = own_headers
        #: Whether the client got the head of the answer: from then on an error is an event of the stream.
        self.has_started = False
        #: Whether it is carried as an event stream.
        self.is_stream = False

    async def carry(self, *, wants_stream: bool, drop_usage_chunk: bool, choices: int) -> Relayed:
        """Relay the answer to its end.

        Raises:
            UpstreamClosedError: The worker's answer ended too early.
            GarbledAnswerError: It is none.
        """
        content_type = find_header(self._exchange.headers, b"content-type") or b""
        if wants_stream and self._exchange.status == 200 and content_type.startswith(b"text/event-stream"):
            is_encoded = find_header(self._exchange.headers, b"content-encoding") not in {None, b"identity"}
            scanner = StreamScanner(choices=choices, drop_usage_chunk=drop_usage_chunk, is_opaque=is_encoded)
            return await self._carry_stream(scanner)
        return await self._carry_whole()

    async def _carry_stream(self, scanner: StreamScanner) -> Relayed:
        piece = await self._exchange.read()
        if not scanner.is_opaque and not looks_like_stream(piece):
            raise GarbledAnswerError("the worker's stream is not an event stream")
        if not piece:
            raise UpstreamClosedError("the worker closed its stream before the first event")
        self._attempt.see_first_byte()
        self._watch.limit(self._limits.idle_s)
        await self._start()
        reported_chunks = 0
        while piece:
            had_output = scanner.has_output
            forward = scanner.feed(piece)
            if scanner.has_output and not had_output:
                self._attempt.see_first_output()
            if scanner.output_chunks - reported_chunks >= PROGRESS_CHUNKS:
                reported_chunks = scanner.output_chunks
                self._attempt.see_progress(reported_chunks)
            if forward:
                await respond.send_piece(self._send, forward)
            piece = await self._exchange.read()
            self._watch.touch()
        return await self._finish(scanner)

    async def _start(self) -> None:
        headers = response_headers(self._exchange.headers, self._own_headers)
        self.has_started = self.is_stream = True
        await respond.send_head(self._send, self._exchange.status, headers)

    async def _finish(self, scanner: StreamScanner) -> Relayed:
        rest = scanner.finish()
        if not scanner.is_complete and not scanner.has_error:
            if rest:
                await respond.send_piece(self._send, rest)
            raise UpstreamClosedError("the worker ended its stream before the answer was complete")
        await respond.send_end(self._send, rest)
        outcome = Outcome.ERROR if scanner.has_error else Outcome.DONE
        return Relayed(self._exchange.status, outcome, scanner.to_usage())

    async def _carry_whole(self) -> Relayed:
        body = await self._read_whole()
        status = self._exchange.status
        if not 200 <= status < 600 or 300 <= status < 400:
            raise GarbledAnswerError(f"the worker answered with status {status}")
        usage = self._check(body) if status < 300 else None
        self._attempt.see_first_byte()
        self.has_started = True
        headers = response_headers(self._exchange.headers, self._own_headers)
        await respond.send_whole(self._send, status, headers, body)
        return Relayed(status, Outcome.DONE if status < 300 else Outcome.ERROR, usage)

    async def _read_whole(self) -> bytes:
        pieces: list[bytes] = []
        size_bytes = 0
        while piece := await self._exchange.read():
            if not pieces:
                self._watch.limit(self._limits.idle_s)
            self._watch.touch()
            pieces.append(piece)
            size_bytes += len(piece)
            if size_bytes > self._limits.answer_bytes:
                raise GarbledAnswerError(f"the worker's answer is longer than {self._limits.answer_bytes} bytes")
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _check(self, body: bytes) -> Usage | None:
        """The usage of a good answer; one that is no JSON object is none."""
        encoding = find_header(self._exchange.headers, b"content-encoding")
        if encoding not in {None, b"identity"}:
            body = inflate(body, _MAX_INFLATED_BYTES) if encoding in {b"gzip", b"deflate"} else b"{}"
        try:
            return read_usage(_ANSWER.decode(body).usage)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise GarbledAnswerError("the worker's answer is not a JSON object") from error


class _Answer(msgspec.Struct):
    usage: Any = None


_ANSWER = msgspec.json.Decoder(_Answer)


def inflate(data: bytes, limit_bytes: int) -> bytes:
    """A gzip or zlib body decompressed.

    Raises:
        GarbledAnswerError: It is neither, is cut off, or grows beyond `limit_bytes`.
    """
    stream = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
    try:
        text = stream.decompress(data, limit_bytes)
    except zlib.error as error:
        raise GarbledAnswerError("the worker's answer cannot be decompressed") from error
    if not stream.eof:
        raise GarbledAnswerError("the worker's compressed answer is cut off or too long")
    return text
