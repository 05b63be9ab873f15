"""The `dovecote` command: `serve` here, everything else from the entry points of the other packages.

Reads flags, files and the environment, once. Heavy imports stay inside the commands, and a command is imported
only when it is called, so that `dovecote --help` needs nothing but this file.
"""

import json
import os
import sys
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

if TYPE_CHECKING:
    from router.config.fleet import FleetConfig

ENTRY_POINT_GROUP = "dovecote.commands"
#: Which extra brings the packages a command needs.
_EXTRAS = {"torch": "engine", "triton": "engine"}
#: First lines of the commands of other packages, so that the list of commands imports none of them.
SHORT_HELP = {
    "demo": "Compare round robin with cache affinity on agent sessions, on a fleet started here.",
    "engine": "Serve a small real engine with cache events.",
    "recordings": "Captures of real engines.",
    "replay": "Send a recorded trace to any OpenAI-compatible endpoint, closed-loop, and measure it.",
    "sidecar": "Mirror the cache events of a real engine, and serve them with replay and snapshots.",
    "simulate": "Compare policies on recorded sessions with simulated engines, in virtual time.",
}


class LazyCommands(TyperGroup):
    """Commands of this file, and those that installed packages offer."""

    _is_listing = False

    # The command line library's own types differ between its versions, hence Any.
    def list_commands(self, ctx: Any) -> list[str]:
        """Names of all commands."""
        return sorted({*super().list_commands(ctx), *_offered()})

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command by name; one of another package is imported now."""
        own = super().get_command(ctx, cmd_name)
        offered = _offered()
        if own is not None or cmd_name not in offered:
            return own
        return _listed_command(cmd_name) if self._is_listing else load_command(offered[cmd_name])

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """The page of `--help`, for which no command is imported."""
        self._is_listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._is_listing = False


def _offered() -> dict[str, EntryPoint]:
    """Entry points by command name; none where the distribution is not installed."""
    return {entry.name: entry for entry in entry_points(group=ENTRY_POINT_GROUP)}


def load_command(entry: EntryPoint) -> Any:
    """Import a command: a `typer.Typer` becomes a group, a function a command.

    Where its packages are not there the result is a command that says what brings them, so that the help of
    the others still works.
    """
    try:
        target: Any = entry.load()
    except ModuleNotFoundError as error:
        target = _unavailable(_explain_missing(entry.name, error.name or str(error)))
    except (ImportError, AttributeError) as error:
        target = _unavailable(f"command {entry.name!r} cannot be loaded: {error}")
    app = typer.Typer(add_completion=False)
    if isinstance(target, typer.Typer):
        # Below an app of ours, so that it gets no options of its own about shell completion.
        app.add_typer(target, name=entry.name)
        return get_command(app).get_command(None, entry.name)  # type: ignore[attr-defined]
    app.command(name=entry.name, context_settings=getattr(target, "context_settings", None))(target)
    command = get_command(app)
    command.name = entry.name
    return command


def _listed_command(name: str) -> Any:
    """A command as far as the list of commands shows it."""
    app = typer.Typer(add_completion=False)
    app.command(name=name, help=SHORT_HELP.get(name, ""))(lambda: None)
    return get_command(app)


def _unavailable(reason: str) -> Any:
    def fail(_arguments: Annotated[list[str] | None, typer.Argument(hidden=True)] = None) -> None:
        typer.echo(f"error: {reason}", err=True)
        raise typer.Exit(1)

    fail.__doc__ = f"Not available: {reason}"
    fail.context_settings = {"ignore_unknown_options": True}  # type: ignore[attr-defined]
    return fail


def _explain_missing(command: str, module: str) -> str:
    extra = _EXTRAS.get(module.partition(".")[0])
    if extra is not None:
        return f"command {command!r} needs {module!r}; install it with: pip install 'dovecote[{extra}]'"
    return f"command {command!r} needs the module {module!r}, which is not installed"


main = typer.Typer(
    name="dovecote",
    cls=LazyCommands,
    no_args_is_help=True,
    add_completion=False,
    help="A cache-affinity request router for fleets of LLM engine replicas.",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        try:
            typer.echo(f"dovecote {version('dovecote')}")
        except PackageNotFoundError:
            typer.echo("dovecote, not installed: run from its source tree")
        raise typer.Exit


@main.callback()
def _root(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """A cache-affinity request router for fleets of LLM engine replicas."""


@main.command()
def serve(  # noqa: PLR0917  (the command line is named, not positional)
    config: Annotated[Path | None, typer.Option(help="fleet.yaml; flags override what it says.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 takes a free one and prints it.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on; loopback by default.")] = None,
    workers: Annotated[list[str] | None, typer.Option(help="URL of a worker; may be repeated or a list.")] = None,
    more_workers: Annotated[list[str] | None, typer.Argument(metavar="[URL]...", help="Further workers.")] = None,
    policy: Annotated[str | None, typer.Option(help="Placement policy.")] = None,
    tokenizer: Annotated[str | None, typer.Option(help="Folder with tokenizer.json.")] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
    *,
    anonymous: Annotated[
        bool, typer.Option("--anonymous", help="Serve without keys beyond loopback: open to all who reach it.")
    ] = False,
) -> None:
    """Route requests to a fleet of engines."""
    from router.errors import ConfigError  # noqa: PLC0415  (heavy imports stay inside commands)

    urls = [*(workers or []), *(more_workers or [])]
    try:
        fleet = read_config(
            config, flags_to_values(port, host, urls, policy, tokenizer, anonymous=anonymous), os.environ
        )
    except ConfigError as error:
        typer.echo(f"error: {error.message}", err=True)
        raise typer.Exit(2) from None
    run_router(fleet, log_level)


def flags_to_values(
    port: int | None,
    host: str | None,
    workers: list[str],
    policy: str | None,
    tokenizer: str | None,
    *,
    anonymous: bool = False,
) -> dict[str, Any]:
    """Flags in the shape of the configuration; absent ones are left out."""
    listen = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    urls = [url for entry in workers for url in entry.replace(",", " ").split()]
    values: dict[str, Any] = {}
    if listen:
        values["listen"] = listen
    if urls:
        values["workers"] = [{"url": url} for url in urls]
    if policy is not None:
        values["policy"] = {"name": policy}
    if anonymous:
        values["access"] = {"anonymous": True}
    if tokenizer is not None:
        values["tokenizer"] = {"path": tokenizer}
    return values


def read_config(path: Path | None, flags: dict[str, Any], environment: Any) -> "FleetConfig":
    """The configuration of this process: file, then environment, then flags.

    Raises:
        ConfigError: It cannot be read or used.
    """
    from router.config.fleet import build_fleet_config, load_fleet_config  # noqa: PLC0415
    from router.config.sources import COMMAND_LINE  # noqa: PLC0415
    from router.config_files import resolve_files  # noqa: PLC0415
    from router.regular_file import read_once  # noqa: PLC0415

    if path is None:
        fleet = build_fleet_config({}, COMMAND_LINE, environment, flags)
    else:
        fleet = load_fleet_config(read_once(path), str(path), environment, flags)
    return resolve_files(fleet, path)


@main.command()
def doctor(  # noqa: PLR0917  (the command line is named, not positional)
    config: Annotated[Path | None, typer.Option(help="fleet.yaml.")] = None,
    workers: Annotated[list[str] | None, typer.Option(help="URL of a worker; may be repeated or a list.")] = None,
    more_workers: Annotated[list[str] | None, typer.Argument(metavar="[URL]...", help="Further workers.")] = None,
    tokenizer: Annotated[str | None, typer.Option(help="Folder with tokenizer.json.")] = None,
    limit_s: Annotated[float, typer.Option(min=0.1, max=300.0, help="Longest wait for each answer, seconds.")] = 5.0,
    shows_all: Annotated[bool, typer.Option("--all", help="Show what is fine, too.")] = False,
    is_strict: Annotated[bool, typer.Option("--strict", help="Warnings count like problems.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Reach every engine of a fleet, and say what is wrong and what to change."""
    from router.doctor.command import run_doctor  # noqa: PLC0415  (heavy imports stay inside commands)
    from router.errors import ConfigError  # noqa: PLC0415

    urls = [*(workers or []), *(more_workers or [])]
    try:
        # Nobody listens here: a worker may have the port that a router takes by default.
        port = 0 if config is None else None
        fleet = read_config(config, flags_to_values(port, None, urls, None, tokenizer), os.environ)
    except ConfigError as error:
        typer.echo(f"error: {error.message}", err=True)
        raise typer.Exit(2) from None
    raise typer.Exit(run_doctor(fleet, limit_s, shows_all=shows_all, is_strict=is_strict, as_json=as_json))


