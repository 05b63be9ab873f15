"""The code that a chat template is compiled to: jinja's, with what could grow charged to a budget.

A loop's and a macro's body begins with the charge of its elements; operators, outputs, calls and made lists go through
`operators` and `methods`. What cannot grow (a comparison with a constant, an attribute, a condition) stays Python's
own, which keeps usual templates as fast as jinja's.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame, operators

#: Elements a template may have; the largest published ones have some 1,000.
MAX_NODES = 10_000
#: Elements within each other; published templates have 20 at most. What compiles them takes the cube of it.
MAX_DEPTH = 100
#: Names that mean a method of a plain object and not its member.
DICT_NAMES = frozenset(dir(dict))
LOOP_NAMES = frozenset({"first", "last", "index", "index0", "revindex", "revindex0", "length"})
#: Name of the filter that charges the items of a loop with a condition; no template can write it.
CHARGED_ITEMS = "charged items"

#: Operands in one call: what one operation makes is at most so many times as long as the longest of them.
_OPERANDS_AT_ONCE = 4
#: Characters of a constant that count as an element.
_CHARS_PER_NODE = 64
_ALLOWED = (
    nodes.Add, nodes.And, nodes.Assign, nodes.AssignBlock, nodes.Break, nodes.Call, nodes.CallBlock, nodes.Compare,
    nodes.Concat, nodes.CondExpr, nodes.Const, nodes.Continue, nodes.Dict, nodes.Div, nodes.Filter, nodes.FilterBlock,
    nodes.FloorDiv, nodes.For, nodes.Getattr, nodes.Getitem, nodes.If, nodes.Keyword, nodes.List, nodes.Macro,
    nodes.Mod, nodes.Mul, nodes.NSRef, nodes.Name, nodes.Neg, nodes.Not, nodes.Operand, nodes.Or, nodes.Output,
    nodes.Pair, nodes.Pos, nodes.Pow, nodes.Slice, nodes.Sub, nodes.Template, nodes.TemplateData, nodes.Test,
    nodes.Tuple, nodes.With,
)  # fmt: skip
_COMPARISONS = {"eq": "eq", "ne": "ne", "gt": "gt", "gteq": "ge", "lt": "lt", "lteq": "le"}
_WEIGHTS: dict[type[nodes.Node], int] = {nodes.Call: 8, nodes.Filter: 8, nodes.Test: 4, nodes.CallBlock: 8}


def _weigh(node: nodes.Node) -> int:
    """Elements in a node, without those of loops and macros in it, which charge themselves."""
    if isinstance(node, nodes.Const | nodes.TemplateData):
        value = node.value if isinstance(node, nodes.Const) else node.data
        return 1 + (len(value) // _CHARS_PER_NODE if isinstance(value, str) else 0)
    weight = _WEIGHTS.get(type(node), 1)
    outside = ("body",) if isinstance(node, nodes.For | nodes.Macro) else ()
    return weight + sum(map(_weigh, node.iter_child_nodes(exclude=outside)))


def _weigh_all(body: Iterable[nodes.Node]) -> int:
    return 1 + sum(map(_weigh, body))


def _charge_items(items: nodes.Node, steps: int) -> nodes.Filter:
    """An expression whose items are charged when it is evaluated, or as they come."""
    cost: list[nodes.Expr] = [nodes.Const(steps, lineno=items.lineno)]
    return nodes.Filter(items, CHARGED_ITEMS, cost, [], None, None, lineno=items.lineno)


def _iter_nodes(root: nodes.Node) -> Iterator[tuple[nodes.Node, int]]:
    """Every element and how many are around it."""
    left = [(root, 0)]
    while left:
        node, depth = left.pop()
        yield node, depth
        left += ((child, depth + 1) for child in node.iter_child_nodes())


def _is_plain(node: nodes.Node) -> bool:
    """Whether comparing with a node takes no time worth charging: a constant, a number or a truth value."""
    if isinstance(node, nodes.Filter):
        return node.name in ("length", "count")
    if isinstance(node, nodes.List | nodes.Tuple):
        return all(isinstance(item, nodes.Const) for item in node.items)
    return isinstance(node, nodes.Const | nodes.Compare | nodes.Test | nodes.Not)


class ChargingGenerator(CodeGenerator):
    """Generates the code of one template."""

    #: Charges of bodies, by identity of their lists.
    _charges: dict[int, int]

    def visit_Template(self, node: nodes.Template, frame: Frame | None = None) -> None:  # noqa: N802  (jinja's name)
        """Check and weigh the whole before any code is written."""
        self._charges = {}
        for count, (one, depth) in enumerate(_iter_nodes(node), 1):
            if not isinstance(one, _ALLOWED):
                self.fail(f"{type(one).__name__} is not for chat templates", one.lineno)
            if count > MAX_NODES or depth > MAX_DEPTH:
                limits = f"{MAX_NODES:,} elements, {MAX_DEPTH} within each other"
                self.fail(f"it exceeds the limit of {limits}", one.lineno)
            if isinstance(one, nodes.For | nodes.Macro | nodes.CallBlock):
                self._charges[id(one.body)] = _weigh_all(one.body)
        for one, _ in list(_iter_nodes(node)):
            if isinstance(one, nodes.For) and one.test is not None:
                one.iter = _charge_items(one.iter, _weigh(one.test))
            elif isinstance(one, nodes.Call | nodes.Filter | nodes.Test):
                one.dyn_args = one.dyn_args and _charge_items(one.dyn_args, 1)
                one.dyn_kwargs = one.dyn_kwargs and _charge_items(one.dyn_kwargs, 1)
        super().visit_Template(node, frame)

    def write_commons(self) -> None:
        """Short names for what is called most."""
        super().write_commons()
        self.writeline("budget = context.budget")
        self.writeline("concat, plus, tilde, show = budget.join, budget.plus, budget.tilde, budget.show")

    def blockvisit(self, nodes: Iterable[nodes.Node], frame: Frame) -> None:
        """Charge a body before what stands in it."""
        charge = self._charges.get(id(nodes))
        if charge is not None:
            self.writeline(f"budget.steps_left -= {charge}")
            self.writeline("if budget.steps_left < 0: budget.refill()")
        super().blockvisit(nodes, frame)

    def pop_assign_tracking(self, frame: Frame) -> None:
        """What is assigned in a loop is for calls that take a context, and there are none."""
        if frame.loop_frame:
            self._assign_stack.pop()
        else:
            super().pop_assign_tracking(frame)

    def visit_Add(self, node: nodes.BinExpr, frame: Frame) -> None:  # noqa: N802
        """A chain of additions, mostly of texts, in one call."""
        operands: list[nodes.Expr] = []
        one: nodes.Expr = node
        while isinstance(one, nodes.Add):
            operands.append(one.right)
            one = one.left
        operands = _merge_texts([one, *reversed(operands)])
        if any(_is_plain(operand) and not _is_text(operand) for operand in operands):
            super().visit_Add(node, frame)
        else:
            self._write_joined("plus", operands, frame)

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802
        """`~`."""
        self._write_joined("tilde", _merge_texts(node.nodes), frame)

    def visit_Compare(self, node: nodes.Compare, frame: Frame) -> None:  # noqa: N802
        """A comparison, charged where both sides can be large."""
        if len(node.ops) > 1:
            self._write_chain(node, frame)
            return
        name, other = node.ops[0].op, node.ops[0].expr
        if _is_plain(other) or (_is_plain(node.expr) and name not in ("in", "notin")):
            super().visit_Compare(node, frame)
            return
        if name in ("in", "notin"):
            self._write_call(
                "(not budget.contains(" if name == "notin" else "(budget.contains(", (other, node.expr), frame
            )
        else:
            self._write_call(f"(budget.compare({_COMPARISONS[name]!r}, ", (node.expr, other), frame)
        self.write(")")

    def visit_Getattr(self, node: nodes.Getattr, frame: Frame) -> None:  # noqa: N802
        """A member, straight from a dict that has it."""
        if isinstance(node.node, nodes.Name) and node.node.name == "loop" and node.attr in LOOP_NAMES:
            self._write_member("getattr", node.node, node.attr, frame, kind="LoopContext")
        elif node.attr in DICT_NAMES:
            super().visit_Getattr(node, frame)
        else:
            self._write_member("getattr", node.node, node.attr, frame)

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:  # noqa: N802
        """An item, or a slice."""
        if isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str):
            self._write_member("getitem", node.node, node.arg.value, frame)
            return
        if not isinstance(node.arg, nodes.Slice):
            super().visit_Getitem(node, frame)
            return
        none = nodes.Const(None)
        bounds = (node.arg.start, node.arg.stop, node.arg.step)
        self._write_call("budget.cut(", (node.node, *(bound or none for bound in bounds)), frame)

    def visit_Call(self, node: nodes.Call, frame: Frame, forward_caller: bool = False) -> None:  # noqa: N802
        """A call; that of a method does without the method as a value."""
        if isinstance(node.node, nodes.Getattr):
            self.write("environment.call_method(context, ")
            self.visit(node.node.node, frame)
            self.write(f", {node.node.attr!r}")
        else:
            self.write("environment.call(context, ")
            self.visit(node.node, frame)
        self.signature(node, frame, {"caller": "caller"} if forward_caller else None)
        self.write(")")

    def visit_List(self, node: nodes.List, frame: Frame) -> None:  # noqa: N802
        """A list that the template makes."""
        self._write_made(node, super().visit_List, frame)

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:  # noqa: N802
        """A tuple that the template makes, or the targets of an assignment."""
        if node.ctx == "load":
            self._write_made(node, super().visit_Tuple, frame)
        else:
            super().visit_Tuple(node, frame)

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:  # noqa: N802
        """A dict that the template makes."""
        self.write("budget.weave({")
        for pair in node.items:
            self._write_call("budget.key(", (pair.key,), frame)
            self.write(": ")
            self.visit(pair.value, frame)
            self.write(", ")
        self.write("})")

    def _output_child_pre(self, node: nodes.Expr, frame: Frame, finalize: Any) -> None:
        del frame, finalize
        self.write("(" if _makes_text(node) else "show(")

    def _output_child_post(self, node: nodes.Expr, frame: Frame, finalize: Any) -> None:
        del node, frame, finalize
        self.write(")")

    def _write_call(self, start: str, arguments: Iterable[nodes.Node], frame: Frame) -> None:
        self.write(start)
        for place, argument in enumerate(arguments):
            self.write(", " if place else "")
            self.visit(argument, frame)
        self.write(")")

    def _write_member(self, verb: str, owner: nodes.Expr, name: str, frame: Frame, *, kind: str = "dict") -> None:
        has = "" if kind == "LoopContext" else f" and {name!r} in value"
        self.write(f"(value.{name}" if kind == "LoopContext" else f"(value[{name!r}]")
        self.write(" if type(value := ")
        self.visit(owner, frame)
        self.write(f") is {kind}{has} else environment.{verb}(value, {name!r}))")

    def _write_made(self, node: nodes.List | nodes.Tuple, write: Callable[..., None], frame: Frame) -> None:
        is_woven = not _is_plain(node)
        self.write("budget.weave(" if is_woven else "")
        write(node, frame)
        self.write(")" if is_woven else "")

    def _write_joined(self, name: str, operands: Sequence[nodes.Expr], frame: Frame) -> None:
        """A call within a call, each with a few operands that are not known."""
        groups: list[list[nodes.Expr]] = [[]]
        unknown = 0
        for operand in operands:
            unknown += not isinstance(operand, nodes.Const)
            if unknown > _OPERANDS_AT_ONCE:
                groups.append([])
                unknown = 2
            groups[-1].append(operand)
        self.write(f"{name}(" * len(groups))
        for place, group in enumerate(groups):
            self._write_call(", " if place else "", group, frame)

    def _write_chain(self, node: nodes.Compare, frame: Frame) -> None:
        """`a < b < c`, of which each is small."""
        self.write("(")
        for operand in (nodes.Operand("", node.expr), *node.ops):
            self.write(f" {operators[operand.op]} " if operand.op else "")
            if _is_plain(operand.expr):
                self.visit(operand.expr, frame)
            else:
                self._write_call("budget.small(", (operand.expr,), frame)
        self.write(")")


def _is_text(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Const) and isinstance(node.value, str)


def _makes_text(node: nodes.Expr) -> bool:
    """Whether an expression gives a text, or nothing at all."""
    if isinstance(node, nodes.Add):
        return _is_text(node.right) or _makes_text(node.left) or _is_text(node.left)
    return isinstance(node, nodes.Concat)


def _merge_texts(operands: Iterable[nodes.Expr]) -> list[nodes.Expr]:
    """Constants that stand side by side as one."""
    merged: list[nodes.Expr] = []
    for operand in operands:
        last = merged[-1] if merged else None
        if isinstance(operand, nodes.Const) and isinstance(last, nodes.Const) and _is_text(operand) and _is_text(last):
            merged[-1] = nodes.Const(last.value + operand.value, lineno=last.lineno)
        else:
            merged.append(operand)
    return merged
