"""Components of cache groups as the native core knows them: by a rule where it has one, else by a number to ask for.

Takes the registry; gives the core one call for a group it has not met, and one for a boundary of a component whose
rule is not its own. Refers to no index, so that none is kept alive by its core.
"""

from prefix_index.components import Component, Full, Recovery, Registry, State, Window, is_prefix

#: How the core numbers the rules it has; any other prefix group has that of full attention.
_RULES: dict[type, int] = {Full: 1, Window: 2, State: 3}
_PREFIX_RULE, _OWN_RULE = 1, 4
_RECOVERIES = list(Recovery)
#: Most different components of one's own.
MAX_COMPONENTS = 4_096


class CoreComponents:
    """The registry as the core asks it."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        #: By number; those the core has a rule for come first.
        self._known: list[Component] = [Full(), Window(1), State()]
        self._numbers: dict[tuple[str | None, int | None, int | None], int] = {}

    def find(
        self, kind: str | None, group_idx: int | None, window_tokens: int | None
    ) -> tuple[int, int, int, int] | None:
        """Rule, recovery, window and number of a group's component; None where its rule is not known."""
        component = self._registry.find(kind, group_idx, window_tokens)
        if component is None:
            return None
        rule = _PREFIX_RULE if is_prefix(component) else _RULES.get(type(component), _OWN_RULE)
        number = self._find_number(component, (kind, group_idx, window_tokens))
        window = component.window_tokens if isinstance(component, Window) else 0
        return None if number is None else (rule, _RECOVERIES.index(component.recovery), window, number)

    def find_start(self, number: int, end_tokens: int) -> int:
        """First token that must be resident for a boundary; see `Component`."""
        return max(0, self._known[number].find_start(end_tokens))

    def find_name(self, number: int) -> str:
        """Name of a component."""
        return self._known[number].name

    def _find_number(self, component: Component, key: tuple[str | None, int | None, int | None]) -> int | None:
        if type(component) in _RULES:
            return _RULES[type(component)] - 1
        if key not in self._numbers:
            if len(self._known) >= MAX_COMPONENTS:
                return None
            self._numbers[key] = len(self._known)
            self._known.append(component)
        return self._numbers[key]
