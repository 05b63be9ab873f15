"""What a step tells about a request: its next token, its end, and what was reused.

Made by admission, handed to the server by the engine. Values only.
"""

from typing import Literal

import msgspec

FinishReason = Literal["stop", "length", "abort"]


class TokenOutput(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One new token of a request, or its end, or both."""

    request_id: str
    #: None only where an abort ended the request. A stop token is told, too, and counted.
    token_id: int | None
    #: None while the request goes on. Exactly one output of a request has a reason.
    finish_reason: FinishReason | None
    prompt_tokens: int
    #: Prompt tokens whose KV was found in the cache when the request was first admitted.
    cached_tokens: int
    #: Tokens generated so far, this one included.
    output_tokens: int
