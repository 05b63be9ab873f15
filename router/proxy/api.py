"""The forms in which clients ask for output, each by its paths, and what is particular to each. No code."""

from enum import StrEnum

import msgspec


class Api(StrEnum):
    """A form of request that is placed and charged; its value is the path it is known by."""

    CHAT = "/v1/chat/completions"
    COMPLETION = "/v1/completions"
    RESPONSE = "/v1/responses"
    #: Anthropic's.
    MESSAGES = "/v1/messages"
    #: SGLang's own.
    GENERATE = "/generate"
    EMBEDDING = "/v1/embeddings"
    RERANK = "/v1/rerank"
    SCORE = "/v1/score"
    #: Hidden states as they are (vLLM `/pooling`, SGLang `/encode`).
    POOLING = "/pooling"
    CLASSIFICATION = "/classify"


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What is particular to one form."""

    #: Members of which at least one makes a prompt; the first is the usual one.
    prompt_fields: tuple[str, ...]
    #: Members that limit the length of an answer.
    output_fields: tuple[str, ...] = ()
    #: Member that holds the sampling members; None where they stand in the body itself.
    sampling_field: str | None = None
    #: Whether the body has to name a model; else only a fleet of several needs it.
    needs_model: bool = True
    #: Whether engines know the member that names it; else it ends here.
    forwards_model: bool = True
    #: Whether a stream's usage has to be asked for with `stream_options`.
    asks_for_usage: bool = False
    #: Whether its answer is text of the model, token by token.
    generates: bool = True
    #: What an error in a stream stands for that tells neither code nor type.
    untold_status: int = 500


SHAPES: dict[Api, Shape] = {
    Api.CHAT: Shape(
        prompt_fields=("messages",), output_fields=("max_completion_tokens", "max_tokens"), asks_for_usage=True
    ),
    Api.COMPLETION: Shape(
        prompt_fields=("prompt", "prompt_embeds"),
        output_fields=("max_completion_tokens", "max_tokens"),
        asks_for_usage=True,
    ),
    Api.RESPONSE: Shape(prompt_fields=("input",), output_fields=("max_output_tokens",)),
    Api.MESSAGES: Shape(prompt_fields=("messages",), output_fields=("max_tokens",)),
    Api.GENERATE: Shape(
        prompt_fields=("text", "input_ids", "input_embeds"),
        output_fields=("max_new_tokens",),
        sampling_field="sampling_params",
        needs_model=False,
        forwards_model=False,
        untold_status=400,
    ),
    Api.EMBEDDING: Shape(prompt_fields=("input", "messages"), generates=False),
    Api.RERANK: Shape(prompt_fields=("query",), generates=False),
    Api.SCORE: Shape(prompt_fields=("text_1", "queries", "query", "data_1"), generates=False),
    Api.POOLING: Shape(prompt_fields=("input", "messages", "text", "input_ids"), needs_model=False, generates=False),
    Api.CLASSIFICATION: Shape(
        prompt_fields=("input", "messages", "text", "input_ids"), needs_model=False, generates=False
    ),
}

#: Every path that one of them is asked by.
PATHS: dict[str, Api] = {
    **{api.value: api for api in Api},
    "/rerank": Api.RERANK,
    "/v2/rerank": Api.RERANK,
    "/score": Api.SCORE,
    "/encode": Api.POOLING,
    "/v1/classify": Api.CLASSIFICATION,
}
