"""`python -m simulator.demo`: the same as `dovecote demo`."""

import typer

from simulator.demo.command import demo

if __name__ == "__main__":
    typer.run(demo)
