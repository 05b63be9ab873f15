"""Calls to paths that the configuration lets through to workers as they are: any method, any body, any answer.

Nothing is placed or charged: one healthy rank after the other gets them, of those that serve the model where a JSON
body names one. Fields that only the router sets are refused here as everywhere.
"""

from typing import Any

import msgspec

from router.config_forward import find_path_problem, is_below
from router.errors import RequestError
from router.metrics import RequestOutcome
from router.proxy.asked import check_model
from router.proxy.body import INTERNAL_FIELDS, ROUTED_FIELDS
from router.proxy.bystander import Bystander
from router.proxy.call import Call
from router.proxy.headers import find_header
from router.proxy.interrupt import ExchangeWatch
from router.proxy.kept_calls import carry, limit
from router.proxy.token_calls import open_somewhere
from router.proxy.usable import UsableRanks

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


def is_forwarded(path: str, prefixes: tuple[str, ...]) -> bool:
    """Whether a path goes to a worker as it is."""
    return bool(prefixes) and is_below(path, prefixes) and find_path_problem(path) is None


async def forward(call: Call, ranks: UsableRanks) -> RequestOutcome:
    """Serve it; see `Call.run` for what is raised."""
    data = await call.read_body()
    model = _read_model(call, data)
    call.check_allowed(model)
    if model is not None:
        check_model(call.parts, model)
    async with ExchangeWatch(call.client) as watch:
        limit(watch, call.parts)
        exchange = await open_somewhere(call, ranks, data, model)
        relayed = await carry(call, exchange, Bystander(), watch, lambda _status, _body: None, is_opaque=True)
    return call.judge(relayed.status, relayed.outcome)


def _read_model(call: Call, data: bytes) -> str | None:
    """The model that a JSON body names; None for other bodies.

    Raises:
        RequestError: It sets what is the router's.
    """
    content_type = find_header(call.headers, b"content-type") or b""
    if not data or not content_type.lower().startswith(b"application/json"):
        return None
    try:
        fields: Any = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None  # the worker's to refuse
    if not isinstance(fields, dict):
        return None
    for name in (*INTERNAL_FIELDS, *ROUTED_FIELDS):
        if fields.get(name) is not None:
            raise RequestError(f"{name} is set by the router, not by clients", param=name)
    model = fields.get("model")
    return model if isinstance(model, str) and model else None
