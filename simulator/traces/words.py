"""Deterministic text for traces that carry block ids or sizes instead of words.

Equal keys give equal text in every process and every run; different keys give text that
differs from the first block on. The words are short and common, so that one word is about
one token under a byte-level tokenizer. Pure.
"""

from collections.abc import Iterable
from hashlib import blake2b

_WORD_LIST = """
a about above act add after again age ago air all also always an and any are area arm art as ask at away back bad ball
bank base be bed been before began best better big bit black blue board body book both box boy bring build but buy by
call came can car care carry case cause cell change check child city class clear close code cold come common could
country course cover cross cut dark data day deep did do does dog done door down draw drive dry during each early earth
east easy eat end enough even ever every example eye face fact fall family far farm fast father feel feet few field file
find fine fire first fish five fly follow food foot for force form found four free friend from front full game gave get
girl give go gold good got great green ground group grow had half hand hard has have he head hear heart heat help her
here high him his hold home horse hot hour house how idea if in into is it its just keep kind king know land large last
late law lay lead learn leave left less let letter life light like line list little live local long look low made main
make man many map mark may me mean men might mile mind more most move much music must my name near need never new next
night no north note now number of off old on once one only open or order other
"""
#: 256 common words: one digest byte names one word.
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
