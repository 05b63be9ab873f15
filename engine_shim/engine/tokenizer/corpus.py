"""Text to train the toy tokenizer on: Python's own library sources and seeded agent-like prose.

Takes nothing from outside the Python installation, gives one iterator of texts. The same Python
version and seed always give the same texts in the same order.
"""

import json
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from random import Random

#: Library files that are read: code of several tastes, and the language reference as prose.
SOURCES = (
    "pydoc_data/topics.py",
    "argparse.py",
    "ast.py",
    "asyncio/base_events.py",
    "collections/__init__.py",
    "dataclasses.py",
    "datetime.py",
    "email/message.py",
    "http/client.py",
    "http/server.py",
    "inspect.py",
    "json/encoder.py",
    "logging/__init__.py",
    "pathlib.py",
    "random.py",
    "selectors.py",
    "shutil.py",
    "subprocess.py",
    "tarfile.py",
    "textwrap.py",
    "threading.py",
    "typing.py",
    "unittest/case.py",
    "urllib/parse.py",
)
#: Characters read of one file, so that the reference does not outweigh the code.
SOURCE_CHARS = 250_000

WORD_TEXT = (
    "the a an to of in for on with from and or not this that it is was be are we you please check read write "
    "file test function class method module line error value result request response server client router "
    "engine cache block page prefix token prompt session worker rank queue batch step event stream index hash "
    "tree node root parent child count size limit time second failing passed expected returned change fix "
    "update remove add create search look run build why how when where which should could would because after "
    "before first last next previous new old same different repository directory branch commit review issue "
    "documentation configuration option default command output input"
)
WORDS = WORD_TEXT.split()
TOOLS = ("read_file", "write_file", "run_command", "search_text", "list_directory", "apply_patch", "fetch_url")
FOLDERS = ("src", "tests", "docs", "app", "core", "lib", "scripts")
ACCENTED = ("café", "naïve", "Zürich", "日本語", "привет", "données", "größer", "señal", "✓", "→", "—", "🐦")


def iter_corpus(seed: int) -> Iterator[str]:
    """Library sources first, then generated conversations."""
    library = Path(sysconfig.get_path("stdlib"))
    for name in SOURCES:
        yield (library / name).read_text(encoding="utf-8")[:SOURCE_CHARS]
    yield from iter_conversations(seed, 1_500)


def iter_conversations(seed: int, conversations: int) -> Iterator[str]:
    """Seeded text in the manner of coding agents: sentences, paths, tool calls, JSON, logs."""
    rng = Random(seed)
    for _ in range(conversations):
        yield "\n".join(_paragraph(rng) for _ in range(rng.randint(3, 9)))


def _paragraph(rng: Random) -> str:
    return rng.choice((_prose, _tool_call, _listing, _log_line))(rng)


def _prose(rng: Random) -> str:
    return " ".join(_sentence(rng) for _ in range(rng.randint(2, 6)))


def _sentence(rng: Random) -> str:
    words = [rng.choice(WORDS) for _ in range(rng.randint(5, 14))]
    if rng.random() < 0.15:
        words[rng.randrange(len(words))] = rng.choice(ACCENTED)
    return " ".join(words).capitalize() + rng.choice((".", ".", ".", "?", "!", ":"))


def _path(rng: Random) -> str:
    return f"{rng.choice(FOLDERS)}/{rng.choice(WORDS)}_{rng.choice(WORDS)}.{rng.choice(('py', 'md', 'json', 'toml'))}"


def _tool_call(rng: Random) -> str:
    arguments = {"path": _path(rng), "start_line": rng.randint(1, 900), "pattern": _sentence(rng)}
    return json.dumps({"name": rng.choice(TOOLS), "arguments": arguments}, ensure_ascii=False)


def _listing(rng: Random) -> str:
    return "\n".join(f"- {_path(rng)} ({rng.randint(1, 99_999)} bytes)" for _ in range(rng.randint(3, 8)))


def _log_line(rng: Random) -> str:
    level = rng.choice(("INFO", "WARNING", "ERROR", "DEBUG"))
    return (
        f"2026-0{rng.randint(1, 9)}-{rng.randint(10, 28)} {level} {_path(rng)}:{rng.randint(1, 500)} {_sentence(rng)}"
    )
