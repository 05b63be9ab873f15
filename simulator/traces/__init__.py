"""Takes recorded agent traffic in three public forms, gives sessions that the demo can replay."""

from simulator.traces.history import History
from simulator.traces.lines import TraceError
from simulator.traces.reader import read_sessions
from simulator.traces.session import Session, TraceScale, Turn

__all__ = ["History", "Session", "TraceError", "TraceScale", "Turn", "read_sessions"]
