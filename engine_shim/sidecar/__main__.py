"""`python -m engine_shim.sidecar`."""

from engine_shim.sidecar.command import main

main()
