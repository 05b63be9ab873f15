"""A request body: checked and decoded once, forwarded as the bytes it came in.

Only the members that routing needs are decoded; all others are looked over for syntax and pass untouched.
Every defect of the client's JSON is a `RequestError` that says what is wrong, never a fault of the router.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from router.access.tenants import find_salt_problem
from router.errors import RequestError
from router.prompt import PromptInput
from router.proxy import splice
from router.proxy.api import SHAPES, Api
from router.proxy.kept import check_id, name_response, name_session
from router.proxy.members import decode_members, tell_fault

#: Fields that belong to the router: a rank, a prefill/decode pairing or where to fetch KV from is not the client's to
#: choose. `kv_hint` and `kv_router_hint` are what `kv_hints` was called before (NVIDIA/TensorRT-LLM#18153,
#: ai-dynamo/dynamo#13591).
ROUTED_FIELDS = ("routed_dp_rank", "data_parallel_rank")
INTERNAL_FIELDS = (
    "bootstrap_host", "bootstrap_port", "bootstrap_room", "bootstrap_pair_key", "decode_tp_size",
    "disagg_prefill_dp_rank", "kv_transfer_params", "kv_hints", "kv_hint", "kv_router_hint",
)  # fmt: skip
ROUTERS_FIELDS = (*ROUTED_FIELDS, *INTERNAL_FIELDS)
_ROUTERS_FIELDS = frozenset(ROUTERS_FIELDS)
#: Members whose contents engines take for members of their own: vLLM reads `kv_transfer_params` from `vllm_xargs` too.
HOLDERS = ("vllm_xargs", "extra_args", "extra_body", "custom_params", "sampling_params", "nvext")
_HOLDERS = frozenset(HOLDERS)
#: Members that name a conversation, in any of the forms agents use; small ones only.
_IDENTITY_FIELDS = ("session_id", "prompt_cache_key", "previous_response_id", "metadata", "user", "conversation_id")
_IDENTITY_FIELD_SET = frozenset(_IDENTITY_FIELDS)
_MAX_IDENTITY_BYTES = 4_096
#: Members beside messages and tools that say how a prompt is made.
_PROMPT_OPTIONS = frozenset(
    {
        "chat_template_kwargs", "add_generation_prompt", "continue_final_message", "tool_choice", "features",
        "add_special_tokens", "cache_salt",
    }
)  # fmt: skip
#: What the first item of a list of numbers starts with, and an empty list ends with.
_NUMBER_STARTS = frozenset(bytes((code,)) for code in b"-0123456789]")
_USAGE_WANTED = b'{"include_usage":true}'
_VALUES = msgspec.json.Decoder()


class RequestBody:
    """A checked JSON object and the few members the router reads."""

    def __init__(
        self,
        data: bytes,
        *,
        api: Api,
        salting: Callable[[str | None], str] | None = None,
        is_trusted: bool = False,
    ) -> None:
        """Check and decode.

        Args:
            data: The body.
            api: Which members make its prompt.
            salting: Makes the salt of its tenant out of the client's own; None leaves that one.
            is_trusted: Its client may set the router's own fields; what the router sets itself stands all the same.

        Raises:
            RequestError: Not a JSON object, a name twice, a required member absent or of the wrong kind. Messages
                and tools are decoded later, by `PromptInput`.
        """
        self.data = data
        self.api = api
        self._shape = SHAPES[api]
        members = decode_members(data)
        self._members, self._is_sound = members.by_name, members.is_sound
        if not self._is_sound and splice.has_repeated_names(data, self._members):
            raise RequestError("a member of the body stands twice")
        self._has_routed_fields = not is_trusted and not self._members.keys().isdisjoint(_ROUTERS_FIELDS)
        if self._has_routed_fields:
            self._refuse_internal_fields()
        if not is_trusted and not self._members.keys().isdisjoint(_HOLDERS):
            self._refuse_nested_fields()
        #: Model asked for; None where the client names none.
        self.model: str | None = self._typed("model", str)
        #: Whether the answer is to be streamed.
        self.stream: bool = self._typed("stream", bool) or False
        #: Salt that the router puts in the place of the client's; None where it does not.
        self.salt = None if salting is None else self._make_salt(salting)
        self.prompt_input = self._read_prompt()
        #: Prompts in the body, answers asked for to each, and over all of them.
        self.prompts = _count_prompts(self.prompt_input.prompt)
        self.choices_of_prompt = self._count_choices()
        self.choices = self.prompts * self.choices_of_prompt

    def _refuse_internal_fields(self) -> None:
        for name in INTERNAL_FIELDS:
            if self.get(name) is not None:
                raise RequestError(f"{name} is set by the router, not by clients", param=name)

    def _make_salt(self, salting: Callable[[str | None], str]) -> str:
        said = self.get("cache_salt")
        problem = find_salt_problem(said)
        if problem is not None:
            raise RequestError(problem, param="cache_salt")
        return salting(said)

    def _refuse_nested_fields(self) -> None:
        for holder in HOLDERS:
            found = find_name(self.get(holder), ROUTERS_FIELDS)
            if found is not None:
                raise RequestError(f"{found} is set by the router, not by clients", param=f"{holder}.{found}")

    def get(self, name: str) -> Any:
        """A member decoded, None where it is absent or null.

        Raises:
            RequestError: The member does not decode (a half surrogate pair, a number out of range).
        """
        raw = self._members.get(name)
        if raw is None:
            return None
        try:
            return _VALUES.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise RequestError(f"{name} cannot be read: {tell_fault(error)}", param=name) from error

    @property
    def adapters(self) -> list[str]:
        """Adapters that it names beside its model.

        Raises:
            RequestError: The member that names them is not what it should be.
        """
        return read_adapters(self.get("lora_path")) if "lora_path" in self._members else []

    @property
    def identity(self) -> dict[str, Any]:
        """The members that may name a conversation."""
        if self._members.keys().isdisjoint(_IDENTITY_FIELD_SET):
            return {}
        small = (n for n in _IDENTITY_FIELDS if n in self._members and len(self._members[n]) <= _MAX_IDENTITY_BYTES)
        return {name: self.get(name) for name in small}

    @property
    def pin(self) -> str | None:
        """State of one engine that the request rests on: the answer before it, or a session; None where it has none.

        Raises:
            RequestError: The member that names it is not what it should be.
        """
        session = self._find_session_pin()
        before = self.get("previous_response_id") if self.api is Api.RESPONSE else None
        if before is None:
            return session
        if session is not None:
            raise RequestError("previous_response_id and session_params name two places", param="session_params")
        return name_response(check_id(before, "previous_response_id"))

    def _find_session_pin(self) -> str | None:
        if "session_params" not in self._members:
            return None
        if len(self._members["session_params"]) > _MAX_IDENTITY_BYTES:
            raise RequestError(f"session_params is longer than {_MAX_IDENTITY_BYTES} bytes", param="session_params")
        params = self._typed("session_params", dict)
        session_id = None if params is None else params.get("id")
        return None if session_id is None else name_session(check_id(session_id, "session_params.id"))

    @property
    def keeps_response(self) -> bool:
        """Whether the engine is asked to keep its answer for later requests; it is unless told otherwise."""
        return self.api is Api.RESPONSE and self.get("store") is not False

    def get_raw(self, name: str) -> memoryview | None:
        """A member as it stands in the body, None where it is absent or null."""
        return self._members[name] if self._has(name) else None

    def find_members(self, names: frozenset[str]) -> list[str]:
        """Those of some names under which there is something, as they follow in the body."""
        if self._members.keys().isdisjoint(names):
            return []
        return [name for name in self._members if name in names and self._has(name)]

    def count_items(self, name: str) -> int:
        """Items of a list that are no numbers; 1 for anything else, ids of one prompt too."""
        raw = bytes(self._members[name][:64]).split(b"[", 1)
        if raw[0] or not raw[1:] or raw[1].lstrip()[:1] in _NUMBER_STARTS:
            return 1
        return len(self.get(name))

    def get_sampling(self, name: str) -> Any:
        """A member that says how to sample, wherever this form of request has those."""
        holder = self._shape.sampling_field
        if holder is None:
            return self.get(name)
        params = self.get(holder)
        # A batch may have one object for each prompt, all of which bring about as many answers.
        first = params[0] if isinstance(params, list) and params else params
        return first.get(name) if isinstance(first, dict) else None

    def _count_choices(self) -> int:
        n = None if self.api in {Api.RESPONSE, Api.MESSAGES} or not self._shape.generates else self.get_sampling("n")
        return n if type(n) is int and n > 0 else 1

    @property
    def max_output_tokens(self) -> int | None:
        """Longest answer that the client allows; None where it says nothing."""
        if not self._shape.generates:
            return 1
        said = [self.get_sampling(name) for name in self._shape.output_fields]
        limits = [limit for limit in said if type(limit) is int and limit > 0]
        return min(limits) if limits else None

    @property
    def wants_usage(self) -> bool:
        """Whether the client asked for the usage chunk of a stream."""
        options = self.get("stream_options")
        return isinstance(options, dict) and options.get("include_usage") is True

    def to_forward(self) -> tuple[bytes, bool]:
        """Bytes for the worker, and whether they ask for a usage chunk that the client did not ask for.

        The received bytes, but for a client's own rank fields, which are cut, the salt of its tenant, and
        `stream_options.include_usage`, which a stream needs for its count of cached tokens.
        """
        cuts = [name for name in ROUTERS_FIELDS if name in self._members] if self._has_routed_fields else []
        if not self._shape.forwards_model and "model" in self._members:
            cuts.append("model")
        asks = self.stream and self._shape.asks_for_usage and not self.wants_usage
        options = self.get("stream_options") if asks else None
        if asks and options is not None and not isinstance(options, dict):
            # The worker's answer to a malformed member is the client's to see.
            asks = False
        puts = {} if self.salt is None else {"cache_salt": msgspec.json.encode(self.salt)}
        if asks:
            is_new = "stream_options" not in self._members
            wanted = _USAGE_WANTED if is_new else msgspec.json.encode({**(options or {}), "include_usage": True})
            puts["stream_options"] = wanted
        if not puts and not cuts:
            return self.data, False
        if not cuts and self._members.keys().isdisjoint(puts):
            return splice.put_first(self.data, puts), asks
        return splice.splice(self.data, put=puts, cut=cuts), asks

    def _typed(self, name: str, kind: type[Any]) -> Any:
        value = self.get(name)
        if value is not None and not isinstance(value, kind):
            raise RequestError(f"{name} must be {kind.__name__}, not {type(value).__name__}", param=name)
        return value

    def _list_json(self, name: str) -> memoryview | None:
        """A member that is a list, as it stands in the body; None where it is absent or no list.

        Long conversations are decoded where their prompt is made: off the event loop, or only what is new in them.
        What does not decode is a `RequestError` there.
        """
        raw = self._members.get(name)
        return None if raw is None or raw[0] != ord("[") else raw

    def _read_prompt(self) -> PromptInput:
        fields = self._shape.prompt_fields
        messages = self._read_messages() if "messages" in fields else None
        found = None if messages is not None else next((name for name in fields if self._has(name)), None)
        if messages is None and found is None:
            raise RequestError(f"{' or '.join(fields[:2])} is missing", param=fields[0])
        given = self._read_options()
        options, is_response = given.pop("chat_template_kwargs", None), self.api is Api.RESPONSE
        return PromptInput(
            messages_json=messages,
            tools_json=self._list_json("tools"),
            template_options=options if isinstance(options, dict) else None,
            # A response's items are decoded where its chat is made: only what is new in them.
            prompt=None if found is None or found.endswith("_embeds") or is_response else self.get(found),
            field_names=frozenset(
                [name for name, raw in self._members.items() if len(raw) != 4 or raw.tobytes() != b"null"]
            ),
            unrenderable=None if self._shape.generates else "pooling",
            is_sound=self._is_sound,
            **given,
        )

    def _read_options(self) -> dict[str, Any]:
        """Members that say how the prompt is made."""
        given: dict[str, Any] = {}
        if not self._members.keys().isdisjoint(_PROMPT_OPTIONS):
            given = {name: self.get(name) for name in self._members if name in _PROMPT_OPTIONS}
        if self.salt is not None:
            given["cache_salt"] = self.salt
        return given

    def _read_messages(self) -> memoryview | None:
        """The messages as they stand in the body; None where there are none."""
        messages = self._list_json("messages")
        if messages is None:
            # Only a list is taken; this says so, of whatever else it is.
            self._typed("messages", list)
        return messages

    def _has(self, name: str) -> bool:
        """Whether a member is there and not null."""
        raw = self._members.get(name)
        return raw is not None and (len(raw) != 4 or raw.tobytes() != b"null")


def _count_prompts(prompt: object) -> int:
    return len(prompt) if isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list) else 1


def find_name(value: Any, names: Iterable[str]) -> str | None:
    """The first of some names that an object somewhere within a JSON value has; None where none has any."""
    wanted, stack = frozenset(names), [value]
    while stack:
        each = stack.pop()
        if isinstance(each, dict):
            found = next((name for name in each if name in wanted), None)
            if found is not None:
                return str(found)
            stack.extend(each.values())
        elif isinstance(each, list):
            stack.extend(each)
    return None


def read_adapters(said: Any) -> list[str]:
    """SGLang's `lora_path`: the name of an adapter, or one for each prompt, null where it is the plain model.

    Raises:
        RequestError: It is something else.
    """
    names = [each for each in (said if isinstance(said, list) else [said]) if each is not None]
    if not all(isinstance(name, str) for name in names):
        raise RequestError("lora_path must be str, or a list of them", param="lora_path")
    return names
