"""Pieces of templates that render, and some that jinja refuses; `NAMES` comes before each."""

NAMES = (
    "{% set t = messages[1].content %}{% set d = messages[2].tool_calls[0].function %}{% set l = [3, 1, 2, 1] "
    "%}{% set c = 3 %}"
)

#: Expressions that render, by what they try.
EXPRESSIONS = (
    "'a' + t + 'b'", "t + t + t + t + t + t", "1 + 2", "l + [4]", "(1, 2) + (3,)", "7 - 2 - 1", "7 * 2", "'ab' * 3",
    "3 * 'ab'", "l * 2", "7 / 2", "7 // 2", "7 % 3", "-7 % 3", "2 ** 10", "2 ** -1", "1.5 + 2", "true + 1", "-c",
    "+c", "'%s is %d, %5.2f, %-4s|%%|%x' % (t, 3, 2.5, 'a', 255)", "'%s' % t", "'%(a)s' % {'a': 1}", "'%s' % nope",
    "'100%%' % ()", "'%*d' % (5, 3)", "'%r' % t", "t ~ 1 ~ none ~ 2.5 ~ l ~ nope", "'a' ~ 'b' ~ 'c'", "'a' 'b' ~ t",
    "1 ~ 2", "l ~ d", "t == t", "t != 'x'", "l == [3, 1, 2, 1]", "l != l", "[1] < [2]", "'a' < 'b' < 'c'",
    "1 < c <= 3", "1 < 3 > 2", "t == nope", "nope == nope", "none == none", "c == 3.0", "d == d", "c > 2", "2 >= c",
    "c < t | length", "l <= l", "'two' in t", "t in t", "3 in l", "[1] in [[1]]", "'name' in d", "t in d",
    "2 in range(3)", "t not in ['a', t]", "c in (1, 3)", "'n' in d.keys()", "'f' in d.values()", "'x' in nope",
    "t in l", "none in [none]", "not t", "t and c", "nope or c", "t[1:]", "t[:-1]", "t[::-1]", "t[1:3]", "l[1:]",
    "l[::-1]", "(1, 2, 3)[1:]", "messages[-1].role", "t[0]", "d['name']", "d.nope", "d['nope']", "d[nope]",
    "messages[9]", "d[1]", "t['upper']()", "messages[0]['role']", "range(5)[1]", "l[c - 2]", "-3 | abs",
    "d | attr('x')", "t | capitalize", "'x' | center", "'x' | center(9)", "l | count", "nope | default('x')",
    "'' | d('x', true)", "d | dictsort", "{'a': 2, 'b': 1} | dictsort(by='value')",
    "{'b': 1, 'a': 2} | dictsort(false, 'value')", "t | first", "l | first", "l | last", "'2.5' | float",
    "'x' | float(1.5)", "'%s-%s' | format(1, 'a')", "'%(a)s' | format(a=1)", "t | indent", "t | indent(2, true)",
    "t | indent('> ', blank=true)", "'12' | int", "'x' | int(7)", "'ff' | int(0, 16)", "2.7 | int",
    "d | items | list", "nope | items | list", "l | join", "l | join(', ')", "messages | join('|', attribute='role')",
    "t | join('-')", "d | length", "t | list", "(1, 2) | list", "t | lower", "l | map('string') | join",
    "messages | map(attribute='role') | list", "messages | map(attribute='name', default='-') | join(',')",
    "l | map('default', 1) | list", "l | max", "l | min", "messages | max(attribute='role')", "[] | max",
    "l | reject('odd') | list", "messages | rejectattr('name') | list | length", "t | replace('o', '0')",
    "t | replace('o', '0', 1)", "l | reverse | list", "t | reverse", "(1, 2) | reverse | list",
    "l | map('abs') | reverse | list", "2.567 | round(1)", "2.5 | round", "2.1 | round(0, 'ceil')", "t | safe",
    "(t | safe) + '<&>'", "'<&>' + (t | safe)", "(t | safe).upper() + '<'", "t | e", "t | escape | e",
    "'<' ~ (t | e)", "(t | safe) * 2", "[t | safe, '<'] | join", "(t | safe) | replace('o', '<')",
    "l | select | list", "l | select('gt', 1) | list", "l | select('in', [1]) | list",
    "messages | selectattr('role', '==', 'tool') | list | length",
    "messages | selectattr('role', 'in', ['tool', 'user']) | map(attribute='role') | join",
    "messages | selectattr('tool_calls') | first", "l | sort", "l | sort(reverse=true)", "['b', 'A'] | sort",
    "['b', 'A'] | sort(case_sensitive=true)", "messages | sort(attribute='role') | map(attribute='role') | list",
    "c | string", "t | string", "l | sum", "messages | map(attribute='role') | map('length') | sum",
    "[[1], [2]] | sum(start=[])", "messages | sum(attribute='x', start=nope) if false else 1", "t | title",
    "t | tojson", "d | tojson", "l | tojson", "messages | tojson", "d | tojson(indent=2)", "l | tojson(indent=1)",
    "messages | tojson(indent='\t')", "[] | tojson(indent=4)", "d | tojson(ensure_ascii=true)",
    "l | tojson(separators=(',', ':'))", "{'b': 1, 'a': [2]} | tojson(sort_keys=true)", "[t, [d, (1, 2)]] | tojson",
    "{'a': 1} | tojson(sort_keys=true, indent=2)", "t | trim", "t | trim('oe')", "c | trim",
    "'some longer text' | truncate(9)", "t | truncate", "'some longer text' | truncate(9, true, '…', 0)",
    "['a', 'b', 'A'] | unique | list", "['a', 'A'] | unique(true) | list",
    "messages | unique(attribute='role') | list | length", "t | upper", "none | upper", "c | center(5)",
    "true is boolean", "t is defined", "nope is defined", "nope is undefined", "6 is divisibleby 3", "t is eq(t)",
    "t is equalto 'x'", "c is even", "c is odd", "false is false", "true is true", "2.5 is float",
    "'upper' is filter", "c is ge 3", "c is gt 3", "c is in l", "c is integer", "l is iterable", "c is le 3",
    "'a' is lower", "'A' is upper", "c is lt 3", "d is mapping", "c is ne 3", "none is none", "c is number",
    "t is sameas t", "l is sequence", "t is string", "'odd' is test", "raise_exception is callable", "t is escaped",
    "(t | safe) is escaped", "(l | select) is iterable", "(l | select) is sequence",
    "1 if l | select('gt', 9) else 2", "'x' if '' else 'y'", "'x' if nope", "t.upper()", "t.strip()", "t.strip('o')",
    "t.lstrip('on')", "t.rstrip()", "t.split()", "t.split('\n')", "t.split('o', 1)", "t.split(maxsplit=1)",
    "t.rsplit(' ', 1)", "t.splitlines()", "t.splitlines(true)", "t.replace('o', '')", "t.replace('', '-')",
    "t.replace('o', 'oo', 1)", "','.join(['a', 'b'])", "','.join(t)", "'-'.join(l | map('string'))",
    "t.startswith('one')", "t.startswith(('a', 'one'))", "t.endswith('x', 1)", "t.center(30, '*')", "t.ljust(30)",
    "t.rjust(30)", "'7'.zfill(3)", "'a\tb'.expandtabs(4)", "t.count('o')", "t.find('t')", "t.rfind('t')",
    "t.index('t')", "t.rindex('t')", "t.partition('\n')", "t.rpartition('\n')", "t.removeprefix('one')",
    "t.removesuffix('three')", "t.title()", "t.casefold()", "t.swapcase()", "t.capitalize()", "t.lower()",
    "t.isdigit()", "'a1'.isalnum()", "t.isupper()", "t.isspace()", "d.get('name')", "d.get('x', 1)",
    "d.items() | list", "d.keys() | list", "d.values() | list", "d.copy()", "l.index(1)", "l.count(1)", "l.copy()",
    "(1, 2).index(2)", "(t | safe).strip('o')", "(t | safe).join(['<', '>'])", "(t | safe).replace('o', '<')",
    "d.items()", "d.keys()", "(t | safe).split('\n')", "[1, t, [c]]", "(1, t)", "{'a': t, 'b': [c]}",
    "{t: c, 1: 2, none: 3}", "dict(a=1, b=t)", "dict({'a': 1}, b=2)", "dict([('a', 1)])", "range(3) | list",
    "range(1, 9, 3) | list", "[] == []", "namespace(a=1).a", "namespace({'a': 2}).a", "namespace([('a', 1)]).a",
    "joiner('|')()", "cycler(1, 2).next()", "cycler(1, 2).current", "[t][0]", "{'a': 1}.a", "(c,)",
    "[none, true, 2.5]", "1.0", "10 ** 20", "true", "none",
)  # fmt: skip

