"""Token ids of real text: the sources of Python's standard library, through a real tokenizer.

The text is on every machine; which ids are frequent, and so how many bytes they take on the wire, is that of code
and English. Qwen3's tokenizer where `scripts/fetch-tokenizers` brought it, else the toy one of the small engine.
"""

import sys
import sysconfig
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

from router.prompt.tokenizer import load_tokenizer

QWEN = Path(sys.prefix) / "tokenizers/qwen3"
TOY = Path(__file__).parents[1] / "engine_shim/engine/tokenizer/toy"


def find_tokenizer() -> Path:
    """Folder of the tokenizer to measure with."""
    return QWEN if (QWEN / "tokenizer.json").is_file() else TOY


def read_tokens(count: int, folder: Path | None = None) -> "array[int]":
    """The first tokens of the text, file by file."""
    tokenizer = load_tokenizer(folder or find_tokenizer())
    tokens: array[int] = array("I")
    for text in _read_sources():
        if len(tokens) >= count:
            break
        tokens += tokenizer.encode(text)
    if len(tokens) < count:
        raise RuntimeError(f"the standard library has {len(tokens)} tokens of the {count} wanted")
    return tokens[:count]


def draw_stretches(tokens: Sequence[int], count: int, length: int, rng: Random) -> Iterator[Sequence[int]]:
    """Stretches of the text that begin at different places, all of one length."""
    for start in rng.sample(range(len(tokens) - length + 1), count):
        yield tokens[start : start + length]


def _read_sources() -> Iterator[str]:
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("[a-z]*/**/*.py")):
        if "site-packages" not in path.parts and "test" not in path.parts:
            yield path.read_text(encoding="utf-8", errors="replace")
