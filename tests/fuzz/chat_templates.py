"""Chat templates made of random pieces: bounded whatever they do, and jinja's own text where they do little.

The bytes choose pieces of a grammar that knows every statement, operator, filter, test and method, small and absurd
operands. What takes less than a small budget is rendered by jinja's own sandbox too, which must agree; everything else
has to be refused with few calls made and little memory taken.
"""

import re
from contextlib import suppress

from guided import fuzz, instrumented

with instrumented():
    from router.prompt.template import ChatTemplate, Limits, TemplateRefused
    from tests.router.prompt.meter import Meter
    from tests.router.prompt.plain_jinja import PlainTemplate

LIMITS = Limits(steps=20_000, most_steps=20_000, chars=100_000, most_chars=100_000)
#: Calls of functions, Python's and C's, that a step may take.
CALLS_PER_STEP = 20
PEAK_BYTES = 24 << 20
MESSAGES = [
    {"role": "system", "content": "You are é."},
    {"role": "user", "content": "hi <b> \n there"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": '{"n": 1}'}}],
    },
    {"role": "tool", "content": "1,2,3"},
]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "required": ["n"]}}}]
#: What stands for each letter: Text, Number, List, Dict, Boolean, Any, Statement. The first few end a recursion.
GRAMMAR = {
    "T": (
        "'text'", "a", "messages[1].content", "ns.a", "''", "'<&>'", "bos_token", "x", "(<T> + <T>)",
        "(<T> + <T> + a + a)", "(<A> ~ <A>)", "(<T> * <N>)", "('%s|%5d' % (<A>, <N>))", "('%d' % <N>)",
        "('%s' | format(<A>))", "(<T> | upper)", "(<T> | trim(<T>))", "(<T> | trim)", "(<T> | replace(<T>, <T>))",
        "(<L> | join(<T>))", "(<A> | tojson)", "<T>[<N>:]", "(<A> | tojson(indent=<N>))", "(<L> | first | string)",
        "<T>[::-1]", "(<T> if <B> else <T>)", "(<A> | string)", "m(<A>, <A>)", "m(<A>)", "(<T> | center(<N>))",
        "<T>.zfill(<N>)", "(<T> | indent(<N>))", "((<T> | safe) + <T>)", "(<T> | e)", "(<T> | title)",
        "(<T> | capitalize)", "(<T> | truncate(<N> + 9))", "<T>.replace(<T>, <T>, <N>)", "<T>.join(<T>)",
        "<T>.lstrip(<T>)", "<T>.expandtabs(<N>)", "<T>.partition(<T>)[<N> % 3]", "(<T> | lower)",
        "<T>.removesuffix(<T>)", "(<D>.role | default(<T>))", "(<L> | map('upper') | join)", "<T>.ljust(<N>, 'x')",
    ),
    "N": (
        "0", "1", "2", "7", "c", "-1", "10 ** 9", "999999999", "loop.index0 if loop is defined else 3", "(<N> + <N>)",
        "(<N> - <N>)", "(<N> * <N>)", "(<N> // <N>)", "(<N> % <N>)", "(<N> ** <N>)", "(<L> | length)",
        "(<T> | length)", "<T>.count(<T>)", "(<T> | int)", "(<N> | round(<N>) | int)", "<T>.find(<T>)",
        "<T>.rfind(<T>)", "(<N> | abs)", "(<L> | map('length') | sum)", "<L>.count(<A>)", "((<N> / <N>) | int)",
        "([<N>, <N>] | max)",
    ),
    "L": (
        "[]", "[1, 2]", "messages", "tools", "ns.b", "b", "range(3)", "range(99999)", "messages[2].tool_calls",
        "[<A>, <A>]", "[<A>]", "(<A>, <A>)", "range(<N>)", "<T>.split(<T>)", "<T>.rsplit(<T>, <N>)",
        "<T>.splitlines()", "(<L> + <L>)", "(<L> * <N>)", "(<L> | list)", "(<L> | map('string') | list)",
        "(<L> | select | list)", "(<L> | reverse | list)", "(<L> | map('default', <A>) | list)",
        "(<L> | selectattr('role') | list)", "<L>[<N>:]", "<L>[::-1]", "(<T> | list)", "(<D> | items | list)",
        "(<D>.values() | list)", "(<D> | dictsort)", "(<L> | map('string') | unique | list)",
        "(<L> | map('string') | sort)", "(<L> | reject('eq', <A>) | list)", "(<L> | select('in', <L>) | list)",
        "<D>.keys()", "(<L> | map(attribute='role', default=<A>) | list)",
    ),
    "D": (
        "{}", "{'k': 1}", "messages[0]", "messages[2]", "tools[0]", "{'k': <A>}", "{<T>: <A>, 'l': <A>}",
        "dict(k=<A>)",
    ),
    "B": (
        "true", "false", "none", "nope", "x is defined", "(<A> == <A>)", "(<T> != <T>)", "(<N> < <N>)",
        "(<N> < <N> <= 9)", "(<T> in <T>)", "(<A> in <L>)", "(<T> not in <D>)", "(not <B>)", "(<B> and <B>)",
        "(<B> or <B>)", "(<N> is odd)", "<T>.startswith(<T>)", "<T>.isdigit()", "(<T> is lower)", "(<A> is iterable)",
        "(<A> is string)", "(<A> is in <L>)", "(<A> is eq(<A>))", "(<N> is gt(<N>))", "<T>.endswith((<T>, <T>))",
    ),
    "S": (
        "{{ <A> }}", "text\n", "{% set a = <T> %}", "{% set b = <L> %}", "{% set ns.a = <T> %}",
        "{% set ns.b = <L> %}", "{% set c = <N> %}", "<S><S><S>", "<S><S>", "{% for x in <L> %}<S>{% endfor %}",
        "{% for x in <L> %}<S>{{ <A> }}{% endfor %}", "{% for x in <L> if <B> %}<S>{% else %}<S>{% endfor %}",
        "{% if <B> %}<S>{% elif <B> %}<S>{% endif %}", "{% set a %}<S>{% endset %}",
        "{% macro m(y=<A>, z=2) %}{{ y }}<S>{{ varargs }}{% endmacro %}", "{{ ns.b }}",
        "{% with b = <A> %}<S>{% endwith %}", "{% filter upper %}<S>{% endfilter %}",
        "{% call m(<A>) %}<S>{% endcall %}",
        "{% for x in <L> recursive %}{{ x }}{% if <B> %}{{ loop(<L>) }}{% endif %}{% endfor %}",
        "{% set ns.b = [<A>, ns.b] %}", "{% for x in <L> %}{% if <B> %}{% break %}{% endif %}<S>{% endfor %}",
        "{% set ns.a = ns.a + <T> %}{% set ns.a = ns.a + ns.a %}",
    ),
}  # fmt: skip
SIMPLE = 6
MOST_PIECES = 400
START = (
    "{% set ns = namespace(a='aa', b=[1]) %}{% set a, b, c, x = 'aa', [[1]], 3, 'y' %}"
    "{% macro m(y, z=1) %}({{ y }}){% endmacro %}"
)
SEEDS = [bytes(range(start, start + 90)) for start in (0, 40, 100, 150)] + [b"\x05\x1f\x0e" * 30, b"\x03\x0c\x00" * 30]


