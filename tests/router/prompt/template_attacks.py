"""Templates that would take a process's time or memory, by what they do. What is absurd in them is only large."""

#: Makes lists of lists, each twice in the next: 2**40 values in 80 references.
WOVEN = (
    "{% set ns = namespace(a=['x'], b=['x']) %}{% for i in range(40) %}{% set ns.a = [ns.a, ns.a] %}{% set ns.b "
    "= [ns.b, ns.b] %}{% endfor %}"
)
#: Makes a deep tuple; were it deeper still, its hash would end the process.
DEEP = "{% set ns = namespace(t=()) %}{% for i in range(1200) %}{% set ns.t = (ns.t,) %}{% endfor %}"
BIG = "{% set s = 'x' * 20000 %}"

#: Refused by a limit, which the error names.
BEYOND_LIMITS = {
    "loops_in_loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "loops_that_write": "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}",
    "loops_with_conditions": (
        "{% for a in range(99999) %}{% for b in range(99999) if b == 'x' %}{% endfor %}{% endfor %}"
    ),
    "loops_that_ask_their_length": (
        "{% for a in range(99999) if a %}{{ loop.length }}{% for b in range(99999) if b %}{{ loop.length "
        "}}{% endfor %}{% endfor %}"
    ),
    "macros_that_call_themselves": (
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}"
    ),
    "callers_in_loops": (
        "{% macro f() %}{% for i in range(99999) %}{{ caller() }}{% endfor %}{% endmacro %}{% call f() "
        "%}{% for i in range(99999) %}{% endfor %}{% endcall %}"
    ),
    "repeated_text": "{{ 'x' * 10 ** 9 }}",
    "repeated_text_by_name": "{% set n = 10 ** 9 %}{{ n * 'x' }}",
    "repeated_list": "{% for i in [1] * 10 ** 9 %}{% endfor %}",
    "doubled_text": (
        "{% set ns = namespace(s='x') %}{% for i in range(99999) %}{% set ns.s = ns.s + ns.s %}{% endfor %}"
    ),
    "doubled_text_by_tilde": (
        "{% set ns = namespace(s='x') %}{% for i in range(99999) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}"
    ),
    "doubled_list": (
        "{% set ns = namespace(s=[1]) %}{% for i in range(99999) %}{% set ns.s = ns.s + ns.s %}{% endfor %}"
    ),
    "squared_number": (
        "{% set ns = namespace(n=3) %}{% for i in range(99999) %}{% set ns.n = ns.n * ns.n %}{% endfor %}"
    ),
    "power": "{{ 9 ** (9 ** 9) }}",
    "many_operands": BIG + "{{ s" + " + s" * 40 + " }}",
    "many_outputs": BIG + "{% for i in range(99999) %}{{ s }}{% endfor %}",
    "captured_blocks": BIG + "{% for i in range(99999) %}{% set t %}{{ s }}{{ s }}{% endset %}{% endfor %}",
    "slices": BIG + "{% for i in range(99999) %}{% set t = s[1:] %}{% endfor %}",
    "slices_of_lists": "{% set s = range(9999) | list %}{% for i in range(99999) %}{% set t = s[::-1] %}{% endfor %}",
    "wide_field": "{{ '%1000000000d' % 1 }}",
    "wide_field_by_argument": "{{ '%*d' % (10 ** 9, 1) }}",
    "wide_field_after_a_key": "{{ '%((a))1000000000d' % {'(a)': 1} }}",
    "wide_field_of_nothing": "{{ '%1000000000s' % nope }}",
    "wide_field_by_filter": "{{ '%.1000000000f' | format(1.5) }}",
    "list_in_many_fields": "{% set v = {'a': [none] * 2500} %}{{ ('%(a)s' * 999) % v }}",
    "center": "{{ 'x' | center(10 ** 9) }}",
    "padding": "{{ 'x'.ljust(10 ** 9) }}",
    "zeros": "{{ 'x'.zfill(10 ** 9) }}",
    "tabs": "{{ '\t'.expandtabs(10 ** 9) }}",
    "indent": "{{ 'a\nb' | indent(10 ** 9) }}",
    "indent_by_text": BIG + "{{ (s | list | join('\n')) | indent(s) }}",
    "json_indent": "{{ messages | tojson(indent=10 ** 9) }}",
    "json_indent_by_text": BIG + "{{ messages | tojson(indent=s) }}",
    "json_separators": BIG + "{{ range(99) | list | tojson(separators=(s, s)) }}",
    "join_by_a_long_text": BIG + "{{ range(9999) | join(s) }}",
    "join_of_long_texts": BIG + "{{ ','.join([s] * 9999) }}",
    "replace_by_a_long_text": BIG + "{{ s | replace('x', s) }}",
    "replace_of_nothing": BIG + "{{ s.replace('', s) }}",
    "default_everywhere": BIG + "{{ range(999) | map(attribute='x', default=s) | list | tojson }}",
    "filter_everywhere": BIG + "{{ range(999) | map('replace', '', s) | list | length }}",
    "list_twice_in_itself_as_json": WOVEN + "{{ ns.a | tojson }}",
    "list_twice_in_itself_as_indented_json": WOVEN + "{{ ns.a | tojson(indent=1) }}",
    "list_twice_in_itself_as_text": WOVEN + "{{ ns.a }}",
    "list_twice_in_itself_joined": WOVEN + "{{ 'x' ~ ns.a }}{{ [ns.a] | join }}",
    "list_twice_in_itself_formatted": WOVEN + "{{ '%s' % (ns.a,) }}",
    "lists_compared": WOVEN + "{{ ns.a == ns.b }}",
    "lists_compared_by_test": WOVEN + "{{ ns.a is eq(ns.b) }}",
    "lists_ordered": WOVEN + "{{ ns.a < ns.b }}",
    "lists_looked_for": WOVEN + "{{ ns.a in [ns.b] }}",
    "lists_counted": WOVEN + "{{ [ns.b].count(ns.a) }}",
    "dict_twice_in_itself": (
        "{% set ns = namespace(a={}) %}{% for i in range(40) %}{% set ns.a = {'a': ns.a, 'b': ns.a} %}{% "
        "endfor %}{{ ns.a | string }}"
    ),
    "dict_by_function": (
        "{% set ns = namespace(a=1) %}{% for i in range(40) %}{% set ns.a = dict(a=ns.a, b=ns.a) %}{% "
        "endfor %}{{ ns.a }}"
    ),
    "arguments_twice": (
        "{% macro f() %}{{ varargs }}{% endmacro %}{% macro g(x, n) %}{% if n %}{{ g([x, x], n - 1) }}{% "
        "else %}{{ f(x, x) }}{% endif %}{% endmacro %}{{ g(1, 40) }}"
    ),
    "changes_watched": WOVEN + "{% for i in [1, 2] %}{{ loop.changed([ns.a]) }}{% endfor %}",
    "deep_streams": (
        "{% set ns = namespace(t=[1]) %}{% for i in range(99999) %}{% set ns.t = ns.t | map('upper') %}{% "
        "endfor %}{{ ns.t | list }}"
    ),
    "search_from_the_end": BIG + "{{ s.rfind('y' + s[:9999]) }}",
    "split_from_the_end": BIG + "{{ s.rsplit('y' + s[:9999]) }}",
    "strip_of_many": BIG + "{{ s.strip(s[:9999].replace('x', 'y') + 'x') }}",
    "searches": BIG + "{% for i in range(99999) %}{% set t = 'yyyyyyyyyyyyyyyy' in s %}{% endfor %}",
    "split_into_many": BIG + "{% for i in range(99999) %}{% set t = s.split('x') %}{% endfor %}",
    "comparisons": (
        BIG + "{% set t = s[:10000] + s[:10000] %}{% for i in range(99999) %}{% set u = t == s %}{% endfor %}"
    ),
    "filters_in_loops": "{% for i in range(99999) %}{% set x = range(99999) | select('gt', 5) | list %}{% endfor %}",
    "sorts": "{% for i in range(99999) %}{% set x = range(99999) | sort %}{% endfor %}",
    "partitions": (
        BIG
        + (
            "{% set ns = namespace(l=[]) %}{% for i in range(999) %}{% set ns.l = ns.l + "
            "[s.partition('y')] %}{% endfor %}"
        )
    ),
    "sum_of_lists": "{{ ([[1]] * 99999) | sum(start=[]) | length }}",
    "upper": BIG + "{% for i in range(99999) %}{% set t = s | upper %}{% endfor %}",
    "long_path": BIG + "{{ ['aaa'] | map(attribute=s) | list }}",
    "round": "{{ 1.5 | round(10 ** 9, 'ceil') }}",
    "long_number": BIG + "{{ s.replace('x', '9') | int }}",
    "long_number_of_base_16": BIG + "{{ s.replace('x', 'f') | int(0, 16) }}",
    "long_fraction": BIG + "{{ s.replace('x', '9') | float }}",
    "long_time": BIG + "{{ strftime_now(s) }}",
    "long_error": "{{ raise_exception('x' * 10 ** 9) }}",
    "many_arguments": (
        BIG + ("{% macro f() %}{{ varargs | length }}{% endmacro %}{% for i in range(99999) %}{{ f(*s) }}{% endfor %}")
    ),
    "many_arguments_of_a_class": BIG + "{% for i in range(50) %}{% set c = cycler(*s) %}{% endfor %}",
    "many_operands_of_tilde": "{% set s = 'x' * 90000 %}{{ s" + " ~ s" * 500 + " }}",
    "arguments_twice_without_a_list": (
        "{% macro f(n) %}{% if n %}{{ f(n - 1, varargs, varargs) }}{% else %}{{ varargs }}{% endif %}{% endmacro %}"
        "{{ f(40, 1) }}"
    ),
    "one_text_in_a_doubled_list": (
        BIG + "{% set l = s.split('y') %}" + "{% set l = l + l %}" * 12 + "{{ l | tojson }}"
    ),
    "one_text_in_a_repeated_list": BIG + "{{ (s.split('y') * 4096) | tojson }}",
    "marked_text": BIG + "{{ (s | safe) + s.replace('x', '&') * 2 }}",
}

