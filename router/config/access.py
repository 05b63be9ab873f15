"""The `access:` of the configuration: keys, tenants, what is open.

Keys stand here, or in a file of their own that is read again when it changes, as digests: what `dovecote make-key` and
`dovecote hash-key` print. No value of a wrong key is ever shown: it may be the key itself, pasted in the wrong place.
"""

from collections.abc import Mapping
from enum import StrEnum
from ipaddress import ip_address
from typing import Annotated, Self

from pydantic import Field, SecretStr, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from router.access import Key, Principal, Role
from router.access.keys import read_digest
from router.access.principal import KeyLimits
from router.config.model import ConfigModel, Count, SizeBytes, Text, describe_refusal
from router.config.text import parse_config_text
from router.errors import ConfigError

#: Names of keys and tenants are labels of metrics and words of logs.
NamePattern = Annotated[str, Field(strict=True, pattern=r"^[A-Za-z0-9._\-]{1,64}$")]
MAX_KEYS = 10_000
MIN_SECRET_CHARS = 32
_HIDDEN = "(not shown)"
#: Names that mean something here: nobody's key may be called so.
_RESERVED = frozenset({"anonymous", "none", "unknown"})


class Isolation(StrEnum):
    """Whether tenants share what engines have cached."""

    #: Each tenant's prompts are salted: what others have cached is neither used nor told by times.
    TENANT = "tenant"
    #: All share, and a client's own `cache_salt` is passed on as it is.
    SHARED = "shared"


class KeyLimitsConfig(ConfigModel):
    """Bounds on what one key may ask for; none where left out."""

    #: Requests a minute, with bursts of as many.
    requests_per_minute: Count | None = None
    #: Prompt and output tokens a minute; an answer that went over it is paid off before the next request.
    tokens_per_minute: Count | None = None
    #: Requests under way at once, those that wait in the queue included.
    concurrent_requests: Count | None = None
    #: Longest request body; `limits.body_bytes` holds as well.
    body_bytes: SizeBytes | None = None


class KeyConfig(ConfigModel):
    """One key."""

    #: Name in logs, metrics and decisions.
    name: NamePattern
    #: `sha256:` and 64 digits, as `dovecote make-key` and `dovecote hash-key` print it.
    hash: Text
    #: Whose cache, sessions and share of the queue it has part in; the key's own name where left out.
    tenant: NamePattern | None = None
    #: `client` opens the paths of the APIs, `metrics` the page that Prometheus scrapes, `admin` everything.
    role: Role = Role.CLIENT
    #: Whether its requests may set the router's own fields: ranks, pairs of prefill and decode, hints.
    trusted: Annotated[bool, Field(strict=True)] = False
    #: Models it may ask for; all where left out.
    models: Annotated[tuple[Text, ...], Field(min_length=1, max_length=1_000)] | None = None
    limits: KeyLimitsConfig = KeyLimitsConfig()
    #: Highest priority that a request of it may ask for: of the router's queue (`x-dovecote-priority`), and of engines'
    #: (`priority` in a body, which is kept within so much above and below 0, and left out where this is 0).
    max_priority: Annotated[int, Field(strict=True, ge=0, le=9)] = 0

    @model_validator(mode="after")
    def _usable(self) -> Self:
        if read_digest(self.hash) is None:
            problem = "needs sha256: and 64 hexadecimal digits; `dovecote hash-key` makes it of a key"
            raise _refuse_hidden("hash", problem)
        for key in ("name", "tenant"):
            value = getattr(self, key)
            if value in _RESERVED:
                problem = f"{', '.join(sorted(_RESERVED))} are words of the router; choose another name"
                raise PydanticCustomError("reserved", "{problem}", {"key": key, "value": value, "problem": problem})
        return self

    def to_key(self) -> Key:
        """For the gate."""
        digest = read_digest(self.hash)
        if digest is None:
            raise AssertionError("unreachable: the hash was checked")
        principal = Principal(
            name=self.name,
            tenant=self.tenant or self.name,
            role=self.role,
            is_trusted=self.trusted,
            models=None if self.models is None else frozenset(self.models),
            limits=KeyLimits(**self.limits.model_dump()),
            max_priority=self.max_priority,
        )
        return Key(digest, principal)


Keys = Annotated[tuple[KeyConfig, ...], Field(max_length=MAX_KEYS)]


