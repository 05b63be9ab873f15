"""The file in which an operator declares a model's cache groups, where the engine's events do not tell of them."""

from pathlib import Path

import msgspec

from prefix_index.components import STANDARD
from prefix_index.layout import GroupLayout, Layout

_MAX_BYTES = 1 << 16


def read_layout(path: Path) -> Layout | str:
    """The groups of a JSON list; in words why they cannot be used."""
    try:
        with path.open("rb") as file:
            groups = msgspec.json.decode(file.read(_MAX_BYTES), type=tuple[GroupLayout, ...])
    except OSError as error:
        return error.strerror or str(error)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return f"no JSON list of groups: {error}"
    for group in groups:
        if STANDARD.find(group.kind, 0, group.window_tokens) is None:
            return (
                f"kind {group.kind!r}: use full_attention, mla_attention, sliding_window (with window_tokens) or mamba"
            )
    return Layout(groups) if groups else "it lists no group"