#: Refused since it is not among what templates may do.
NOT_FOR_TEMPLATES = {
    "numbers_of_one_hash": "{{ [2 ** 61 - 1, 0] | unique | list }}{{ {2 ** 61 - 1: 0} }}",
    "endless_macros": "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
    "endless_loops": "{% for x in [[1]] recursive %}{{ loop([[x]]) }}{% endfor %}",
    "deep_tuple_as_text": DEEP + "{{ ns.t }}",
    "deep_tuple_as_json": DEEP + "{{ ns.t | tojson }}",
    "deep_tuple_as_key": DEEP + "{{ {ns.t: 1} }}",
    "deep_tuple_as_index": DEEP + "{{ {}[ns.t] }}",
    "deep_tuple_looked_up": DEEP + "{{ {}.get(ns.t) }}",
    "deep_tuple_looked_for": DEEP + "{{ ns.t in {} }}",
    "deep_tuple_among_keys": DEEP + "{{ ns.t in {}.keys() }}",
    "deep_tuple_as_name": DEEP + "{{ [1] | map(ns.t) | list }}",
    "deep_tuple_as_test": DEEP + "{{ [1] | select(ns.t) | list }}{{ ns.t is test }}",
    "deep_tuple_in_pairs": DEEP + "{{ dict([(ns.t, 1)]) }}",
    "deep_tuple_in_pairs_of_a_namespace": DEEP + "{{ namespace([(ns.t, 1)]) }}",
    "deep_tuple_unique": DEEP + "{{ [ns.t] | unique | list }}",
    "namespace_as_text": "{{ namespace(a=1) }}",
    "namespace_in_a_list": "{{ '%s' % [namespace(a=1)] }}",
    "namespaces_in_themselves": "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}",
    "format_method": "{{ '{:1000000000}'.format(1) }}",
    "format_method_by_index": "{{ '{:1000000000}'['format'](1) }}",
    "dict_from_keys": "{{ {}.fromkeys(range(99999), messages) }}",
    "bytes": "{{ (1).to_bytes(10 ** 9, 'big') }}",
    "text_taken_for_a_format": "{{ '%1000000000d' is odd }}",
    "text_divided": "{{ '%1000000000d' is divisibleby(3) }}",
    "messages_indented": "{{ messages | indent }}",
    "translation": "{{ 'x'.translate({120: 'y' * 9999}) }}",
    "encoding": "{{ 'x'.encode() }}",
    "filler": "{{ lipsum(n=1000000) }}",
    "long_chain_of_comparisons": BIG + "{{ '' < s < 'y' }}",
    "methods_that_change": "{{ messages.clear() }}",
}

#: Not even compiled.
NOT_COMPILED = {
    "pretty_print": "{{ messages | pprint }}",
    "chance": "{{ messages | random }}",
    "inclusion": "{% include 'x' %}",
    "inheritance": "{% extends 'x' %}",
    "blocks": "{% block a %}{{ self.a() }}{% endblock %}",
    "too_many_elements": "{{ a.b.c }}" * 3_400,
    "too_deep": "{{ " + "not " * 200 + "a }}",
    "too_deep_for_the_parser": "{{ " + "(" * 2_000 + "a" + ")" * 2_000 + " }}",
    "too_long": "x" * (1 << 19),
    "long_constant": "{{ " + "9" * 9_999 + " }}",
}
