"""What can be configured: a frozen model for each section, its defaults and units, and errors that say what is valid.

Takes texts, variables and flags as values; gives the edges a whole configuration or one `ConfigError`, and each part
its own section. Pure: nothing is opened here (`router.config_files` reads files, and what they name).

`fleet` is the whole of a fleet's file and imports a module for each few sections; `policy` is the whole of a policy's.
Below them `model` (what sections are made of), `text` (YAML) and `sources` (which value counts); `docs` reads the
words above each key for `docs/config.md` and the schemas.
"""
