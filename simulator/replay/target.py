"""The endpoint that is measured: its address and key, the bodies it is sent, and whether it can be reached at all."""

import ssl
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec
from msgspec import Struct

from simulator.demo.exchange import Exchange, error_of_body, exchange, kind_of, read_start
from simulator.graph.request import BlockRequest
from simulator.replay.prompts import PromptWriter

#: How long the first look at the target may take, seconds.
LOOK_TIMEOUT_S = 10.0
REFUSED_KEY = (401, 403)


class Api(StrEnum):
    """Which route is sent to."""

    CHAT = "chat"
    COMPLETIONS = "completions"


class PromptAs(StrEnum):
    """How prompts travel to the completions route."""

    TEXT = "text"
    IDS = "ids"


class TargetError(ValueError):
    """The target cannot be used as asked; the message says why and what to change, and never the key."""


class TargetPlan(Struct, frozen=True, kw_only=True):
    """How requests are made; `headers` may hold the key and is for sending only."""

    #: Without a slash at its end, with /v1.
    base_url: str
    api: Api = Api.CHAT
    prompt_as: PromptAs = PromptAs.TEXT
    model: str = ""
    headers: Mapping[str, str] = {}
    #: Header that carries the name of the conversation, and the one for that of its parent; None sends neither.
    session_header: str | None = "X-Dovecote-Session"
    parent_header: str | None = "X-Dovecote-Parent"
    #: Fields of every body beside those of the trace.
    fields: Mapping[str, Any] = {}
    #: Ask for exactly the recorded length, which is no field of OpenAI's own.
    ignores_eos: bool = True
    timeout_s: float = 600.0


def parse_target(url: str) -> str:
    """The base URL, with /v1.

    Raises:
        TargetError: It is no http or https URL of a host, or holds credentials.
    """
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good:
        raise TargetError("the target is no URL; expected one like http://127.0.0.1:8000")
    if parts.username is not None or parts.password is not None:
        raise TargetError("the target holds credentials; give the key in an environment variable: --api-key-env NAME")
    if parts.query or parts.fragment:
        raise TargetError("the target has a query or a fragment; expected one like http://127.0.0.1:8000")
    bare = url.rstrip("/")
    return bare if bare.endswith("/v1") else f"{bare}/v1"


def read_key(name: str | None, environment: Mapping[str, str]) -> str | None:
    """The key in an environment variable; None when none was named.

    Raises:
        TargetError: The variable is not set, or holds what no header can carry.
    """
    if name is None:
        return None
    key = environment.get(name, "").strip()
    if not key:
        raise TargetError(f"the environment variable {name} is not set; it should hold the API key")
    if not (key.isascii() and key.isprintable()):
        raise TargetError(f"the environment variable {name} holds characters that no header can carry")
    return key


def make_tls(ca_file: Path | None, *, verifies: bool) -> ssl.SSLContext:
    """How the target's certificate is checked.

    Raises:
        TargetError: The file holds no certificates.
    """
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise TargetError(f"{ca_file} holds no usable certificates ({error}); expected a PEM file") from error
    if not verifies:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class Target:
    """Sends requests of a trace to one endpoint.

    Args:
        http: Open client session; its connections verify as `make_tls` said.
        plan: How to send.
        writer: Of the prompts.
        clock: Seconds, monotonic.
    """

    def __init__(
        self, http: aiohttp.ClientSession, plan: TargetPlan, writer: PromptWriter, clock: Callable[[], float]
    ) -> None:
        self._http, self._plan, self._writer, self._clock = http, plan, writer, clock
        route = "chat/completions" if plan.api is Api.CHAT else "completions"
        self._url = f"{plan.base_url}/{route}"

    def write_body(self, request: BlockRequest) -> bytes:
        """The body of one request: greedy, streamed with usage."""
        body: dict[str, Any] = {
            "model": self._plan.model,
            "max_tokens": request.output_tokens,
            "temperature": 0.0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self._plan.ignores_eos:
            body["ignore_eos"] = True
        if self._plan.api is Api.CHAT:
            body["messages"] = [message.as_json() for message in self._writer.write_messages(request)]
        elif self._plan.prompt_as is PromptAs.IDS:
            body["prompt"] = self._writer.write_ids(request)
        else:
            body["prompt"] = self._writer.write_text(request)
        return msgspec.json.encode(body | dict(self._plan.fields))

    async def send(self, request: BlockRequest, body: bytes) -> Exchange:
        """Send a request once; a failure is an exchange too."""
        plan = self._plan
        headers = dict(plan.headers)
        if plan.session_header is not None and request.session is not None:
            headers[plan.session_header] = _as_header(request.session)
        if plan.parent_header is not None and request.parent is not None:
            headers[plan.parent_header] = _as_header(request.parent)
        return await exchange(self._http, self._url, body, headers, clock=self._clock, timeout_s=plan.timeout_s)


def _as_header(name: str) -> str:
    """A recorded name as a header carries it: what is not printable ASCII is escaped."""
    return name if name.isascii() and name.isprintable() else name.encode("unicode_escape").decode("ascii")


async def find_model(http: aiohttp.ClientSession, plan: TargetPlan) -> str:
    """The model to ask for: the one named, else the first that the target lists. Looks at the target in either case.

    Raises:
        TargetError: The target cannot be reached, refuses the key, or lists no model while none was named.
    """
    url = f"{plan.base_url}/models"
    timeout = aiohttp.ClientTimeout(total=LOOK_TIMEOUT_S)
    try:
        async with http.get(url, headers=plan.headers, timeout=timeout, allow_redirects=False) as response:
            status, raw = response.status, await read_start(response)
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise TargetError(_explain(kind_of(error), url, error)) from None
    if status in REFUSED_KEY:
        sent = "the key that was sent" if "Authorization" in plan.headers else "requests without a key: --api-key-env"
        raise TargetError(f"{url} refuses {sent} (HTTP {status}: {error_of_body(raw)[:200]})")
    if plan.model:
        return plan.model
    if status == 200 and (listed := _first_model(raw)):
        return listed
    raise TargetError(f"{url} lists no model (HTTP {status}); name one with --model, and check that the URL is right")


def _first_model(raw: bytes) -> str | None:
    try:
        data = msgspec.json.decode(raw)["data"]
        name = data[0]["id"]
    except (msgspec.DecodeError, UnicodeDecodeError, LookupError, TypeError):
        return None
    return name if isinstance(name, str) else None


def _explain(kind: str, url: str, error: Exception) -> str:
    if kind == "tls":
        return f"{url}: no TLS connection ({error}); --ca FILE trusts a private authority, --insecure any certificate"
    if kind == "timeout":
        return f"{url} does not answer within {LOOK_TIMEOUT_S:g} s"
    if kind == "unreachable":
        return f"{url} cannot be reached: {error}"
    return f"{url} broke off ({type(error).__name__}: {error}); is it http where https is expected, or the other way?"
