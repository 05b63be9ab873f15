"""The command line: flags over environment over file, and commands of other packages only when called."""

import subprocess
import sys
import types
from importlib.metadata import EntryPoint

import pytest
import typer
from typer.testing import CliRunner

from router import cli
from router.errors import ConfigError

FILE = """
listen: {port: 9000}
workers: [{url: "http://a:1"}, {url: "http://b:1"}]
policy: {name: round_robin, weights: {wait: 2.0}}
"""


@pytest.fixture
def fleet_file(tmp_path):
    path = tmp_path / "fleet.yaml"
    path.write_text(FILE)
    return path


def run(*arguments):
    return CliRunner().invoke(cli.main, list(arguments))


def test_flags_go_before_the_environment_and_that_before_the_file(fleet_file):
    environment = {"DOVECOTE__LISTEN__PORT": "9001", "DOVECOTE__POLICY__NAME": "random"}
    flags = cli.flags_to_values(9002, None, [], None, None)
    config = cli.read_config(fleet_file, flags, environment)
    assert (config.listen.port, config.policy.name, config.policy.weights.wait) == (9002, "random", 2.0)
    assert len(config.workers) == 2


def test_workers_are_listed_in_every_way_people_write_them():
    flags = cli.flags_to_values(0, "127.0.0.1", ["http://a:1,http://b:1", "http://c:1"], "least_load", "/t")
    config = cli.read_config(None, flags, {})
    assert [worker.url for worker in config.workers] == ["http://a:1", "http://b:1", "http://c:1"]
    assert config.tokenizer.path == "/t"
    assert config.policy.name == "least_load"


def test_a_bad_configuration_stops_with_file_key_and_value(tmp_path):
    path = tmp_path / "fleet.yaml"
    path.write_text("workers: [{url: 'http://a:1'}]\nlimts: 3\n")
    result = run("serve", "--config", str(path))
    assert result.exit_code == 2
    assert "limts" in result.stderr
    assert "limits" in result.stderr
    with pytest.raises(ConfigError, match="cannot be read"):
        cli.read_config(tmp_path / "absent.yaml", {}, {})


def test_serving_without_workers_says_what_is_missing():
    result = run("serve", "--port", "0")
    assert result.exit_code == 2
    assert "workers" in result.stderr


@pytest.fixture
def offered(monkeypatch):
    def offer(name, **members):
        module = types.ModuleType("offered_for_a_test")
        for member, target in members.items():
            setattr(module, member, target)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        entry = EntryPoint(name, f"{module.__name__}:{next(iter(members))}", cli.ENTRY_POINT_GROUP)
        monkeypatch.setattr(cli, "_offered", lambda: {name: entry})

    return offer


def test_a_function_becomes_a_command(offered):
    def greet(name: str = "you") -> None:
        typer.echo(f"hello {name}")

    offered("greet", greet=greet)
    assert run("greet", "--name", "bird").stdout == "hello bird\n"


def test_an_app_becomes_a_group_of_commands(offered):
    app = typer.Typer()
    app.command("one")(lambda: typer.echo("1"))
    app.command("two")(lambda: typer.echo("2"))
    offered("numbers", app=app)
    assert run("numbers", "two").stdout == "2\n"


@pytest.mark.parametrize(
    ("module", "words"), [("torch", "pip install 'dovecote[engine]'"), ("absent_module", "'absent_module'")]
)
def test_a_command_whose_packages_are_missing_says_what_to_install(monkeypatch, module, words):
    class Broken(EntryPoint):
        def load(self):
            raise ModuleNotFoundError(name=f"{module}.nn" if module == "torch" else module)

    monkeypatch.setattr(cli, "_offered", lambda: {"heavy": Broken("heavy", "x:y", cli.ENTRY_POINT_GROUP)})
    result = run("heavy", "--flag", "value")
    assert result.exit_code == 1
    assert words in result.stderr
    assert run("--help").exit_code == 0


def test_without_an_installed_distribution_there_is_serve(monkeypatch):
    monkeypatch.setattr(cli, "_offered", dict)
    result = run("--help")
    assert result.exit_code == 0
    assert "serve" in result.stdout
    assert run("demo").exit_code == 2


def test_importing_the_command_line_imports_nothing_heavy():
    heavy = ("fastapi", "aiohttp", "zmq", "torch", "pydantic")
    code = f"import sys, router.cli; print([m for m in {heavy} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