#: Statements that render.
STATEMENTS = (
    (
        "{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first "
        "}}{{ loop.last }}{{ loop.length }}{{ x }}{% endfor %}"
    ),
    (
        "{% for x in l if x > 1 %}{{ loop.length }}{{ x }}{{ loop.previtem }}{{ loop.nextitem }}{% else %}none{% "
        "endfor %}"
    ),
    "{% for x in [] %}{% else %}none{% endfor %}", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in d | items %}{{ k }}{% endfor %}",
    (
        "{% for x in l %}{% if x == 2 %}{% break %}{% endif %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% "
        "endfor %}"
    ),
    "{% for x in [[1, [2]], 3] recursive %}{{ loop(x) if x is iterable else x }},{{ loop.depth }}{% endfor %}",
    "{% for x in l %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x) }}{% endfor %}",
    "{% for x in t %}{{ x }}.{% endfor %}", "{% for x in nope %}x{% endfor %}",
    "{% for x in l | select('odd') %}{{ loop.length }}{{ loop.last }}{{ x }}{% endfor %}",
    "{% for x in l %}{% for y in l %}{{ x * y }}{% endfor %}{% endfor %}",
    "{% set ns = namespace(n=0) %}{% for x in l %}{% set ns.n = ns.n + x %}{% endfor %}{{ ns.n }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a = 1 %}{% for x in l %}{% set a = x %}{% endfor %}{{ a }}",
    (
        "{% macro m(a, b='x') %}<{{ a }}{{ b }}{{ varargs }}{{ kwargs }}>{% endmacro %}{{ m(1) }}{{ m(1, 2, 3, "
        "k=4) }}{{ m(b=1, a=2) }}{{ m() }}{{ m.name }}"
    ),
    "{% macro m(a) %}{% if a %}{{ a }}{{ m(a - 1) }}{% endif %}{% endmacro %}{{ m(3) }}",
    "{% macro m(a) %}[{{ caller(a) }}]{% endmacro %}{% call(x) m(2) %}{{ x * c }}{% endcall %}",
    "{% macro m(x) %}{{ x }}{% endmacro %}{{ m(*[1]) }}{{ m(**{'x': 2}) }}{% set f = m %}{{ f(3) }}",
    "{% set x %}{{ t }}!{% endset %}{{ x | upper }}{{ x is escaped }}",
    "{% set x | upper %}{{ t }}{% endset %}{{ x }}", "{% filter upper | trim %} {{ t }} {% endfilter %}",
    "{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a }}", "{% if t %}a{% elif c %}b{% else %}c{% endif %}",
    "{% if not t %}a{% elif c %}b{% endif %}", "{% set f = t.upper %}{{ f() }}", "{% raw %}{{ x }}{% endraw %}",
    "{# nothing #}a", "{%- if t -%} a {%- endif -%} b",
    "{% set j = joiner(',') %}{% for x in l %}{{ j() }}{{ x }}{% endfor %}",
    "{% set y = cycler(1, 2) %}{{ y.next() }}{{ y.next() }}{{ y.next() }}{{ y.reset() }}{{ y.next() }}",
    "{% set loop = [1] %}{{ loop[0] }}{% for x in l %}{{ x }}{% endfor %}",
    "{{ bos_token }}{{ add_generation_prompt }}{{ documents }}{{ tools }}",
    (
        "{% for m in messages %}{{ m.role }}{% for call in m.tool_calls %}{{ call.function.arguments | tojson }}{{ "
        "loop.index }}{% endfor %}{% endfor %}"
    ),
    "{% if 'x' is filter %}{{ t | x }}{% endif %}{{ t }}",
)  # fmt: skip

