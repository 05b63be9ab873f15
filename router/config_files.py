"""Files of the configuration and those that they name: read, checked before a router uses them, their paths made whole.

`dovecote check-config FILE...` tells of each in a line. One that holds nothing but `keys` is a file of keys; one with a
key of the fleet's configuration is a fleet's; any other is a policy's. A fleet's is good only if those it names are.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from router.config.access import MIN_SECRET_CHARS, AccessConfig, load_keys
from router.config.discovery import load_workers
from router.config.fleet import FleetConfig, build_fleet_config
from router.config.model import ConfigModel
from router.config.policy import PolicyConfig, load_policy_config
from router.config.text import parse_config_text
from router.config.workers import WorkerConfig
from router.errors import ConfigError
from router.policy.catalogue import build_policies
from router.regular_file import read_once, read_still
from router.tls import ServerCertificate, make_worker_context

Section = TypeVar("Section", bound=ConfigModel)


#: Keys by which a file is known for a fleet's. `policy` alone is rather a policy's that begins one level too deep.
_FLEET_KEYS = frozenset(FleetConfig.model_fields) - {"policy"}


def check_policy(path: Path) -> PolicyConfig:
    """A policy file that can be used.

    Raises:
        ConfigError: It cannot.
    """
    return check_policy_text(read_still(path)[1], path)


def check_policy_text(text: str, path: Path) -> PolicyConfig:
    """The same for a text that was read.

    Raises:
        ConfigError: It cannot be used.
    """
    config = load_policy_config(text, str(path))
    build_policies(config)
    return config


def resolve_policy_file(fleet: FleetConfig, path: Path | None) -> FleetConfig:
    """The fleet with the whole path of its policy's file, that file checked; `path` is of the fleet's own file.

    Raises:
        ConfigError: The policy's file cannot be used.
    """
    if fleet.policy.file is None:
        build_policies(fleet.policy)
        return fleet
    named = Path(fleet.policy.file)
    whole = named if path is None else path.parent / named
    check_policy(whole)
    section = fleet.policy.model_copy(update={"file": str(whole.absolute())})
    return fleet.model_copy(update={"policy": section})


def resolve_files(fleet: FleetConfig, path: Path | None) -> FleetConfig:
    """The fleet with whole paths of all files that it names, each checked; `path` is of the fleet's own file.

    Raises:
        ConfigError: One of them cannot be used.
    """
    fleet = resolve_policy_file(fleet, path)
    base = Path.cwd() if path is None else path.parent.absolute()
    listen, access = fleet.listen, _resolve(fleet.access, base, ("keys_file", "salt_secret_file"))
    if listen.tls is not None:
        tls = _resolve(listen.tls, base, ("cert_file", "key_file", "client_ca_file"))
        ServerCertificate(tls)
        listen = listen.model_copy(update={"tls": tls})
    worker_tls = _resolve(fleet.worker_tls, base, ("ca_file", "cert_file", "key_file"))
    make_worker_context(worker_tls)
    workers = tuple(_read_key(_resolve(worker, base, ("api_key_file",))) for worker in fleet.workers)
    if access.keys_file is not None:
        load_keys(read_once(Path(access.keys_file)), access.keys_file)
    read_salt_secret(access)
    discovery = fleet.discovery
    if discovery.file is not None:
        file = _resolve(discovery.file, base, ("path",))
        check_workers_file(file.path)
        discovery = discovery.model_copy(update={"file": file})
    sections = {
        "discovery": discovery,
        "listen": listen,
        "access": access,
        "worker_tls": worker_tls,
        "workers": workers,
    }
    return fleet.model_copy(update=sections)


def check_workers_file(name: str) -> tuple[WorkerConfig, ...]:
    """The workers of a file that is read while the router runs, with the keys that their files hold.

    Raises:
        ConfigError: It cannot be used.
    """
    return check_workers_text(read_still(Path(name))[1], name)


def check_workers_text(text: str, name: str) -> tuple[WorkerConfig, ...]:
    """The same for a text that was read.

    Raises:
        ConfigError: It cannot be used.
    """
    base = Path(name).parent
    return tuple(_read_key(_resolve(worker, base, ("api_key_file",))) for worker in load_workers(text, name))


def _read_key(worker: WorkerConfig) -> WorkerConfig:
    """A worker with the key that its file holds."""
    if worker.api_key_file is None:
        return worker
    key = read_once(Path(worker.api_key_file)).strip()
    try:
        return WorkerConfig.model_validate(worker.model_dump(exclude={"api_key_file"}) | {"api_key": key})
    except ValidationError:
        problem = "the key in it is not one line of printable ASCII characters"
        raise ConfigError(
            file_name=worker.api_key_file, key_path="", value=None, problem=problem, shows_value=False
        ) from None


def _resolve(section: Section, base: Path, keys: tuple[str, ...]) -> Section:
    """A section whose files start at a folder."""
    named = {key: getattr(section, key) for key in keys}
    return section.model_copy(update={key: str(base / name) for key, name in named.items() if name is not None})


def read_salt_secret(access: AccessConfig) -> bytes | None:
    """What the salts of tenants are made from; None where nothing is configured.

    Raises:
        ConfigError: The file that holds it cannot be read, or it is too short.
    """
    if access.salt_secret is not None:
        return access.salt_secret.get_secret_value().encode()
    if access.salt_secret_file is None:
        return None
    secret = read_once(Path(access.salt_secret_file)).strip()
    if len(secret) < MIN_SECRET_CHARS:
        problem = f"the secret in it has fewer than {MIN_SECRET_CHARS} characters"
        raise ConfigError(
            file_name=access.salt_secret_file, key_path="", value=None, problem=problem, shows_value=False
        )
    return secret.encode()


def check_file(path: Path, environment: Mapping[str, str]) -> str:
    """What kind of file it is, in a word.

    Raises:
        ConfigError: It cannot be used.
    """
    text = read_once(path)
    data: Any = parse_config_text(text, str(path))
    if isinstance(data, Mapping) and set(data) == {"keys"}:
        load_keys(text, str(path))
        return "keys"
    if isinstance(data, Mapping) and not _FLEET_KEYS.isdisjoint(data):
        resolve_files(build_fleet_config(data, str(path), environment), path)
        return "fleet"
    check_policy(path)
    return "policy"
