"""Limits on what one HTTP request may ask for, and the defaults where it does not say."""

import msgspec

MAX_CHOICES = 64
MAX_PROMPTS = 256
MAX_STOPS = 32
MAX_STOP_CHARS = 1_024
MAX_NAME_CHARS = 256


class ServingLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line may change."""

    #: Largest request body.
    body_bytes: int = 32 << 20
    #: Output tokens of a chat answer that names no limit; a model of random weights does not end by itself.
    default_chat_tokens: int = 256
    #: Output tokens of a text completion that names no limit, as in the OpenAI API.
    default_completion_tokens: int = 16
    #: Output tokens of `/generate` without `max_new_tokens`, as in SGLang.
    default_generate_tokens: int = 128
    #: Texts longer than this are rendered and tokenized off the event loop.
    inline_chars: int = 4_096
