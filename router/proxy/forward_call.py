"""Calls to paths that the configuration lets through to workers as they are: any method, any body, any answer.

Nothing is placed or charged: one healthy rank after the other gets them, of those that serve the model where a JSON
body names one. Fields that only the router sets are refused here as everywhere.
"""

from typing import Any

import msgspec

from router.config.forward import find_path_problem, is_below
from router.errors import RequestError
from router.metrics import RequestOutcome
from router.proxy import splice
from router.proxy.asked import check_model
from router.proxy.body import HOLDERS, ROUTERS_FIELDS, find_name, read_adapters
from router.proxy.bystander import Bystander
from router.proxy.call import Call
from router.proxy.headers import find_header
from router.proxy.interrupt import ExchangeWatch
from router.proxy.kept_calls import carry, limit
from router.proxy.members import decode_members
from router.proxy.token_calls import open_somewhere
from router.proxy.usable import UsableRanks

#: Members that are looked at.
_READ = ("model", "lora_path", *HOLDERS, *ROUTERS_FIELDS)
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


def is_forwarded(path: str, prefixes: tuple[str, ...]) -> bool:
    """Whether a path goes to a worker as it is."""
    return bool(prefixes) and is_below(path, prefixes) and find_path_problem(path) is None


async def forward(call: Call, ranks: UsableRanks) -> RequestOutcome:
    """Serve it; see `Call.run` for what is raised."""
    data = await call.read_body()
    fields = _read_fields(call, data)
    said = fields.get("model")
    model = said if isinstance(said, str) and said else None
    call.check_allowed(model, *read_adapters(fields.get("lora_path")))
    if model is not None:
        check_model(call.parts, model)
    with ExchangeWatch(call.client, call.parts.lookout) as watch:
        limit(watch, call.parts)
        exchange = await open_somewhere(call, ranks, data, model)
        relayed = await carry(call, exchange, Bystander(), watch, lambda _status, _body: None, is_opaque=True)
    return call.judge(relayed.status, relayed.outcome)


def _read_fields(call: Call, data: bytes) -> dict[str, Any]:
    """Members of a JSON body that say where it may go; none for other bodies.

    Raises:
        RequestError: It sets what is the router's, or a member twice.
    """
    if not is_json(find_header(call.headers, b"content-type")):
        return {}
    try:
        members = decode_members(data).by_name
    except RequestError:
        return {}  # the worker's to refuse
    if splice.has_repeated_names(data, members):
        # Whichever of them counts here, the worker's parser may take the other one.
        raise RequestError("a member of the body stands twice")
    fields = {name: _decode(name, members[name]) for name in _READ if name in members}
    for name in ROUTERS_FIELDS:
        if fields.get(name) is not None:
            raise RequestError(f"{name} is set by the router, not by clients", param=name)
    for holder in HOLDERS:
        found = find_name(fields.get(holder), ROUTERS_FIELDS)
        if found is not None:
            raise RequestError(f"{found} is set by the router, not by clients", param=f"{holder}.{found}")
    return fields


def _decode(name: str, raw: memoryview) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(f"{name} cannot be read", param=name) from error


def is_json(content_type: bytes | None) -> bool:
    """Whether a worker may read a body as JSON; one of which nothing is said is read so by some."""
    kind = (content_type or b"").partition(b";")[0].strip().lower()
    return not kind or kind.endswith((b"/json", b"+json"))
