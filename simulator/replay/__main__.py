"""`python -m simulator.replay`: the same as `dovecote replay`."""

import typer

from simulator.replay.command import replay

if __name__ == "__main__":
    typer.run(replay)
