"""What a client may tell an engine beside its prompt: the query of its call, and how urgent it is. Pure.

Engines order their own queues by a member `priority`, where they are started so: SGLang takes the highest first, vLLM
the lowest. Where there are tenants, one that sets it overtakes all others on an engine, so that it counts as far as its
key may. A query goes to the engine as it came; a field of the router's in it is refused as it is in a body.
Source: SGLang `--enable-priority-scheduling`; vLLM `--scheduling-policy priority`.
"""

from typing import Any
from urllib.parse import parse_qsl

from router.errors import RequestError
from router.proxy.body import ROUTERS_FIELDS

#: Most fields of a query; header lines bound its length.
MAX_QUERY_FIELDS = 100


def check_query(query: bytes) -> None:
    """Raise where a query sets what only the router sets.

    Raises:
        RequestError: It does, or has too many fields to tell.
    """
    try:
        fields = parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=MAX_QUERY_FIELDS)
    except ValueError:
        raise RequestError(f"the query has more than {MAX_QUERY_FIELDS} fields") from None
    for name, _ in fields:
        if name in ROUTERS_FIELDS:
            raise RequestError(f"{name} is set by the router, not by clients", param=name)


def bound_priority(said: Any, max_priority: int) -> int | list[int] | None:
    """The priority that an engine is told.

    Args:
        said: What the client says, for one request or for each of a batch.
        max_priority: As far as its key may differ from no priority, either way: engines count in both directions.

    Returns:
        None where the key may set none.

    Raises:
        RequestError: It says no whole number.
    """
    numbers = said if isinstance(said, list) else [said]
    if not all(type(number) is int for number in numbers):
        raise RequestError("priority must be a whole number", param="priority")
    if max_priority == 0:
        return None
    bounded = [max(-max_priority, min(number, max_priority)) for number in numbers]
    return bounded if isinstance(said, list) else bounded[0]
