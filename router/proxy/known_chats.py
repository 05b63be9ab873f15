"""Chats that were made of messages or items before: of a longer list only what is new is converted.

An agent sends its whole conversation every turn. The chat of a list begins with the chat of its beginning, so that one
which begins with the bytes of a known list takes that one's chat as it is. Found by digests of prefixes, as bodies and
conversations are. Bounded by bytes, least recently used out first; safe in several threads.
"""

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable

import msgspec
import xxhash

from router.prompt.native import Json
from router.prompt.prefixes import Beginning, PrefixDigest, digest_prefix, find_end, name_beginnings, read_appended

#: Bytes of chats that are kept: some 160 of 100k tokens.
MAX_BYTES = 64 << 20
#: Shorter lists cost less to convert than to find.
MIN_BYTES = 4 << 10
#: Sets of tools that are kept.
MAX_TOOL_SETS = 128


class KnownChat(msgspec.Struct, frozen=True, eq=False):
    """The chat of a list up to its last item."""

    #: Bytes up to the end of the last item, and their digest.
    length: int
    digest: int
    #: Its messages as a JSON array, without what closes it.
    chat: bytes
    #: Whether what comes next may become part of its last message.
    is_open: bool


class KnownChats:
    """Chats by the lists that they were made of."""

    def __init__(self, *, max_bytes: int = MAX_BYTES, seed: int | None = None) -> None:
        self._max_bytes = max_bytes
        self._seed = secrets.randbits(63) if seed is None else seed
        self._beginnings: dict[int, Beginning[KnownChat]] = {}
        self._names: OrderedDict[KnownChat, int] = OrderedDict()
        self._tools: OrderedDict[bytes, bytes | None] = OrderedDict()
        self._lock = threading.Lock()
        #: Bytes of the chats kept.
        self.held_bytes = 0

    def find(self, setting: bytes, member: Json) -> tuple[KnownChat, bytes | None] | None:
        """The longest chat that a list goes on from, and the items after it as JSON; None where all of it is new.

        Args:
            setting: What has to be equal besides.
            member: The list as it stands in its body.

        Returns:
            The items are None where there are none.
        """
        if len(member) < MIN_BYTES:
            return None
        view = memoryview(member)
        names = name_beginnings(setting, view, self._seed)
        with self._lock:
            for name in reversed(names):
                beginning = self._beginnings.get(name)
                known = None if beginning is None else beginning.find(PrefixDigest(view, self._seed))
                if known is not None:
                    self._names.move_to_end(known)
                    break
            else:
                return None
        appended = read_appended(view, known.length)
        if appended is not None:
            return None if known.is_open else (known, appended)
        return (known, None) if known.length == find_end(view) else None

    def keep(self, setting: bytes, member: Json, chat: bytes, *, is_open: bool, after: KnownChat | None = None) -> None:
        """Remember a chat.

        Args:
            setting: As for `find`.
            member: The list.
            chat: Its messages as a JSON array.
            is_open: Whether what comes next may become part of its last message.
            after: The chat that it goes on from, which it takes the place of.
        """
        end = find_end(member)
        if len(member) < MIN_BYTES or end is None or len(chat) > self._max_bytes:
            return
        known = KnownChat(end, digest_prefix(member, end, self._seed), chat[:-1], is_open)
        name = name_beginnings(setting, member, self._seed)[-1]
        with self._lock:
            if after is not None:
                self._forget(after)
            beginning = self._beginnings.setdefault(name, Beginning())
            if (known.length, known.digest) in beginning.by_digest:
                return
            self._names[known] = name
            self.held_bytes += len(known.chat)
            crowded = beginning.add(known)
            if crowded is not None:
                self._forget(crowded)
            while self.held_bytes > self._max_bytes:
                self._forget(next(iter(self._names)))

    def find_tools(self, setting: bytes, tools: Json, convert: Callable[[], bytes | None]) -> bytes | None:
        """Definitions of tools as a chat has them: those of an agent are the same every turn."""
        key = setting + xxhash.xxh3_128_digest(tools, self._seed)
        with self._lock:
            if key in self._tools:
                self._tools.move_to_end(key)
                return self._tools[key]
        made = convert()
        with self._lock:
            self._tools[key] = made
            while len(self._tools) > MAX_TOOL_SETS:
                self._tools.popitem(last=False)
        return made

    def _forget(self, known: KnownChat) -> None:
        name = self._names.pop(known, None)
        if name is None:
            return
        self.held_bytes -= len(known.chat)
        beginning = self._beginnings.get(name)
        if beginning is not None:
            beginning.discard(known)
            if not beginning.lengths:
                del self._beginnings[name]