class Builder:
    """Writes a template, choice by choice; after the last byte everything is simple."""

    def __init__(self, data: bytes) -> None:
        self._data = iter(data)
        self._pieces = 0

    def build(self, kind: str, depth: int) -> str:
        """A piece of a kind with others in it."""
        self._pieces += 1
        kind = kind if kind != "A" else "TNLDB"[next(self._data, 0) % 5]
        forms = GRAMMAR[kind]
        if depth == 0 or self._pieces > MOST_PIECES:
            forms = forms[:SIMPLE] if kind != "S" else forms[:2]
        form = forms[next(self._data, 0) % len(forms)]
        return re.sub("<([TNLDBAS])>", lambda hole: self.build(hole[1], max(0, depth - 1)), form)


def check(data: bytes) -> None:
    """No template does more than its budget, and what stays in it has the text of plain jinja."""
    builder = Builder(data)
    source = START + "".join(builder.build("S", 5) for _ in range(4))
    try:
        template = ChatTemplate(source, {"bos_token": "<s>"}, limits=LIMITS)
    except ValueError:
        return
    text = None
    with Meter() as meter, suppress(TemplateRefused):
        text = template.render(MESSAGES, TOOLS)
    assert meter.calls <= CALLS_PER_STEP * LIMITS.steps, source
    assert meter.peak_bytes <= PEAK_BYTES, source
    if text is not None:
        assert len(text) <= LIMITS.chars
        assert text == PlainTemplate(source, {"bos_token": "<s>"}).render(MESSAGES, TOOLS), source


if __name__ == "__main__":
    fuzz(check, SEEDS)
