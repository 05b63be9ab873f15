"""A seeded conversation of a coding agent: tools, then calls and results, its length in tokens roughly known."""

import json
from random import Random
from typing import Any

from router.prompt.tokenizer import TextEncoder

RESULT_TOKENS = 1_200
#: Tokens that a call adds to its result.
CALL_TOKENS = 60
WORD_TEXT = (
    "the a file test function def return self import class value error line for in if not and or path read write "
    "module result request response index token cache block route session worker state event batch count limit"
)
WORDS = WORD_TEXT.split()
JOINTS = (" ", " ", " ", " ", "_", ".", ", ", "(", ")\n", "\n    ", ': "', '"\n', " = ", " # ")


class Talk:
    """A seeded agent conversation whose length in tokens is roughly known."""

    def __init__(self, tokenizer: TextEncoder, seed: int) -> None:
        self._rng = Random(seed)
        self._tokenizer = tokenizer
        self.tools = [self._tool(number) for number in range(24)]
        self.messages: list[dict[str, Any]] = [
            {"role": "system", "content": self._text(3_000)},
            {"role": "user", "content": self._text(300)},
        ]

    def grow(self, tokens: int) -> None:
        """Add calls and results until the conversation has about that many tokens."""
        held = 3_300 + len(self._tokenizer.encode(json.dumps(self.tools)))
        while held < tokens:
            size = min(RESULT_TOKENS, max(50, tokens - held))
            self.messages += self.step(size)
            held += size + CALL_TOKENS

    def step(self, tokens: int) -> list[dict[str, Any]]:
        """One call and its result."""
        name = f"c{self._rng.getrandbits(32):x}"
        arguments = json.dumps({"path": self._text(8), "line": self._rng.randrange(900)})
        call = {"id": name, "type": "function", "function": {"name": "read_file_0", "arguments": arguments}}
        return [
            {"role": "assistant", "content": self._text(20), "tool_calls": [call]},
            {"role": "tool", "tool_call_id": name, "content": self._text(tokens)},
        ]

    def to_body(self, more: list[dict[str, Any]], *, model: str = "m", stream: bool = True) -> bytes:
        """The request's body as Python clients write it."""
        body = {"model": model, "messages": [*self.messages, *more], "tools": self.tools, "stream": stream}
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()

    def _tool(self, number: int) -> dict[str, Any]:
        properties = {f"field_{place}": {"type": "string", "description": self._text(12)} for place in range(4)}
        function = {
            "name": f"read_file_{number}",
            "description": self._text(60),
            "parameters": {"type": "object", "properties": properties},
        }
        return {"type": "function", "function": function}

    def _text(self, tokens: int) -> str:
        pieces: list[str] = []
        while len(pieces) < 2 * tokens:
            pieces += [self._rng.choice(WORDS), self._rng.choice(JOINTS)]
        text = "".join(pieces)
        return text[: len(text) * tokens // max(1, len(self._tokenizer.encode(text)))]
