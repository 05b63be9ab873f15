"""Bodies of the generating endpoints as clients send them. Unknown fields are ignored, known ones are typed."""

from typing import Any

import msgspec


class StreamOptions(msgspec.Struct):
    """`stream_options` of the OpenAI API."""

    include_usage: bool | None = None
    #: Usage so far in every chunk (vLLM).
    continuous_usage_stats: bool | None = None


class GenerationFields(msgspec.Struct, kw_only=True):
    """What chat and text completions have in common."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    ignore_eos: bool | None = None
    return_token_ids: bool | None = None
    cache_salt: str | None = None
    session_id: str | None = None
    routed_dp_rank: int | None = None
    #: Older name of `routed_dp_rank`.
    data_parallel_rank: int | None = None
    #: An envelope of hints; advice, so a malformed one is not an error.
    kv_hints: msgspec.Raw = msgspec.Raw()


class ChatRequest(GenerationFields, kw_only=True):
    """`POST /v1/chat/completions`."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    max_completion_tokens: int | None = None
    add_generation_prompt: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    logprobs: bool | None = None


class MessagesRequest(GenerationFields, kw_only=True):
    """`POST /v1/messages` and its count of tokens, which has no `max_tokens`."""

    messages: list[dict[str, Any]]
    system: str | list[dict[str, Any]] | None = None
    stop_sequences: list[str] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class ResponseRequest(GenerationFields, kw_only=True):
    """`POST /v1/responses`."""

    #: A text, or a list of items.
    input: str | list[dict[str, Any]]
    instructions: str | None = None
    max_output_tokens: int | None = None
    previous_response_id: str | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    #: Whether the answer can be read and gone on from later.
    store: bool | None = None
    background: bool | None = None


class EmbeddingRequest(msgspec.Struct, kw_only=True):
    """`POST /v1/embeddings`."""

    #: A text, ids, or a list of either.
    input: str | list[Any]
    model: str | None = None
    #: `float` or `base64`.
    encoding_format: str | None = None
    dimensions: int | None = None


class CompletionRequest(GenerationFields, kw_only=True):
    """`POST /v1/completions`."""

    #: A text, ids, or a list of either.
    prompt: str | list[Any]
    echo: bool | None = None
    best_of: int | None = None
    logprobs: int | None = None
    suffix: str | None = None


class SamplingFields(msgspec.Struct, kw_only=True):
    """`sampling_params` of SGLang's `/generate`."""

    max_new_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    sampling_seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    n: int | None = None


class GenerateRequest(msgspec.Struct, kw_only=True):
    """`POST /generate`."""

    text: str | list[Any] | None = None
    #: Ids of one prompt or of several.
    input_ids: list[Any] | None = None
    sampling_params: SamplingFields | None = None
    stream: bool | None = None
    rid: str | None = None
    cache_salt: str | None = None
    session_id: str | None = None
    routed_dp_rank: int | None = None
    data_parallel_rank: int | None = None


class TokenizeRequest(msgspec.Struct, kw_only=True):
    """`POST /tokenize`: messages or a prompt."""

    model: str | None = None
    messages: list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    prompt: str | None = None
    add_generation_prompt: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    return_token_strs: bool | None = None


class DetokenizeRequest(msgspec.Struct, kw_only=True):
    """`POST /detokenize`."""

    tokens: list[int]
    model: str | None = None


class AbortRequest(msgspec.Struct, kw_only=True):
    """`POST /abort_request`."""

    rid: str | None = None
    abort_all: bool | None = None
