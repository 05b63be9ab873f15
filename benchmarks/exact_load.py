"""Traffic for `benchmarks.exact`: prompts that nobody sent before, chats that grow, turns of agents with long prompts.

Every connection has prompts of its own and sends the next one when the last is answered. Text is seeded and looks like
code and English; a prompt's beginning is its own, so that nothing but what is meant to be shared is.
"""

import asyncio
import json
from collections.abc import Callable, Iterator
from functools import cache, partial
from random import Random
from typing import Any

import httptools

from benchmarks.processes import read_cpu_s
from benchmarks.proxy_load import CHAT, MODEL
from benchmarks.run_facts import SEED
from benchmarks.talk import CALL_TOKENS, JOINTS, WORDS, Talk
from router.prompt.tokenizer import TextEncoder

_TEXT_WORDS = 200_000
#: System prompts that chats begin with, chats of one connection, and the most turns of one.
_SYSTEMS, _CHATS, _MOST_TURNS = 8, 8, 14
_SYSTEM_CHARS, _QUESTION_CHARS, _ANSWER_CHARS = 8_192, 1_024, 512
#: What one turn of an agent adds.
_TURN_TOKENS = 800


@cache
def make_text() -> str:
    """A long text that is the same each time."""
    rng = Random(SEED)
    return "".join(rng.choice(WORDS) + rng.choice(JOINTS) for _ in range(_TEXT_WORDS))


class Texts:
    """Stretches of one long text."""

    def __init__(self, seed: int) -> None:
        self._rng = Random(seed)

    def draw(self, chars: int) -> str:
        """A stretch."""
        text = make_text()
        start = self._rng.randrange(len(text) - chars)
        return text[start : start + chars]


def iter_fresh(seed: int, chars: int) -> Iterator[bytes]:
    """Prompts of one message that share nothing."""
    texts = Texts(seed)
    number = 0
    while True:
        number += 1
        yield frame([encode({"role": "user", "content": f"{seed}.{number} {texts.draw(chars)}"})])


def iter_chats(seed: int) -> Iterator[bytes]:
    """Turns of chats that grow by a question and an answer each, drawn from several at random."""
    rng, texts = Random(seed), Texts(seed)
    systems = [Texts(-place).draw(_SYSTEM_CHARS) for place in range(1, _SYSTEMS + 1)]

    def begin() -> tuple[list[bytes], int]:
        return [encode({"role": "system", "content": rng.choice(systems)})], 2 * rng.randint(2, _MOST_TURNS)

    chats = [begin() for _ in range(_CHATS)]
    while True:
        place = rng.randrange(_CHATS)
        messages, most = chats[place]
        if len(messages) > 1:
            messages.append(encode({"role": "assistant", "content": texts.draw(_ANSWER_CHARS)}))
        messages.append(encode({"role": "user", "content": texts.draw(_QUESTION_CHARS)}))
        yield frame(messages)
        if len(messages) >= most:
            chats[place] = begin()


def iter_agent(seed: int, tokens: int, tokenizer: TextEncoder) -> Iterator[bytes]:
    """Turns of one agent whose prompt has about so many tokens, and one call and its result more with each."""
    talk = Talk(tokenizer, seed)
    talk.grow(tokens)
    tools, messages = encode(talk.tools), [encode(message) for message in talk.messages]
    while True:
        yield frame(messages, b',"tools":' + tools)
        messages += [encode(message) for message in talk.step(_TURN_TOKENS - CALL_TOKENS)]


def encode(value: Any) -> bytes:
    """JSON as clients write it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def frame(messages: list[bytes], more: bytes = b"") -> bytes:
    """A chat request of encoded messages."""
    body = b'{"model":"%b","max_tokens":64,"messages":[%b]%b}' % (MODEL.encode(), b",".join(messages), more)
    head = b"POST %b HTTP/1.1\r\nhost: router\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % (CHAT.encode(), len(body)) + body


class Asker(asyncio.Protocol):
    """One connection and its prompts."""

    def __init__(self, requests: Iterator[bytes]) -> None:
        self._requests = requests
        self._left = self.failed = self.sent_bytes = 0
        self._done: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""
        self._transport: Any = transport

    def connection_lost(self, error: Exception | None) -> None:
        """See asyncio."""
        if self._done is not None and not self._done.done():
            self._done.set_exception(error or ConnectionError("the router closed a connection"))

    async def ask(self, count: int) -> None:
        """Send so many requests, one after the other."""
        self._left, self._done = count, asyncio.get_running_loop().create_future()
        self._send()
        await self._done

    def close(self) -> None:
        """Leave."""
        self._transport.close()

    def _send(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        request = next(self._requests)
        self.sent_bytes += len(request)
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        """See httptools."""
        self.failed += self._parser.get_status_code() != 200
        self._left -= 1
        if self._left:
            # Not from inside the parser's callback: a new request needs a new parser.
            asyncio.get_running_loop().call_soon(self._send)
        elif self._done is not None:
            self._done.set_result(None)


def _same(asker: Asker) -> Asker:
    return asker


async def run_asking(
    url: str, prompts: list[Iterator[bytes]], pid: int, *, warm: int, count: int, read_share_s: Callable[[], float]
) -> dict[str, float]:
    """CPU of process `pid` for each of `count` requests a connection, after `warm` of them.

    Args:
        url: The router.
        prompts: Those of each connection.
        pid: The router's process.
        warm: Requests of each connection that are not counted.
        count: Those that are.
        read_share_s: Part of its CPU time so far that went to templates and the tokenizer.

    Raises:
        RuntimeError: A request failed.
    """
    loop = asyncio.get_running_loop()
    host, _, port = url.removeprefix("http://").partition(":")
    askers = [Asker(each) for each in prompts]
    for asker in askers:
        await loop.create_connection(partial(_same, asker), host, int(port))
    await asyncio.gather(*(asker.ask(warm) for asker in askers))
    before_s, share_before_s, sent_bytes = read_cpu_s(pid), read_share_s(), sum(asker.sent_bytes for asker in askers)
    await asyncio.gather(*(asker.ask(count) for asker in askers))
    cpu_s, share_s = read_cpu_s(pid) - before_s, read_share_s() - share_before_s
    for asker in askers:
        asker.close()
    if failed := sum(asker.failed for asker in askers):
        raise RuntimeError(f"{failed} requests failed: the figure would mean nothing")
    requests = count * len(askers)
    return {
        "cpu_us": 1e6 * cpu_s / requests,
        "share_us": 1e6 * share_s / requests,
        "request_bytes": (sum(asker.sent_bytes for asker in askers) - sent_bytes) / requests,
    }