#: What jinja refuses, by what is wrong.
REFUSED = (
    "{{ t + 1 }}", "{{ 1 + t }}", "{{ l + t }}", "{{ nope + t }}", "{{ t + nope }}", "{{ t - t }}", "{{ d * 2 }}",
    "{{ l * t }}", "{{ d + d }}", "{{ 1 / 0 }}", "{{ t < 1 }}", "{{ 1 in 1 }}", "{{ t.nope() }}", "{{ nope() }}",
    "{{ l.append(1) }}", "{{ l | tojson(indent='x', nope=1) if false else nope.x }}", "{{ 5 | length }}",
    "{{ d.name() }}", "{{ [1, 'a'] | sort }}", "{{ [1, 'a'] | max }}", "{{ 1 | items | list }}",
    "{{ (l | select) | length }}", "{{ (l | select) | tojson }}", "{{ (l | select)[0].x }}", "{{ '%d' % t }}",
    "{{ '%s %s' % t }}", "{{ 'a' | format(1) }}", "{{ 'a' | format(1, b=2) }}", "{{ 1 | truncate }}",
    "{{ t | truncate(1) }}", "{{ 1 | indent }}", "{{ l | map | list }}", "{{ l | map('nope') | list }}",
    "{{ l | select(nope) | list }}", "{{ t.join([1]) }}", "{{ t.join(1) }}", "{{ t.strip(1) }}",
    "{{ t.replace(1, 2) }}", "{{ t.split('') }}", "{{ t.index('zzz') }}", "{{ l.index(9) }}",
    "{{ raise_exception('no') }}", "{{ range(200000) }}", "{{ range('a') }}", "{{ t[1:'a'] }}", "{{ d[1:] }}",
    "{% for x in 5 %}{% endfor %}", "{{ {l: 1} }}", "{{ d[l].x }}", "{{ [l] | unique | list }}", "{{ 2 ** 'a' }}",
    "{{ '' | sum }}{{ 'ab' | sum }}", "{% set d.x = 1 %}", "{{ cycler() }}", "{{ t.__class__.x }}",
    "{{ t | attr('__class__') + 1 }}", "{% macro m() %}{% endmacro %}{{ m(1) }}",
    "{% macro m() %}{% endmacro %}{{ m(a=1) }}", "{{ d.get([]) }}", "{{ t | round }}",
    "{{ messages | join('', attribute='x.y') }}", "{{ 'x' * 1.5 }}", "{% for a, b in l %}{% endfor %}",
    "{{ (1, 2, t) < (1, 2, 3) }}", "{{ -t }}", "{{ t | abs }}", "{{ nope < 1 }}", "{{ t | tojson(separators='x') }}",
)  # fmt: skip
