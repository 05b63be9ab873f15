"""The data plane: client bytes in, worker bytes out, one placement between.

Plain ASGI in front of the control routes. Decides nothing itself: it reads a request, asks placement through
its stimuli, carries out the instruction and reports how it went, exactly once on every path.
"""
