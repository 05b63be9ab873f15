"""`dovecote recordings check FILE...`: is the index right about a real engine?"""

from pathlib import Path
from typing import Annotated

import typer

from router.recordings.capture import EXPECTED, CaptureError, read_capture
from router.recordings.check import CaptureReport, RecordingCheck

recordings = typer.Typer(
    name="recordings", add_completion=False, help="Captures of real engines.", no_args_is_help=True
)


@recordings.callback()
def main() -> None:
    """Captures of real engines."""


@recordings.command()
def check(
    files: Annotated[list[Path], typer.Argument(help="Captures, one JSON object a line.", metavar="FILE...")],
) -> None:
    """Compare, for every request of the captures, predicted with actual reuse; exit 1 where they differ unexplained."""
    is_explained = True
    for path in files:
        try:
            with path.open(encoding="utf-8") as lines:
                report = RecordingCheck(read_capture(str(path), lines)).run()
        except (OSError, UnicodeDecodeError, CaptureError) as error:
            typer.echo(f"error: {_say(path, error)}", err=True)
            raise typer.Exit(2) from error
        typer.echo(render(report))
        is_explained &= report.is_explained
    if not is_explained:
        raise typer.Exit(1)


def _say(path: Path, error: Exception) -> str:
    """What is wrong with a file, in our words."""
    if isinstance(error, CaptureError):
        return str(error)
    if isinstance(error, OSError):
        return f"{path} cannot be read: {error.strerror}"
    return f"{path} is no capture: it is not UTF-8 text; {EXPECTED}"


def render(report: CaptureReport) -> str:
    """A line a request, and the counts by class."""
    lines = [report.name, f"  {'request':>7}  {'predicted':>9}  {'actual':>6}  class"]
    for verdict in report.verdicts:
        number = f"#{verdict.number}"
        lines.append(f"  {number:>7}  {verdict.predicted_tokens:>9}  {verdict.actual_tokens:>6}  {verdict.class_}")
    counts = ", ".join(f"{count} {class_}" for class_, count in sorted(report.counts.items()))
    lines.append(f"  {len(report.verdicts)} requests: {counts or 'none'}; {report.uncounted} without token counts")
    return "\n".join(lines)
