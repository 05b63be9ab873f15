"""The command line: flags over environment over file, and commands of other packages only when called."""

import subprocess
import sys
import types
from importlib.metadata import EntryPoint

import pytest
import typer
import yaml
from typer.testing import CliRunner

from router import cli
from router.access.keys import hash_key
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


def test_a_file_that_cannot_be_read_is_named_once(tmp_path):
    path = tmp_path / "absent.yaml"
    with pytest.raises(ConfigError) as caught:
        cli.read_config(path, {}, {})
    assert str(caught.value) == f"{path}: cannot be read: No such file or directory"
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"absent\.yaml: is not UTF-8 text$"):
        cli.read_config(path, {}, {})


def test_workers_of_the_command_line_serve_a_file_without_any(tmp_path):
    path = tmp_path / "fleet.yaml"
    path.write_text("listen: {port: 9000}\n")
    config = cli.read_config(path, cli.flags_to_values(None, None, ["http://a:1"], None, None), {})
    assert (config.listen.port, config.workers[0].url) == (9000, "http://a:1")


def test_flags_go_before_the_environment_without_a_file_too():
    flags = cli.flags_to_values(9002, None, ["http://a:1"], None, None)
    assert cli.read_config(None, flags, {"DOVECOTE__LISTEN__PORT": "9001"}).listen.port == 9002


def test_serving_without_workers_says_what_is_missing():
    result = run("serve", "--port", "0")
    assert result.exit_code == 2
    assert "no worker given: use --workers URL or `workers:` in --config" in result.stderr


@pytest.fixture
def offered(monkeypatch):
    def offer(name, **members):
        module = types.ModuleType("offered_for_a_test")
        for member, target in members.items():
            setattr(module, member, target)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        entry = EntryPoint(name, f"{module.__name__}:{next(iter(members))}", cli.ENTRY_POINT_GROUP)
        monkeypatch.setattr(cli, "entry_points", lambda **_: [entry])

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

    monkeypatch.setattr(cli, "entry_points", lambda group: [Broken("heavy", "x:y", group)])
    result = run("heavy", "--flag", "value")
    assert result.exit_code == 1
    assert words in result.stderr
    assert run("--help").exit_code == 0


def test_the_list_of_commands_imports_none_of_them():
    code = (
        "import sys, router.cli, typer.testing as t; r = t.CliRunner().invoke(router.cli.main, ['--help']);"
        "print([m for m in sys.modules if m.split('.')[0] in ('simulator', 'engine_shim')], r.exit_code)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[] 0"


@pytest.mark.parametrize("name", sorted(cli.SHORT_HELP))
def test_the_list_of_commands_says_what_each_says_of_itself(name):
    offered = cli.entry_points(group=cli.ENTRY_POINT_GROUP)
    if name not in offered.names:
        pytest.skip("the distribution is not installed")
    assert cli.load_command(offered[name]).help.strip().splitlines()[0] == cli.SHORT_HELP[name]


def test_every_offered_command_has_a_line_in_the_list():
    assert cli.entry_points(group=cli.ENTRY_POINT_GROUP).names <= set(cli.SHORT_HELP)


def test_the_version_is_printed():
    result = run("--version")
    assert result.exit_code == 0
    assert result.stdout.startswith("dovecote")


def test_no_command_has_options_about_shell_completion(offered):
    app = typer.Typer()
    app.command("one")(lambda: None)
    app.command("two")(lambda: None)
    offered("numbers", app=app)
    assert "completion" not in run("numbers", "--help").stdout


def test_without_an_installed_distribution_there_is_serve(monkeypatch):
    monkeypatch.setattr(cli, "entry_points", lambda **_: [])
    result = run("--help")
    assert result.exit_code == 0
    assert "serve" in result.stdout
    assert run("demo").exit_code == 2


def test_importing_the_command_line_imports_nothing_heavy():
    heavy = ("fastapi", "aiohttp", "zmq", "torch", "pydantic")
    code = f"import sys, router.cli; print([m for m in {heavy} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_a_made_key_comes_with_the_entry_that_knows_only_its_digest():
    result = run("make-key", "ci")
    key = result.stdout.splitlines()[1].removeprefix("# ")
    (entry,) = yaml.safe_load(result.stdout)
    assert entry == {"name": "ci", "hash": hash_key(key)}


def test_a_made_key_is_of_the_role_asked_for_and_its_name_stays_text():
    (entry,) = yaml.safe_load(run("make-key", "123", "--role", "metrics").stdout)
    assert (entry["name"], entry["role"]) == ("123", "metrics")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [(["two words"], "name"), (["anonymous"], "name"), (["ci", "--role", "king"], "role")],
)
def test_no_key_is_drawn_for_an_entry_that_would_be_refused(arguments, named):
    result = run("make-key", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"error: {named}: ")


def test_a_key_is_hashed_from_standard_input_and_a_short_one_refused():
    key = "k" * 40
    assert CliRunner().invoke(cli.main, ["hash-key"], input=key + "\n").stdout == hash_key(key) + "\n"
    refused = CliRunner().invoke(cli.main, ["hash-key"], input="hunter2\n")
    assert refused.exit_code == 2
    assert "32 to 512 characters" in refused.stderr