class KeysFile(ConfigModel):
    """The whole of a file of keys."""

    keys: Keys = ()

    @model_validator(mode="after")
    def _keys_differ(self) -> Self:
        check_keys_differ(self.keys)
        return self


class AccessConfig(ConfigModel):
    """Who may ask the router for what."""

    #: Keys of clients and operators. With none, here and in a file, whoever reaches the router may do everything.
    keys: Keys = ()
    #: A YAML file with `keys:`, read again when it changes and at SIGHUP, beside those above. A relative path starts
    #: at the folder of the fleet's file.
    keys_file: Text | None = None
    #: Serve calls without a good key. Without any keys it lets a router listen beyond loopback, open to all; with
    #: keys such calls are of the tenant `anonymous`, for clients' paths only.
    anonymous: Annotated[bool, Field(strict=True)] = False
    #: Paths that need no key, each as it is spelled.
    open_paths: Annotated[tuple[Text, ...], Field(max_length=100)] = ("/health", "/livez", "/readyz")
    #: Whether tenants share what engines have cached.
    isolation: Isolation = Isolation.TENANT
    #: What the salts of tenants are made from, at least 32 characters; equal on all routers of a fleet, or their
    #: tenants miss each other's cache. Drawn anew at each start where left out. Better in `salt_secret_file`.
    salt_secret: SecretStr | None = None
    #: A file that holds it.
    salt_secret_file: Text | None = None
    #: Pass a client's key on to engines that have no `api_key` of their own. By default only a router without keys
    #: does, whose clients' keys can only be meant for the engines.
    forward_client_keys: Annotated[bool, Field(strict=True)] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        check_keys_differ(self.keys)
        if self.salt_secret is not None and len(self.salt_secret.get_secret_value()) < MIN_SECRET_CHARS:
            raise _refuse_hidden("salt_secret", f"has fewer than {MIN_SECRET_CHARS} characters")
        if self.salt_secret is not None and self.salt_secret_file is not None:
            raise _refuse_hidden("salt_secret", "stands in salt_secret_file as well; leave out one of the two keys")
        for place, path in enumerate(self.open_paths):
            if not path.startswith("/"):
                key = f"open_paths.{place}"
                raise PydanticCustomError(
                    "bad_path", "{problem}", {"key": key, "value": path, "problem": "a path starts with /"}
                )
        return self

    @property
    def forwards_keys(self) -> bool:
        """Whether a client's key goes on to the engines."""
        return not self.has_keys if self.forward_client_keys is None else self.forward_client_keys

    @property
    def has_keys(self) -> bool:
        """Whether anybody is asked for a key."""
        return bool(self.keys) or self.keys_file is not None


def check_keys_differ(keys: tuple[KeyConfig, ...]) -> None:
    """Raise where two keys have one name or one digest."""
    for what in ("name", "hash"):
        seen: dict[str, int] = {}
        for place, key in enumerate(keys):
            first = seen.setdefault(getattr(key, what), place)
            if first != place:
                raise _refuse_hidden(f"keys.{place}.{what}", f"the same {what} as keys.{first}")


def _refuse_hidden(key: str, problem: str) -> PydanticCustomError:
    told = {"value": _HIDDEN, "problem": problem, "key": key}
    return PydanticCustomError("refused", "{problem}", told)


def find_entry_problem(entry: Mapping[str, str]) -> str | None:
    """Why an entry of `keys` could not be used, with its key; None where it could."""
    try:
        KeyConfig.model_validate(entry)
    except ValidationError as error:
        path, _, problem, _ = describe_refusal(error.errors(include_url=False)[0])
        return f"{'.'.join(path)}: {problem}"
    return None


def load_keys(text: str, file_name: str) -> tuple[Key, ...]:
    """The keys in a file's text, all of them or none.

    Raises:
        ConfigError: names the file, key path and what would be valid; never a value.
    """
    data = parse_config_text(text, file_name)
    if not isinstance(data, Mapping):
        problem = "the top must be a mapping with the key keys"
        raise ConfigError(file_name=file_name, key_path="", value=None, problem=problem, shows_value=False)
    try:
        parsed = KeysFile.model_validate(data)
    except ValidationError as error:
        path, _, problem, _ = describe_refusal(error.errors(include_url=False)[0])
        raise ConfigError(
            file_name=file_name, key_path=".".join(path), value=None, problem=problem, shows_value=False
        ) from None
    return tuple(key.to_key() for key in parsed.keys)


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
