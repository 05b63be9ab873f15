"""Folders with `tekken.json` go through mistral-common; without it they say what to install."""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from router.prompt import PromptInput, Unrenderable
from router.prompt.engine_form import DEFAULT_FORM
from router.prompt.loading import has_tokenizer, load_prompter

needs_library = pytest.mark.skipif(find_spec("mistral_common") is None, reason="needs mistral-common (extra mistral)")
CALL = {"id": "abcdefghi", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
TOOLS = [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}]
MESSAGES = [
    {"role": "user", "content": "call f"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "abcdefghi", "content": "1"},
]


def test_a_folder_of_that_kind_is_known_and_without_the_library_says_what_to_install(tmp_path):
    assert not has_tokenizer(tmp_path)
    (tmp_path / "tekken.json").write_text("{}")
    assert has_tokenizer(tmp_path)
    with pytest.raises(
        ValueError, match="mistral-common" if find_spec("mistral_common") is None else "not a tokenizer"
    ):
        load_prompter(tmp_path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    library = import_module("mistral_common")
    folder = tmp_path_factory.mktemp("tekken")
    (file,) = sorted((Path(library.__file__).parent / "data").glob("tekken*.json"))[-1:]
    (folder / "tekken.json").symlink_to(file)
    return folder


@needs_library
def test_ids_are_those_of_the_library(folder):
    requests = import_module("mistral_common.protocol.instruct.request")
    tokenizers = import_module("mistral_common.tokens.tokenizers.mistral")
    prompter = load_prompter(folder)
    library = tokenizers.MistralTokenizer.from_file(str(folder / "tekken.json"))
    asked = requests.ChatCompletionRequest.from_openai(messages=MESSAGES, tools=TOOLS)
    expected = library.encode_chat_completion(asked).tokens
    request = PromptInput(messages=MESSAGES, tools=TOOLS)
    assert prompter.prepare(request).token_ids.tolist() == expected
    assert prompter.make_ids(request, DEFAULT_FORM).tolist() == expected
    assert prompter.find_chain(prompter.prepare(request), block_tokens=4, model="m").hashes


@needs_library
def test_what_the_library_refuses_or_does_not_know_earns_no_credit(folder):
    prompter = load_prompter(folder)
    image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}
    assert prompter.prepare(PromptInput(messages=[{"role": "nobody"}])) == Unrenderable("template")
    assert prompter.prepare(PromptInput(messages=[image])) == Unrenderable("multimodal")
    assert prompter.prepare(PromptInput(messages=["x"])) == Unrenderable("shape")
    asked = PromptInput(messages=MESSAGES[:1], template_options={"a": 1})
    assert prompter.prepare(asked) == Unrenderable("opaque_field")
    assert prompter.prepare(PromptInput(prompt="text")).token_ids[0] == 1
