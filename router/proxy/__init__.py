"""The data plane: client bytes in, worker bytes out, one placement between.

Speaks HTTP itself on both sides (`door`, `pool`); as an ASGI application it stands in front of the control routes.
Decides nothing: it reads a request, asks placement through its stimuli, carries out the instruction and reports how
it went, exactly once on every path.
"""
