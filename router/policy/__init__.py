"""Which candidate is best: one cost term a file, baselines beside them, all behind one interface.

Takes the request and a view of each candidate rank from placement; gives it a choice with every cost spelled out.
"""
