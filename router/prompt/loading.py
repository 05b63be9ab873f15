"""The prompter of a tokenizer folder, by the files it holds."""

import os
from pathlib import Path

from router.prompt.mistral import FILE_NAME, load_mistral
from router.prompt.prompter import Prompter


def has_tokenizer(folder: Path) -> bool:
    """Whether a folder holds a tokenizer of a known kind."""
    return _is_file(folder / "tokenizer.json") or _is_file(folder / FILE_NAME)


def load_prompter(folder: Path) -> Prompter:
    """Load a folder: `tokenizer.json` with its chat template, else `tekken.json`.

    Raises:
        ValueError: A file is absent or not what it should be, or a library for it is not installed.
    """
    if not _is_file(folder / "tokenizer.json") and _is_file(folder / FILE_NAME):
        return load_mistral(folder)
    return Prompter.load(folder)


def _is_file(path: Path) -> bool:
    """False too where it may not be looked at, or cannot be a name at all."""
    return os.path.isfile(path)  # noqa: PTH113  (Path.is_file raises on some names)
