"""Prompts of models that bring `tekken.json`: rendered and tokenized by mistral-common, where it is installed.

There is no chat template; the library's code is the template, the same that engines run. It is imported only when
such a folder is met (extra `mistral`). Nothing is incremental here: every prompt is made anew, long ones in a thread.
"""

from array import array
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from router.prompt.added import Cuts
from router.prompt.conversations import TokenRun
from router.prompt.engine_form import EngineForm
from router.prompt.files import MAX_TOKENIZER_BYTES, identify, read_object
from router.prompt.media import has_media
from router.prompt.panics import as_value_error
from router.prompt.prompter import Prompter
from router.prompt.request import Prompt, PromptInput, Unrenderable
from router.prompt.segments import SegmentCache
from router.prompt.turns import Lookup

FILE_NAME = "tekken.json"


class MistralEncoder:
    """Plain text to ids, without chat."""

    def __init__(self, codec: Any) -> None:
        self._plain = codec.instruct_tokenizer.tokenizer
        self.cuts = Cuts((), normalizes=False)
        self.cache = SegmentCache(0, 0)

    def encode(self, text: str, *, add_special_tokens: bool = False) -> "array[int]":
        """Ids of a text, the token of the start before it where wanted."""
        with as_value_error():
            return array("I", self._plain.encode(text, bos=add_special_tokens, eos=False))


class MistralPrompter(Prompter):
    """A prompter over mistral-common."""

    def __init__(self, codec: Any) -> None:
        super().__init__(MistralEncoder(codec), None)
        self._codec = codec
        self._requests = import_module("mistral_common.protocol.instruct.request").ChatCompletionRequest

    @property
    def can_chat(self) -> bool:
        """Always: the library is the template."""
        return True

    def make_ids(self, request: PromptInput, form: EngineForm) -> "array[int] | Unrenderable":
        """Ids of a chat; there is only one form."""
        del form
        messages = request.read_messages()
        if not all(isinstance(message, Mapping) for message in messages):
            return Unrenderable("shape")
        if any(has_media(message.get("content")) for message in messages):
            return Unrenderable("multimodal")
        return self._encode_chat(messages, request)

    def _prepare_chat(self, request: PromptInput, salt: str | None, lookup: Lookup | None) -> Prompt | Unrenderable:
        del lookup
        if request.template_options or request.add_generation_prompt is False:
            return Unrenderable("opaque_field")
        ids = self.make_ids(request, self.form)
        return ids if isinstance(ids, Unrenderable) else Prompt(run=TokenRun(ids), cache_salt=salt)

    def _encode_chat(self, messages: Sequence[Any], request: PromptInput) -> "array[int] | Unrenderable":
        try:
            with as_value_error():
                return self._encode_messages(messages, request)
        except ValueError:
            # The library refuses messages with exceptions of its own and of pydantic; the engine will say why.
            return Unrenderable("template")

    def _encode_messages(self, messages: Sequence[Any], request: PromptInput) -> "array[int]":
        asked = self._requests.from_openai(
            messages=[dict(message) for message in messages],
            tools=None if (tools := request.read_tools()) is None else list(tools),
            continue_final_message=request.continues,
        )
        return array("I", self._codec.encode_chat_completion(asked).tokens)


def load_mistral(folder: Path) -> MistralPrompter:
    """The prompter of a folder with `tekken.json`.

    Raises:
        ValueError: mistral-common is not installed, or the file is not what it should be.
    """
    path = folder / FILE_NAME
    try:
        module = import_module("mistral_common.tokens.tokenizers.mistral")
    except ImportError as error:
        raise ValueError(f"{path} needs mistral-common: pip install 'dovecote[mistral]'") from error
    data, _ = read_object(path, MAX_TOKENIZER_BYTES)
    try:
        with as_value_error():
            prompter = MistralPrompter(module.MistralTokenizer.from_file(str(path)))
    except ValueError as error:
        raise ValueError(f"{path}: not a tokenizer: {error}") from error
    prompter.identity = identify(data)
    return prompter
