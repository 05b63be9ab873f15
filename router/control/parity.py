"""Whether router and engine make the same ids of a prompt: asked once, when a worker is registered.

A worker whose ids differ earns no cache credit: with other ids every prediction would be wrong. The first worker
that answers also settles how tool call arguments reach its template, which engines do in two ways.
"""

from typing import Any, Protocol

from router.prompt import Prompter, PromptInput, Unrenderable
from router.prompt.template import ArgumentForm

_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "read_file",
            "description": "Read a file — text only",
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
        },
    }
]
_CALL = {"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": '{"path":"a/é.py", "n": 1}'}}
#: Messages and tools in the shapes that agents send; each must come out the same.
BATTERY: tuple[tuple[list[dict[str, Any]], list[dict[str, Any]] | None], ...] = (
    ([{"role": "user", "content": "Hello  there,\n\n  世界 🐦 'tis 12345!"}], None),
    ([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "<|im_end|> spelled out\t"}], None),
    ([{"role": "system", "content": "Use tools."}, {"role": "user", "content": "Read a"}], _TOOLS),
    (
        [
            {"role": "user", "content": "Read a"},
            {"role": "assistant", "content": "", "tool_calls": [_CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": "x = 1\n"},
        ],
        _TOOLS,
    ),
)


class TokenizeClient(Protocol):
    """An engine's `/tokenize`."""

    async def tokenize(self, request: dict[str, Any]) -> list[int] | None:
        """The engine's ids, None where it does not say."""


async def probe_parity(client: TokenizeClient, prompter: Prompter, model: str) -> str:
    """`passed`, `failed`, or `unknown` where the engine does not tokenize messages."""
    verdict = "unknown"
    for messages, tools in BATTERY:
        request: dict[str, Any] = {"model": model, "messages": messages}
        if tools is not None:
            request["tools"] = tools
        ids = await client.tokenize(request)
        if ids is None:
            continue
        if not _settle(prompter, PromptInput(messages=messages, tools=tools), ids):
            return "failed"
        verdict = "passed"
    return verdict


def _settle(prompter: Prompter, request: PromptInput, ids: list[int]) -> bool:
    """Whether the prompter gives these ids, in the form it uses or in the other, which it then keeps."""
    kept = prompter.argument_form
    for form in (kept, *(form for form in ArgumentForm if form is not kept)):
        prompter.argument_form = form
        prompt = prompter.prepare(request)
        if not isinstance(prompt, Unrenderable) and list(prompt.token_ids) == ids:
            return True
    prompter.argument_form = kept
    return False
