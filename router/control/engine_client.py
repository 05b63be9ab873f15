"""Questions the control plane asks an engine over HTTP. Each has a time limit; a bad answer is None, never a fault.

The limit is one for the whole question, as httpx bounds each read alone, and counts no time in which the router itself
was held up: its own lag takes no worker out.
A question that could not be asked because this process or machine is at its limits says nothing of the engine.
"""

import json
from collections.abc import Callable
from typing import Any

import httpx
import msgspec

from router.control.facts import WorkerFacts, read_facts, read_sidecar_facts
from router.control.loads import LoadSource
from router.lookout import own_time
from router.open_files import is_own_limit
from wire.load import LoadReport, decode_sglang_loads, decode_vllm_count, decode_vllm_metrics
from wire.malformed import Malformed

#: Longest answer that is read.
MAX_ANSWER_BYTES = 8 << 20

#: Forms in which engines tell their load, the best first: path, and what reads the answer.
_LOAD_FORMS: dict[LoadSource, tuple[str, Callable[[bytes], tuple[LoadReport, ...] | Malformed]]] = {
    LoadSource.LOADS: ("/v1/loads", decode_sglang_loads),
    LoadSource.METRICS: ("/metrics", decode_vllm_metrics),
    LoadSource.COUNT: ("/load", decode_vllm_count),
}


class OwnLimitError(Exception):
    """No socket is left here to ask with; the engine may be well."""


class EngineClient:
    """One worker's HTTP face, asked from one event loop."""

    def __init__(
        self,
        client: httpx.AsyncClient,
        url: str,
        limit_s: float,
        *,
        sidecar_url: str | None = None,
        authorization: bytes | None = None,
    ) -> None:
        self._client = client
        self._headers = {} if authorization is None else {"authorization": authorization.decode()}
        self._url = url
        self._sidecar_url = sidecar_url
        self._limit_s = limit_s

    async def probe(self) -> str | None:
        """None where `/health` answers well, else what it did, in words.

        Raises:
            OwnLimitError: It could not be asked.
        """
        try:
            async with own_time(self._limit_s):
                response = await self._client.get(f"{self._url}/health", headers=self._headers, timeout=None)
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            _raise_own(error)
            return f"/health: {type(error).__name__}"
        return None if response.status_code == 200 else f"/health answers {response.status_code}"

    async def read_facts(self) -> WorkerFacts | None:
        """What the engine says of itself; None where neither question has an answer.

        Raises:
            OwnLimitError: A question could not be asked.
        """
        if self._sidecar_url is not None:
            models = await self._get("/v1/models")
            told = await self._ask("GET", self._sidecar_url + "/server_info", None)
            info = None if told is None else _decode(told)
            known = info is not None or models is not None
            return read_sidecar_facts(info, models, url=self._sidecar_url) if known else None
        info = await self._get("/server_info")
        models = await self._get("/v1/models")
        if info is None and models is None:
            return None
        has_events = isinstance(info, dict) and "kv_events" in info
        sources = None if has_events else await self._get("/kv_event_sources")
        return read_facts(info, models, sources, url=self._url)

    async def read_loads(self, known: LoadSource | None = None) -> tuple[LoadSource, tuple[LoadReport, ...]] | None:
        """Load of each rank and how it was told; None where the engine tells in no known form.

        Args:
            known: Form in which it answered before, so that only that one is asked for.
        """
        for source, (path, decode) in _LOAD_FORMS.items():
            if known is not None and source is not known:
                continue
            base = self._sidecar_url if self._sidecar_url is not None and source is LoadSource.LOADS else self._url
            body = await self._ask("GET", base + path, None)
            reports = None if body is None else decode(body)
            if reports is not None and not isinstance(reports, Malformed):
                return source, reports
        return None

    async def tokenize(self, request: dict[str, Any]) -> list[int] | None:
        """The engine's own ids for a request; None where it does not say."""
        body = await self._ask("POST", self._url + "/tokenize", json.dumps(request).encode())
        answer = None if body is None else _decode(body)
        ids = answer.get("tokens") if isinstance(answer, dict) else None
        return ids if isinstance(ids, list) and all(type(token) is int for token in ids) else None

    async def _get(self, path: str) -> Any:
        body = await self._ask("GET", self._url + path, None)
        return None if body is None else _decode(body)

    async def _ask(self, method: str, url: str, content: bytes | None) -> bytes | None:
        """Body of a good answer within the limits, else None.

        Raises:
            OwnLimitError: It could not be asked.
        """
        headers = {} if content is None else {"content-type": "application/json"}
        if url.startswith(self._url + "/"):
            # The key is the engine's, and no sidecar's business.
            headers |= self._headers
        pieces, size_bytes = [], 0
        try:
            async with (
                own_time(self._limit_s),
                self._client.stream(method, url, content=content, headers=headers, timeout=None) as response,
            ):
                if response.status_code != 200:
                    return None
                async for piece in response.aiter_bytes():
                    size_bytes += len(piece)
                    if size_bytes > MAX_ANSWER_BYTES:
                        return None
                    pieces.append(piece)
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            _raise_own(error)
            return None
        return b"".join(pieces)


def _raise_own(error: BaseException) -> None:
    """Raise where a failure is none of the engine's."""
    cause: BaseException | None = error
    while cause is not None:
        inner = cause.exceptions if isinstance(cause, BaseExceptionGroup) else (cause,)
        if any(map(is_own_limit, inner)):
            raise OwnLimitError(str(error)) from error
        cause = cause.__cause__ or cause.__context__


def _decode(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
