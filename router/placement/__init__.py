"""Stimuli in, instructions out: which rank runs which request, and what load that leaves there.

Takes arrivals, progress and fleet changes from the edges; gives them `Place` or `Reject` with the decision explained.
"""
