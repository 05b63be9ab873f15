"""A tokenizer folder in memory: text to ids, ids to bytes, messages to prompt text.

Reads `tokenizer.json` and `tokenizer_config.json` of a folder once. Encoding releases the
interpreter lock and may be called from any thread. Never adds a token the text does not name.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import tokenizers

from engine_shim.engine.tokenizer.template import ChatTemplate

#: Where the tokenizer of the toy model lies.
TOY_FOLDER = Path(__file__).parent / "toy"


class Tokenizer:
    """Byte-level BPE with its chat template.

    Raises:
        OSError: A file cannot be read.
        ValueError: A file does not hold what it should; the text names the folder.
    """

    def __init__(self, folder: Path) -> None:
        #: Absolute folder, for those who want to load the same files.
        self.folder = folder.resolve()
        self._encoder = _load_encoder(self.folder / "tokenizer.json")
        template, eos_token = _load_config(self.folder / "tokenizer_config.json")
        self.template = ChatTemplate(template)
        #: Token that ends an answer.
        self.eos_id = self._require_id(eos_token)
        #: Bytes of each id; None for special tokens, which are no text.
        self.token_bytes: tuple[bytes | None, ...] = _token_bytes(self._encoder)

    @property
    def vocabulary_tokens(self) -> int:
        """Ids are 0 up to this number."""
        return len(self.token_bytes)

    def encode(self, text: str) -> list[int]:
        """Ids of a text; special tokens that the text spells out become their ids.

        Raises:
            ValueError: The text holds lone surrogates and has no UTF-8 form.
        """
        text.encode("utf-8")
        return self._encoder.encode_batch_fast([text], add_special_tokens=False)[0].ids

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of ids, special tokens spelled out, broken characters as U+FFFD."""
        pieces = (self._piece(token_id) for token_id in token_ids)
        return b"".join(pieces).decode("utf-8", "replace")

    def token_name(self, token_id: int) -> str:
        """The vocabulary's own spelling of an id."""
        return self._encoder.id_to_token(token_id) or ""

    def _piece(self, token_id: int) -> bytes:
        known = self.token_bytes[token_id]
        return self.token_name(token_id).encode() if known is None else known

    def _require_id(self, token: str) -> int:
        token_id = self._encoder.token_to_id(token)
        if token_id is None:
            raise ValueError(f"{self.folder}: tokenizer_config.json names {token!r}, which tokenizer.json lacks")
        return token_id


def _load_encoder(path: Path) -> tokenizers.Tokenizer:
    text = path.read_text(encoding="utf-8")
    try:
        return tokenizers.Tokenizer.from_str(text)
    except Exception as error:  # the library raises bare Exception
        raise ValueError(f"{path}: {error}") from error


def _load_config(path: Path) -> tuple[str, str]:
    """Chat template and end-of-answer token."""
    config = json.loads(path.read_text(encoding="utf-8"))
    template, eos_token = (
        config.get(name) if isinstance(config, dict) else None for name in ("chat_template", "eos_token")
    )
    if not isinstance(template, str) or not isinstance(eos_token, str):
        raise ValueError(f"{path}: chat_template and eos_token must be texts")  # noqa: TRY004  (a file's fault)
    return template, eos_token


def _token_bytes(encoder: tokenizers.Tokenizer) -> tuple[bytes | None, ...]:
    """Undo the byte-level spelling of every vocabulary entry."""
    byte_of = _byte_of_character()
    special = encoder.get_added_tokens_decoder()
    names = {token_id: name for name, token_id in encoder.get_vocab(with_added_tokens=True).items()}
    try:
        return tuple(
            None if token_id in special else bytes(byte_of[character] for character in names[token_id])
            for token_id in range(max(names) + 1)
        )
    except KeyError as error:
        raise ValueError(f"not a byte-level vocabulary without gaps: {error} has no place in it") from error


def _byte_of_character() -> dict[str, int]:
    """Byte-level BPE spells printable Latin-1 bytes as themselves and the others from U+0100 on.

    Source: the byte-to-unicode table of GPT-2's published encoder.
    """
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    shifted = [byte for byte in range(0x100) if byte not in plain]
    table = {chr(byte): byte for byte in plain}
    table |= {chr(0x100 + offset): byte for offset, byte in enumerate(shifted)}
    return table
