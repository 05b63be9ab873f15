"""`python -m engine_shim.engine`: the engine command alone."""

from engine_shim.engine.command import main

main()