@main.command("check-config")
def check_config(
    files: Annotated[list[Path] | None, typer.Argument(help="Of a fleet, a policy or keys; several at once.")] = None,
    schema: Annotated[str | None, typer.Option(help="Print the JSON schema instead: fleet or policy.")] = None,
) -> None:
    """Say whether configuration files can be used."""
    from router.config_files import check_file  # noqa: PLC0415
    from router.errors import ConfigError  # noqa: PLC0415

    if schema is not None:
        print_schema(schema)
        return
    if not files:
        typer.echo("error: no file given; dovecote check-config FILE...", err=True)
        raise typer.Exit(2)
    is_good = True
    for path in files:
        try:
            typer.echo(f"{path}: a good {check_file(path, os.environ)} configuration")
        except ConfigError as error:
            is_good = False
            typer.echo(f"error: {error.message}", err=True)
    if not is_good:
        raise typer.Exit(2)


@main.command("make-key")
def print_new_key(
    name: Annotated[str, typer.Argument(help="Name of the key in logs and metrics.")],
    role: Annotated[str | None, typer.Option(help="client, metrics or admin; client where left out.")] = None,
) -> None:
    """Draw a key, and print it with the entry for the configuration that knows only its digest."""
    import yaml  # noqa: PLC0415  (heavy imports stay inside commands)

    from router.access.keys import hash_key, make_key  # noqa: PLC0415
    from router.config.access import find_entry_problem  # noqa: PLC0415

    key = make_key()
    entry = {"name": name, "hash": hash_key(key)} | ({} if role is None else {"role": role})
    problem = find_entry_problem(entry)
    if problem is not None:
        typer.echo(f"error: {problem}", err=True)
        raise typer.Exit(2)
    typer.echo(f"# give this to the client; it cannot be shown again\n# {key}")
    typer.echo(yaml.safe_dump([entry], sort_keys=False), nl=False)


@main.command("hash-key")
def print_hash() -> None:
    """Read a key from standard input and print what the configuration holds of it."""
    from router.access.keys import find_key_problem, hash_key  # noqa: PLC0415

    key = sys.stdin.readline().rstrip("\r\n")
    problem = find_key_problem(key)
    if problem is not None:
        typer.echo(f"error: {problem}", err=True)
        raise typer.Exit(2)
    typer.echo(hash_key(key))


def print_schema(name: str) -> None:
    """The JSON schema of one kind of file."""
    from router.config.docs import describe_fleet_schema, describe_policy_schema  # noqa: PLC0415

    kinds = {"fleet": describe_fleet_schema, "policy": describe_policy_schema}
    if name not in kinds:
        typer.echo(f"error: no schema of {name!r}; valid: {', '.join(kinds)}", err=True)
        raise typer.Exit(2)
    typer.echo(json.dumps(kinds[name](), indent=2))


def run_router(config: "FleetConfig", log_level: str) -> None:
    """Serve until a signal ends it; prints where it listens once it does."""
    from router.server import serve_router  # noqa: PLC0415  (imports the whole router)

    serve_router(config, log_level)
