"""Captures of real engines, checked against the index.

Takes capture files, gives for every request what the index would have predicted beside what the
engine said, and why they differ where they do.
"""
