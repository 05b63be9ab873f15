"""The nouns of the fleet: ranks, their health, the load they report and its age.

Takes facts from discovery, probes and load reports; gives policy and placement a view of who may be chosen.
"""
