"""The prompter of a tokenizer folder, by the files it holds."""

from pathlib import Path

from router.prompt.mistral import FILE_NAME, load_mistral
from router.prompt.prompter import Prompter


def has_tokenizer(folder: Path) -> bool:
    """Whether a folder holds a tokenizer of a known kind."""
    return (folder / "tokenizer.json").is_file() or (folder / FILE_NAME).is_file()


def load_prompter(folder: Path) -> Prompter:
    """Load a folder: `tokenizer.json` with its chat template, else `tekken.json`.

    Raises:
        ValueError: A file is absent or not what it should be, or a library for it is not installed.
    """
    if not (folder / "tokenizer.json").is_file() and (folder / FILE_NAME).is_file():
        return load_mistral(folder)
    return Prompter.load(folder)
