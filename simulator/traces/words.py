"""Deterministic text for traces that carry block ids or sizes instead of words.

Equal keys give equal text in every process and every run; different keys give text that
differs from the first block on. The words are common in source code, so that one word is one
token under the toy tokenizer and about one under others. Pure.
"""

from collections.abc import Iterable
from hashlib import blake2b

_WORD_LIST = """
about above access act action add added after again alias all allow also always an and any append are arg as assert
assign assume async at avoid await back base batch be been before being below bind block body both bound branch break
buffer build built but by bytes cache call called caller can cannot case change check child chunk class clause client
close closed code common copy core could count create custom daemon data date day debug decode default define depend
dict do does done during each effect either else empty encode end engine entry equal error even event ever except exec
exist extra fail false family field file filter find first fix flag float follow for form format found frame from
frozen full future get give given global go got group handle happen has hash have he header here hour how id if ignore
import in indent index info init input insert int into io is item its join just key kind last least left length level
like limit line link list local lock log logger long look loop low made main make man mark match max may me mean
member method might min minute mode module month more most must my name named need new next no node normal not now
number object of off offset old on once one only open option or order origin other our out output over own owner page
pair parse part pass path pattern place point pop port position present process quote raise range read real reason
"""
#: 256 words of source code and its comments: one digest byte names one word.
WORDS: tuple[str, ...] = tuple(_WORD_LIST.split())
#: Estimate for sizes that are needed before any tokenizer was asked.
CHARS_PER_TOKEN = 3.5


def block_text(key: str, word_ratio: float) -> str:
    """The words of one block, joined by spaces; empty when its share rounds to none.

    Args:
        key: Name of the block; two blocks of equal name have equal text.
        word_ratio: Words wanted in the mean, fractions allowed: the key decides which blocks get one more.
    """
    whole = int(word_ratio)
    lot = blake2b(key.encode(), digest_size=8, person=b"lot").digest()
    count = whole + (int.from_bytes(lot, "big") / 2**64 < word_ratio - whole)
    return " ".join(_draw(key, count))


def join_blocks(texts: Iterable[str]) -> str:
    """Block texts as one text, without gaps where a block is empty."""
    return " ".join(text for text in texts if text)


def _draw(key: str, count: int) -> list[str]:
    drawn: list[str] = []
    for serial in range((count + 63) // 64):
        digest = blake2b(f"{key}#{serial}".encode(), digest_size=64).digest()
        drawn.extend(WORDS[byte] for byte in digest)
    return drawn[:count]


#: Characters of one window of real text; scaling keeps the start of each window.
WINDOW_CHARS = 256


def thin_text(text: str, ratio: float) -> str:
    """Shorten real text so that prefixes stay prefixes: thin(a) is a prefix of thin(a + b) for every b.

    Keeps the first share of each fixed window counted from the start of the text.
    """
    if ratio >= 1.0:
        return text
    keep_chars = max(1, round(WINDOW_CHARS * ratio))
    return "".join(text[start : start + keep_chars] for start in range(0, len(text), WINDOW_CHARS))


def estimate_tokens(chars: int) -> int:
    """About how many tokens so many characters are, at least one."""
    return max(1, round(chars / CHARS_PER_TOKEN))
