"""Clients that stream without pause and judge what they get: whole, a clear error, or cut off and called whole."""

import asyncio
import json
from collections import Counter

import aiohttp

from tests.waiting import PATIENCE_S

OUTPUT_TOKENS = 40
RETRY_S = 0.2


class StreamingClients:
    """So many clients, each with a conversation of its own that starts anew after a few turns."""

    def __init__(self, url, count):
        self.url, self.count = url, count
        #: Verdicts on all answers: `whole`, `error ...` or `lie ...`.
        self.verdicts = Counter()
        self.longest_s = 0.0

    async def run(self, stop):
        """Stream until `stop` is set; every answer that was begun is judged."""
        connector, limit = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=2 * PATIENCE_S)
        async with aiohttp.ClientSession(connector=connector, timeout=limit) as http:
            await asyncio.gather(*(self._talk(http, number, stop) for number in range(self.count)))

    async def _talk(self, http, number, stop):
        turn, clock = 0, asyncio.get_running_loop().time
        while not stop.is_set():
            started_s = clock()
            verdict = await self._ask(http, number, turn)
            self.verdicts[verdict] += 1
            if verdict.startswith("error"):
                # As clients do: 200 that ask again at once would be a storm of their own.
                await asyncio.sleep(RETRY_S)
            self.longest_s = max(self.longest_s, clock() - started_s)
            turn = (turn + 1) % 6

    async def _ask(self, http, number, turn):
        messages = [
            {"role": "user", "content": f"client {number} part {part} " + "words " * 30} for part in range(turn + 1)
        ]
        body = {"model": "dovecote-toy", "messages": messages, "max_tokens": OUTPUT_TOKENS, "ignore_eos": True}
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        headers = {"x-dovecote-session": f"client-{number}"}
        try:
            async with http.post(f"{self.url}/v1/chat/completions", json=body, headers=headers) as response:
                text = await response.text()
                return judge(response.status, text)
        except TimeoutError:
            return "lie: no end, long after every limit of the router"
        except aiohttp.ClientError as error:
            # The router's own connection must not break, whatever its engines do.
            return f"lie: connection to the router: {type(error).__name__}"


def judge(status, text):
    """What an answer is worth to a client that reads it by the book."""
    if status != 200:
        message = json.loads(text)["error"]
        return f"error {status} {message['code']}" if message["message"] else "lie: an error without a word"
    events = [line[6:] for line in text.split("\n") if line.startswith("data: ")]
    pieces = [json.loads(event) for event in events if event != "[DONE]"]
    failed = [piece["error"] for piece in pieces if "error" in piece]
    if failed:
        return f"error event {failed[0]['code']}" if "[DONE]" not in events else "lie: an error and [DONE]"
    chunks = [choice for piece in pieces for choice in piece["choices"]]
    reasons = [choice["finish_reason"] for choice in chunks if choice["finish_reason"]]
    usage = [piece["usage"]["completion_tokens"] for piece in pieces if piece.get("usage")]
    said = sum(bool(choice["delta"].get("content")) for choice in chunks)
    if (reasons, usage, events[-1:]) != (["length"], [OUTPUT_TOKENS], ["[DONE]"]):
        return f"lie: ended with {reasons}, {usage}, {events[-1:]}"
    return "whole" if 0 < said <= OUTPUT_TOKENS else f"lie: {said} pieces of text"
