"""Workers of a Kubernetes service: lists its EndpointSlices, watches them, and lists anew where the watch cannot go on.

A watch that ends well goes on from its last version; one that breaks, or that the server answers with 410, is followed
by a list, and so is every `resync_s`. What was known stays until the server says otherwise.
Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes, docs/faults.md D04.
"""

import asyncio
import logging
import random
import ssl
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import msgspec

from router.config.discovery import KubernetesDiscovery
from router.control.endpoint_slices import Seen, SliceList, SliceMirror
from router.control.registry import Listed, Word
from router.regular_file import read_bytes

_log = logging.getLogger("dovecote.control")
#: Longest wait for an answer, and for a line of a watch: the server sends bookmarks about every minute.
ANSWER_S = 10.0
LINE_S = 180.0
#: Pause between two watches, so that a server that ends each at once is not asked without end.
LEAST_PAUSE_S = 0.1
#: Pauses after a failure.
FIRST_PAUSE_S, MAX_PAUSE_S = 0.5, 30.0
#: Slices of one page, longest answer, longest line.
PAGE_SLICES = 500
MAX_ANSWER_BYTES = 64 << 20
MAX_LINE_BYTES = 8 << 20
#: Of a token that is longer nothing is sent.
MAX_TOKEN_BYTES = 64 << 10
_GONE = 410


class ApiError(Exception):
    """The API server did not answer as it should."""


class KubernetesSource:
    """One service.

    Args:
        config: Where, and what is assumed of its workers.
        chance: For pauses: routers that lost the server together must not come back together.
    """

    def __init__(self, config: KubernetesDiscovery, *, chance: Callable[[], float] = random.random) -> None:
        self._config = config
        self._chance = chance
        self._mirror = SliceMirror(config)
        self._problem: str | None = None
        self._listed_at_s = 0.0

    @property
    def name(self) -> str:
        """See `Source`."""
        return self._config.name

    @property
    def problem(self) -> str | None:
        """See `Source`."""
        return self._problem

    async def run(self, report: Callable[[Word], None]) -> None:
        """See `Source`."""
        pause_s = FIRST_PAUSE_S
        async with httpx.AsyncClient(
            verify=self._make_context(), trust_env=False, follow_redirects=False, timeout=ANSWER_S
        ) as http:
            while True:
                try:
                    await self._list(http)
                    self._tell(report)
                    pause_s = FIRST_PAUSE_S
                    await self._watch(http, report)
                    await asyncio.sleep(LEAST_PAUSE_S)
                except (httpx.HTTPError, httpx.InvalidURL, OSError, ApiError, TimeoutError) as error:
                    self._complain(f"{type(error).__name__}: {error}"[:300])
                    await asyncio.sleep(pause_s * (0.5 + self._chance()))
                    pause_s = min(MAX_PAUSE_S, pause_s * 2)

    def _make_context(self) -> ssl.SSLContext | bool:
        ca_file = Path(self._config.ca_file)
        return ssl.create_default_context(cafile=str(ca_file)) if ca_file.is_file() else True

    def _tell(self, report: Callable[[Word], None]) -> None:
        if self._problem is not None:
            _log.info("kubernetes_well source=%s", self.name)
        self._problem = None
        report(Listed(self.name, self._mirror.to_entries()))

    def _complain(self, problem: str) -> None:
        if self._problem is None:
            _log.warning("kubernetes_failed source=%s reason=%r effect='what was known stays'", self.name, problem)
        self._problem = problem

    async def _list(self, http: httpx.AsyncClient) -> None:
        """All slices, page by page."""
        slices, page, version = [], "", ""
        while True:
            parameters = {"labelSelector": self._selector, "limit": str(PAGE_SLICES)}
            if page:
                parameters["continue"] = page
            async with asyncio.timeout(ANSWER_S):
                answer = await self._read_page(http, parameters)
            slices += answer.items or []
            page, version = answer.metadata.next_page, answer.metadata.resource_version
            if not page:
                break
        self._mirror.replace(slices, version)
        self._listed_at_s = time.monotonic()

    async def _read_page(self, http: httpx.AsyncClient, parameters: dict[str, str]) -> SliceList:
        body = bytearray()
        async with http.stream("GET", self._url, params=parameters, headers=self._make_headers()) as response:
            _check(response)
            async for piece in response.aiter_bytes():
                body += piece
                if len(body) > MAX_ANSWER_BYTES:
                    raise ApiError(f"a list of more than {MAX_ANSWER_BYTES} bytes")
        try:
            return msgspec.json.decode(body, type=SliceList)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ApiError("its list is no list of EndpointSlices") from error

    async def _watch(self, http: httpx.AsyncClient, report: Callable[[Word], None]) -> None:
        """Follow the changes until a list is due; returns where the server's history does not reach back far enough."""
        while (left_s := self._listed_at_s + self._config.resync_s - time.monotonic()) > 0:
            try:
                # The server ends a watch when it was asked to; one that does not must not put off the list.
                async with asyncio.timeout(left_s + 1.0):
                    can_go_on = await self._watch_once(http, report, left_s)
            except TimeoutError:
                return
            if not can_go_on:
                return
            await asyncio.sleep(LEAST_PAUSE_S)

    async def _watch_once(self, http: httpx.AsyncClient, report: Callable[[Word], None], left_s: float) -> bool:
        """One watch to its end; whether the next one can go on from there."""
        parameters = {
            "labelSelector": self._selector,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._mirror.version,
            "timeoutSeconds": str(max(1, int(left_s))),
        }
        timeout = httpx.Timeout(ANSWER_S, read=LINE_S)
        headers = self._make_headers()
        async with http.stream("GET", self._url, params=parameters, headers=headers, timeout=timeout) as response:
            if response.status_code == _GONE:
                return False
            _check(response)
            async for line in _read_lines(response):
                seen = self._mirror.take(line)
                if seen is Seen.GONE:
                    return False
                if seen is Seen.BAD:
                    raise ApiError(f"a line of its watch that cannot be taken: {line[:100]!r}")
                if seen is Seen.CHANGED:
                    self._tell(report)
        return True

    @property
    def _url(self) -> str:
        config = self._config
        return f"{config.api_url}/apis/discovery.k8s.io/v1/namespaces/{config.namespace}/endpointslices"

    @property
    def _selector(self) -> str:
        return f"kubernetes.io/service-name={self._config.service}"

    def _make_headers(self) -> dict[str, str]:
        """The account's token as it stands now: Kubernetes writes a new one every hour."""
        try:
            token = read_bytes(Path(self._config.token_file), MAX_TOKEN_BYTES).decode("ascii").strip()
        except ValueError:
            return {}
        return {"authorization": f"Bearer {token}"}


def _check(response: httpx.Response) -> None:
    if response.status_code != 200:
        hint = " (the account may not list or watch EndpointSlices)" if response.status_code in {401, 403} else ""
        raise ApiError(f"it answers {response.status_code}{hint}")


async def _read_lines(response: httpx.Response) -> AsyncIterator[bytes]:
    """Lines of a bounded length."""
    rest = b""
    async for piece in response.aiter_bytes():
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line.strip():
                yield line
        if len(rest) > MAX_LINE_BYTES:
            raise ApiError(f"a line of more than {MAX_LINE_BYTES} bytes")
    if rest.strip():
        raise ApiError("its watch broke off within a line")
