"""The `limits:`, `bounds:` and `timeouts:` of the configuration: what is kept, asked for, and waited for."""

from router.config.model import ConfigModel, Count, Seconds, SizeBytes


class LimitsConfig(ConfigModel):
    """Bounds on what clients may ask for and on what is kept."""

    #: Longest request body.
    body_bytes: SizeBytes = 64 << 20
    #: Decisions kept for explanation.
    decisions: Count = 4_096
    #: Streams that can be open at a time; each needs two open files, which the system must allow.
    streams: Count = 8_000


class BoundsConfig(ConfigModel):
    """Largest values in one request, by what its engine would do with them."""

    #: Answers to one prompt (`n`, `best_of`).
    choices: Count = 128
    #: Prompts, documents or items in one body.
    prompts: Count = 2_048
    #: Answers over all prompts of a body.
    answers: Count = 4_096
    #: Log probabilities of one token.
    logprobs: Count = 128
    #: Tokens of one answer.
    output_tokens: Count = 100_000_000


class TimeoutsConfig(ConfigModel):
    """How long a worker may take."""

    #: To accept a connection.
    connect_s: Seconds = 5.0
    #: To the first byte of the answer, queueing in the engine and prefill included, and of one that is not streamed all
    #: of its generation.
    first_byte_s: Seconds = 600.0
    #: Between two pieces of an answer, not counting the time in which its client has no room for more. So long a client
    #: may take nothing at all, too, and 65 s at most.
    idle_s: Seconds = 120.0
    #: From the whole request to the last byte of its answer, however it dribbles.
    request_s: Seconds = 3_600.0
    #: For a prefill rank to be done with the prompt, its queue included. Only for pairs.
    prefill_s: Seconds = 300.0
    #: From there to the decode rank's first piece of a stream, the transfer included. Only for pairs; an answer that is
    #: not streamed is bounded by `first_byte_s` alone.
    handoff_s: Seconds = 30.0
