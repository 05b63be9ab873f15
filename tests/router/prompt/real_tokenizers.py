"""Published tokenizer folders, where `scripts/fetch-tokenizers` could get them."""

import sys
from functools import cache
from pathlib import Path

import tokenizers

from router.prompt import Prompter
from router.prompt.template import ChatTemplate, load_chat_template
from tests.downloads import check_pinned

TOY = Path(__file__).parents[3] / "engine_shim/engine/tokenizer/toy"
PUBLISHED = Path(sys.prefix) / "tokenizers"
#: Names of all folders, ours first.
NAMES = ("toy", "qwen3", "llama3_1", "deepseek_v3", "gptoss")
CHATS = ("toy", "qwen3", "llama3_1", "deepseek_v3")
FAST = ("toy", "qwen3", "llama3_1", "gptoss")


def find_folder(name: str) -> Path:
    """The folder of a name; the test skips where it is absent."""
    if name == "toy":
        return TOY
    for file in ("tokenizer.json", "tokenizer_config.json"):
        check_pinned(PUBLISHED / name / file)
    return PUBLISHED / name


@cache
def load_model(name: str) -> tokenizers.Tokenizer:
    """The plain tokenizer, to compare with."""
    return tokenizers.Tokenizer.from_file(str(find_folder(name) / "tokenizer.json"))


@cache
def load_prompter(name: str) -> Prompter:
    """A prompter of the folder; shared by the tests of a process."""
    return Prompter.load(find_folder(name))


@cache
def load_template(name: str) -> ChatTemplate:
    """The template of the folder, to render whole conversations with."""
    template = load_chat_template(find_folder(name))
    assert template is not None
    return template
