"""The forms in which clients ask for output, each by its path. Names only."""

from enum import StrEnum


class Api(StrEnum):
    """A path that is placed and charged."""

    CHAT = "/v1/chat/completions"
    COMPLETION = "/v1/completions"
    RESPONSE = "/v1/responses"


#: Member of a body that is its prompt.
PROMPT_FIELDS = {Api.CHAT: "messages", Api.COMPLETION: "prompt", Api.RESPONSE: "input"}
