"""The control plane: what the workers are, whether they live, how busy they say they are, and the admin routes.

Reads engines over HTTP at its own pace and hands values to placement and events. Never touches a request.
"""
