"""Which prompters the workers' models have, and whether their ids are the engines'.

A prompter is loaded once for each state of its folder: a folder whose files changed, or that came to be, is loaded
anew, and one that no worker uses is let go. What engines do to messages is found out with the first that answers; when
nobody goes by it any more, as after an upgrade of all engines, it is found out anew.
"""

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path

from router.config.fleet import FleetConfig
from router.control.engine_client import EngineClient
from router.control.parity import Parity, probe_parity
from router.control.worker import Worker
from router.prompt import ModelPrompts, PromptCatalogue, Prompter
from router.prompt.loading import load_prompter
from router.regular_file import Mark, find_mark

_log = logging.getLogger("dovecote.control")
#: Files of a tokenizer folder that a prompter is made of.
_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "tekken.json", "special_tokens_map.json")
Marks = tuple[Mark | None, ...]


class PromptRoll:
    """Prompters by folder, and who uses them. Belongs to the event loop."""

    def __init__(self, config: FleetConfig, prompts: PromptCatalogue) -> None:
        self._config = config
        self._prompts = prompts
        self._loaded: dict[Path, tuple[Marks, Prompter | str]] = {}
        #: Folder that each worker's prompts are made with.
        self._folders: dict[Worker, Path] = {}

    async def compare(self, worker: Worker, client: EngineClient) -> None:
        """Find a worker's tokenizer and compare its ids with the engine's."""
        worker.requests_since_parity = 0
        facts = worker.facts
        if facts is not None and facts.models:
            await self._compare(worker, client, facts.models, facts.adapters)
        self._prompts.approximate.admit(worker.id, admitted=worker.describe_credit() == "approximate")

    async def _compare(
        self, worker: Worker, client: EngineClient, models: tuple[str, ...], adapters: dict[str, str]
    ) -> None:
        folder = worker.find_tokenizer(self._config.tokenizer.path if self._config.tokenizer else None)
        self._folders.pop(worker, None)
        prompter = folder if isinstance(folder, str) else await self._load(folder)
        if isinstance(prompter, str) or isinstance(folder, str):
            self._refuse(worker, str(prompter))
            return
        goes_by_it = any(
            self._folders.get(other) == folder and other.parity == Parity.PASSED for other in list(self._folders)
        )
        self._folders[worker] = folder
        worker.parity = await probe_parity(client, prompter, models[0], tries_all=not goes_by_it)
        if worker.parity == Parity.FAILED:
            self._refuse(worker, "its ids of a prompt differ from the router's (parity failed)")
            return
        worker.no_credit = None
        base = models[0]
        for name in models:
            adapter = name if name in adapters else None
            self._prompts.put(name, ModelPrompts(prompter, adapters.get(name, base), adapter))
        if self._config.model is not None:
            self._prompts.put(self._config.model, ModelPrompts(prompter, base))

    def settle(self, workers: Iterable[Worker]) -> None:
        """These are all workers now: what none of them serves or uses is forgotten."""
        known = set(workers)
        served = {name for worker in known if worker.facts is not None for name in worker.facts.models}
        if self._config.model is not None and served:
            served.add(self._config.model)
        self._prompts.keep_only(served)
        self._folders = {worker: folder for worker, folder in self._folders.items() if worker in known}
        used = set(self._folders.values())
        self._loaded = {folder: loaded for folder, loaded in self._loaded.items() if folder in used}

    @staticmethod
    def _refuse(worker: Worker, reason: str) -> None:
        if worker.no_credit != reason:
            _log.warning("no_cache_credit worker=%s reason=%r", worker.id, reason)
        worker.no_credit = reason

    async def _load(self, folder: Path) -> Prompter | str:
        """The prompter of a folder as its files stand; in words why there is none."""
        marks = await asyncio.to_thread(_find_marks, folder)
        known = self._loaded.get(folder)
        if known is not None and known[0] == marks:
            return known[1]
        try:
            loaded: Prompter | str = await asyncio.to_thread(load_prompter, folder)
        except (ValueError, OSError) as error:
            loaded = f"no tokenizer: {error}"
        # Another worker may have loaded it meanwhile: both then share what it has learned.
        known = self._loaded.get(folder)
        if known is not None and known[0] == marks:
            return known[1]
        self._loaded[folder] = (marks, loaded)
        return loaded


def _find_marks(folder: Path) -> Marks:
    return tuple(find_mark(folder / name) for name in _FILES)
