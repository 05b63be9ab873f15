"""Questions a sidecar asks its engine over HTTP. A bad answer is None, never a fault."""

import asyncio
from typing import Any

import httpx
import msgspec

from engine_shim.sidecar.engine_facts import EngineFacts, read_engine, read_vllm_loads
from wire.load import LoadReport, decode_sglang_loads
from wire.malformed import Malformed

#: Longest answer that is read.
MAX_ANSWER_BYTES = 16 << 20


class EngineClient:
    """The engine's HTTP face, asked from one event loop."""

    def __init__(self, url: str, *, limit_s: float = 3.0) -> None:
        self._url = url.rstrip("/")
        self._limit_s = limit_s
        self._client = httpx.AsyncClient(trust_env=False, follow_redirects=False)

    async def close(self) -> None:
        """End every connection."""
        await self._client.aclose()

    async def is_healthy(self) -> bool:
        """Whether `/health` answers well."""
        return await self._ask("/health") is not None

    async def read_facts(self) -> EngineFacts | str:
        """What the engine says of itself; in words why that does not do."""
        info, models = await self._get("/server_info"), await self._get("/v1/models")
        if info is None and models is None:
            return f"{self._url}: neither /server_info nor /v1/models answers"
        if isinstance(info, dict) and "kv_events" in info:
            return read_engine(info, models, None, None, url=self._url)
        sources, metrics = await self._get("/kv_event_sources"), await self._ask("/metrics")
        text = None if metrics is None else metrics.decode(errors="replace")
        return read_engine(info, models, sources, text, url=self._url)

    async def read_loads(self, facts: EngineFacts) -> tuple[LoadReport, ...] | None:
        """Load of each rank; None where the engine does not say."""
        if facts.dialect == "vllm":
            metrics = await self._ask("/metrics")
            return None if metrics is None else read_vllm_loads(metrics.decode(errors="replace"), facts)
        body = await self._ask("/v1/loads")
        reports = None if body is None else decode_sglang_loads(body)
        return None if isinstance(reports, Malformed) else reports

    async def _get(self, path: str) -> Any:
        body = await self._ask(path)
        try:
            return None if body is None else msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None

    async def _ask(self, path: str) -> bytes | None:
        """Body of a good answer within the limits, else None."""
        pieces, size_bytes = [], 0
        try:
            async with (
                asyncio.timeout(2 * self._limit_s),
                self._client.stream("GET", self._url + path, timeout=self._limit_s) as response,
            ):
                if response.status_code != 200:
                    return None
                async for piece in response.aiter_bytes():
                    size_bytes += len(piece)
                    if size_bytes > MAX_ANSWER_BYTES:
                        return None
                    pieces.append(piece)
        except (httpx.HTTPError, httpx.InvalidURL, OSError):
            return None
        return b"".join(pieces)
