"""Keys read from a file: again whenever it changes, taken whole or refused whole (`watched_file`).

A file that is refused changes nothing: the keys that were taken before go on, and log, metrics and `GET /v1/keys` say
why. A key that is gone from the file opens nothing from then on; what it began before ends as it would have.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from router.access import Key, KeyRing
from router.config.access import load_keys
from router.control.reload_answer import answer_reload
from router.control.watched_file import POLL_S, SETTLE_S, WatchedFile
from router.errors import ConfigError
from router.regular_file import read_once


class WatchedKeys:
    """All keys of a router: those of its configuration, and those of a file where it names one.

    Args:
        own: Keys of the configuration itself.
        path: The file; None without one.
        apply: Takes all keys whenever they change.
        poll_s: Seconds between two looks.
        settle_s: Seconds for which a change must have stood still.

    Raises:
        ConfigError: The file cannot be used from the start.
    """

    def __init__(
        self,
        own: tuple[Key, ...],
        path: Path | None,
        apply: Callable[[KeyRing], None],
        *,
        poll_s: float = POLL_S,
        settle_s: float = SETTLE_S,
    ) -> None:
        self._own = own
        self._apply = apply
        self.watch = WatchedFile(path, self._read, what="keys", poll_s=poll_s, settle_s=settle_s)
        #: What is in force.
        self.ring = KeyRing(own)
        if path is not None:
            self.ring = self._parse(read_once(path), path)

    async def _read(self, text: str, path: Path) -> None:
        ring = self._parse(text, path)
        if ring != self.ring:
            self.ring = ring
            self.watch.counts.taken += 1
            self._apply(ring)

    def _parse(self, text: str, path: Path) -> KeyRing:
        keys = (*self._own, *load_keys(text, str(path)))
        for what, words in (
            ("name", [key.principal.name for key in keys]),
            ("key", [key.digest.hex() for key in keys]),
        ):
            if len(set(words)) < len(words):
                problem = f"a {what} in it stands in access.keys as well"
                raise ConfigError(file_name=str(path), key_path="keys", value=None, problem=problem, shows_value=False)
        return KeyRing(keys)

    def to_json(self) -> dict[str, Any]:
        """Whom there are keys of, and what is wrong with the file; no key and no digest."""
        return {
            "file": None if self.watch.path is None else str(self.watch.path),
            "problem": self.watch.problem,
            "taken": self.watch.counts.taken,
            "refused": self.watch.counts.refused,
            "keys": [
                {
                    "name": each.name,
                    "tenant": each.tenant,
                    "role": each.role.value,
                    "trusted": each.is_trusted,
                    "models": None if each.models is None else sorted(each.models),
                }
                for each in sorted(self.ring.principals(), key=lambda each: each.name)
            ],
        }


def build_key_routes(keys: WatchedKeys) -> APIRouter:
    """Routes about keys: whom there are some of, and their file read anew."""
    routes = APIRouter()

    @routes.get("/v1/keys")
    async def tell() -> JSONResponse:
        """Whom there are keys of; no key and no digest."""
        return JSONResponse(keys.to_json())

    @routes.post("/v1/keys/reload")
    async def reload() -> JSONResponse:
        """Read the file anew; 409 where there is none, 422 where it is refused and the old keys stay."""
        missing = "all keys are part of the fleet's configuration; access.keys_file names a file of some"
        return await answer_reload(keys.watch, keys.to_json, what="keys", missing=missing)

    return routes
