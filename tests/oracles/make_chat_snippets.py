#!/usr/bin/python3
"""Writes tests/data/chat/snippets.jsonl: our own one-line templates with what Python's jinja2 makes of them.

Run it again after adding to SNIPPETS; the tests only read the file.
"""
import json
import os
import warnings

from jinja_reference import environment, render

warnings.simplefilter("ignore")

CONTEXT = {
    "word": "Stream", "text": "one two  three", "empty": "", "nothing": None, "yes": True, "no": False, "n": 12, "neg": -5, "pi": 3.25,
    "wide": 98765432109876543210, "nums": [5, 2, 9, 2], "names": ["mia", "Bo", "ann"], "none_list": [], "rec": {"id": 4, "tags": ["x", "y"], "sub": {"deep": True}},
    "odd": "a'b \"c\" <d> & \u20ac\n", "lines": "top\n  mid\n\nend", "uni": "\u00c5ngstr\u00f6m \u4e16\u754c \U0001f680",
    "turns": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "  Why?  ", "weight": 3},
              {"role": "assistant", "content": "Because.", "weight": 1, "calls": [{"name": "look", "args": {"q": "sky", "deep": [1, 2.5, None]}}]}],
}

SNIPPETS = r"""
plain text
{{ word }}
{{ word }} {{ n }} {{ pi }} {{ nothing }} {{ yes }}
  {% if yes %}
  in
  {% endif %}
out
{%- if yes -%}  tight  {%- endif -%}  x
a {%- if yes %} b {% endif -%} c
{# gone #}kept{#- gone too -#}  x
{% raw %}{{ as is }}{% endraw %}
{% raw -%}  {{ trimmed }}  {%- endraw %}
{{- word -}}   !
{{ 1 + 2 * 3 - 4 / 2 }}
{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }}
{{ 2 ** 10 }} {{ 2 ** 64 }} {{ 2 ** -2 }} {{ 3 ** 50 }}
{{ wide * wide }} {{ wide // 7 }} {{ wide % 1000 }} {{ -wide }} {{ wide / 3 }}
{{ 9223372036854775807 + 1 }} {{ -9223372036854775808 - 1 }}
{{ 0.1 + 0.2 }} {{ 1e100 }} {{ 1e-10 }} {{ 100.0 }} {{ 1.5e16 }} {{ -0.0 }}
{{ 10 / 5 }} {{ 1 / 3 }} {{ n / neg }}
{{ 1 < 2 < 3 }} {{ 3 > 2 > 2 }} {{ 1 == 1.0 }} {{ "a" < "b" }} {{ [1, 2] < [1, 3] }}
{{ 1 / 0 }}
{{ word + 1 }}
{{ nothing + word }}
{{ nums + names }}
{{ nums * 2 }} {{ "ab" * 3 }} {{ "ab" * 0 }}
{{ word ~ n ~ nothing ~ pi ~ missing }}
{{ not yes }} {{ not none_list }} {{ yes and word }} {{ empty or "else" }}
{{ "tre" in word }} {{ 2 in nums }} {{ "id" in rec }} {{ 3 not in nums }} {{ "" in "" }}
{{ 1 in word }}
{{ word if yes else "no" }} {{ word if no else "no" }} {{ word if no }}|
{{ rec }} {{ nums }} {{ names }} {{ (1, "x") }} {{ (1,) }} {{ () }} {{ {} }} {{ [] }}
{{ [odd, uni, empty] }}
{{ {"k": [1, {"j": none}], 2: true, none: 1.5} }}
{{ rec.id }} {{ rec["tags"][1] }} {{ rec.sub.deep }} {{ rec.tags.0 }} {{ rec.nope }}|
{{ rec.nope.deeper }}
{{ nope }}|{{ nope.x }}
{{ nums[0] }} {{ nums[-1] }} {{ nums[99] }}| {{ word[0] }} {{ word[-1] }} {{ uni[0] }}{{ uni[-1] }}
{{ nums[1:] }} {{ nums[:-1] }} {{ nums[::2] }} {{ nums[::-1] }} {{ word[1:4] }} {{ uni[::-1] }} {{ word[10:] }}|
{{ nums[::0] }}
{{ nothing[1:] }}
{{ word.upper() }} {{ word.lower() }} {{ "hello wORLD".title() }} {{ "hELLO".capitalize() }} {{ word.swapcase() }}
{{ text.split() }} {{ text.split(" ") }} {{ text.split("o", 1) }} {{ text.rsplit(" ", 1) }} {{ "a-b-c".partition("-") }} {{ "a-b-c".rpartition("-") }}
{{ "  pad ".strip() }}|{{ "xxhixx".strip("x") }}|{{ "xxhi".lstrip("x") }}|{{ "hi\n\n".rstrip("\n") }}|
{{ word.startswith("Str") }} {{ word.endswith(("x", "m")) }} {{ word.find("e") }} {{ word.find("z") }} {{ word.count("r") }} {{ word.replace("S", "D") }}
{{ word.index("q") }}
{{ ",".join(names) }} {{ "".join([]) }}| {{ ",".join(nums) }}
{{ "{} {1}".format(1, 2) }}
{{ "{0}-{1}-{k}".format(1, "b", k=rec.id) }} {{ "{:>6}|{:<6}|{:^6}|{:06.2f}|{:,}|{:x}|{:e}".format("a", "b", "c", pi, 1234567, 255, pi) }}
{{ "%s %r %d %5.1f %05d %x %%" % (word, word, n, pi, n, 255) }} {{ "%(a)s" % {"a": 1} }} {{ "%s" % none }}
{{ "%d" % word }}
{{ "%s %s" % word }}
{{ "12".isdigit() }} {{ "1a".isalnum() }} {{ "ab".isalpha() }} {{ " ".isspace() }} {{ "AB".isupper() }} {{ "ab".islower() }} {{ "Ab C".istitle() }} {{ "x1".isidentifier() }}
{{ "stra\u00dfe".upper() }} {{ "\u0130".lower()|length }} {{ "\u03a3\u03a3".lower() }} {{ "\ufb03".upper() }} {{ "\u01c6".title() }}
{{ "7".zfill(3) }} {{ "-7".zfill(4) }} {{ "ab".center(7, "*") }} {{ "ab".ljust(4) }}| {{ "ab".rjust(4, ".") }}
{{ "a\tb".expandtabs(4) }} {{ "a\nb\r\nc".splitlines() }} {{ "a\nb\n".splitlines(true) }} {{ "prefix-x".removeprefix("prefix-") }}
{{ rec.keys() }} {{ rec.values()|list }} {{ rec.items()|list }} {{ rec.get("id") }} {{ rec.get("zz") }} {{ rec.get("zz", 0) }}
{{ nums.index(9) }} {{ nums.count(2) }} {{ nums.copy() }} {{ nums.append(1) }}
{{ rec.update({}) }}
{{ rec.pop("id") }}
{{ word.__class__ }}|{{ word.__class__.__mro__ }}
{{ word["upper"]() }} {{ rec["keys"]()|list }}
{{ names|join(", ") }} {{ nums|join }} {{ turns|join("/", attribute="role") }}
{{ nums|sort }} {{ nums|sort(reverse=true) }} {{ names|sort }} {{ names|sort(case_sensitive=true) }} {{ turns[1:]|sort(attribute="weight")|map(attribute="role")|list }}
{{ nums|unique|list }} {{ nums|sum }} {{ nums|min }} {{ nums|max }} {{ names|max }} {{ nums|first }} {{ nums|last }} {{ none_list|first }}|
{{ nums|length }} {{ word|count }} {{ nums|reverse|list }} {{ word|reverse }} {{ nothing|length }}
{{ nope|default("d") }} {{ empty|default("d") }}| {{ empty|default("d", true) }} {{ nothing|d("n", boolean=true) }}
{{ word|upper }} {{ word|lower }} {{ "an elf's-hat (x)"|title }} {{ "hELLO"|capitalize }} {{ " x "|trim }}| {{ "--x-"|trim("-") }}
{{ lines|indent }}|{{ lines|indent(2, first=true) }}|{{ lines|indent("> ", blank=true) }}
{{ text|wordcount }} {{ text|replace("o", "0") }} {{ text|replace("o", "0", 1) }} {{ text|truncate(8) }} {{ text|truncate(9, true, "~", 0) }} {{ text|center(20) }}|
{{ "the quick brown fox-trot jumps"|wordwrap(9) }} {{ "abcdefghij"|wordwrap(4) }}
{{ odd|e }} {{ odd|forceescape }} {{ odd|escape|escape }} {{ "<b>bold</b> &amp; x"|striptags }} {{ {"a": 1, "b c": "x&y"}|urlencode }} {{ "a b/c?"|urlencode }}
{{ {"class": "x", "id": none, "t": "<"}|xmlattr }} {{ "see www.example.org or me@example.org."|urlize }}
{{ 1234567|filesizeformat }} {{ 1234567|filesizeformat(true) }} {{ 1|filesizeformat }}
{{ "42"|int }} {{ "4.9"|int }} {{ "x"|int }} {{ "x"|int(7) }} {{ "0x1f"|int(0, 16) }} {{ "2.5"|float }} {{ "x"|float }} {{ 3.7|int }} {{ yes|int }}
{{ 2.5|round }} {{ 3.5|round }} {{ 2.675|round(2) }} {{ 2.1|round(0, "ceil") }} {{ 2.9|round(method="floor") }} {{ 1234|round(-2) }} {{ neg|abs }}
{{ nums|batch(3)|list }} {{ nums|batch(3, "-")|list }} {{ nums|slice(3)|list }} {{ nums|slice(3, "-")|list }}
{{ rec|dictsort }} {{ {"b": 1, "A": 3, "c": 2}|dictsort }} {{ {"b": 1, "A": 3}|dictsort(true) }} {{ {"b": 2, "a": 1}|dictsort(by="value") }}
{{ rec|items|list }} {{ nums|items|list }}
{{ turns|map(attribute="role")|list }} {{ names|map("upper")|list }} {{ turns|map(attribute="weight", default=0)|list }} {{ turns|map(attribute="calls.0.name")|list }}
{{ turns|selectattr("weight")|list|length }} {{ turns|selectattr("role", "equalto", "user")|map(attribute="content")|first }} {{ turns|rejectattr("calls", "defined")|list|length }}
{{ nums|select("odd")|list }} {{ nums|reject("gt", 4)|list }} {{ [0, "", "a", none]|select|list }} {{ nums|select("nope")|list }}
{% for key, group in turns|groupby("role") %}{{ key }}:{{ group|length }};{% endfor %}
{{ rec|tojson }} {{ turns[2]|tojson(indent=2) }} {{ uni|tojson }} {{ uni|tojson(ensure_ascii=true) }} {{ odd|tojson }} {{ [1.0, none, true, 1e30]|tojson(separators=(",", ":")) }}
{{ {"b": 1, "a": [], "c": {}}|tojson(sort_keys=true, indent=1) }} {{ nope|tojson }}
{{ rec|string|length }} {{ nums|list }} {{ word|list }} {{ rec|list }} {{ {"x": {"y": "z" * 90}, "l": names * 8}|pprint }}
{{ "%s-%s"|format(1, 2) }} {{ "%(a)s"|format(a=3) }} {{ rec|attr("keys") is callable }} {{ rec|attr("id") }}|
{{ word is string }} {{ n is number }} {{ n is integer }} {{ pi is float }} {{ yes is boolean }} {{ rec is mapping }} {{ nums is sequence }} {{ nothing is none }} {{ nope is undefined }} {{ word is defined }}
{{ n is even }} {{ n is odd }} {{ n is divisibleby 4 }} {{ "ab" is lower }} {{ "AB" is upper }} {{ n is gt 3 }} {{ n is in [12] }} {{ n is sameas 12 }} {{ "upper" is filter }} {{ "odd" is test }} {{ yes is true }}
{{ n is not string }} {{ not n is string }} {{ n is string or yes }} {{ nope is defined and nope.x }}
{{ (odd|safe) is escaped }} {{ (odd|safe) + "<" }} {{ ("<b>"|safe) ~ "<" }} {{ [("x"|safe)] }} {{ "<%s>"|safe % "<" }}
{% for x in nums %}{{ loop.index }}:{{ x }}{% if not loop.last %}, {% endif %}{% endfor %}
{% for x in nums %}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }} {% endfor %}
{% for x in nums %}{{ loop.cycle("a", "b") }}{{ loop.changed(x) }}{{ loop.depth }} {% endfor %}
{% for x in none_list %}x{% else %}nothing here{% endfor %}
{% for x in nums if x > 2 %}{{ loop.index }}/{{ loop.length }}={{ x }} {% else %}none{% endfor %}
{% for k, v in rec.items() %}{{ k }}={{ v }};{% endfor %}{% for k in rec %}{{ k }}{% endfor %}
{% for a, b in [(1, 2), (3,)] %}{{ a }}{% endfor %}
{% for x in nums %}{% if x == 9 %}{% break %}{% endif %}{{ x }}{% endfor %}|{% for x in nums %}{% if x == 2 %}{% continue %}{% endif %}{{ x }}{% endfor %}
{% for x in range(3) %}{% for y in range(x) %}{{ loop.index }}{{ y }},{% endfor %}{{ loop.index }};{% endfor %}
{% for x in [[1, [2]], [3]] recursive %}[{% if x is iterable %}{{ loop(x) }}{% else %}{{ x }}@{{ loop.depth }}{% endif %}]{% endfor %}
{% for x in 5 %}{% endfor %}
{% for c in uni[:3] %}<{{ c }}>{% endfor %}{% for x in nope %}x{% else %}e{% endfor %}
{{ range(3) }} {{ range(2, 8, 3)|list }} {{ range(5, 0, -2)|list }} {{ range(10)[2:5] }} {{ range(3)|length }}
{{ range(200000) }}
{% set a = 1 %}{% set b, c = 2, [3] %}{{ a }}{{ b }}{{ c }}
{% set a %}block {{ word }}{% endset %}[{{ a }}]{% set b | upper | trim %} x {% endset %}[{{ b }}]
{% set a = 1 %}{% for x in nums %}{% set a = x %}{% endfor %}{{ a }}
{% set ns = namespace(total=0, seen=[]) %}{% for x in nums %}{% set ns.total = ns.total + x %}{% set ns.seen = ns.seen + [x] %}{% endfor %}{{ ns.total }}{{ ns.seen }}{{ ns }}
{% set rec.id = 5 %}
{% if yes %}{% set fresh = 1 %}{% endif %}{{ fresh }}{% if no %}{% set stale = 1 %}{% endif %}{{ stale }}|
{% with a = 1, b = word %}{{ a }}{{ b }}{% endwith %}{{ a }}|
{% macro greet(who, mark="!", times=1) %}{{ who }}{{ mark * times }}{% endmacro %}{{ greet("you") }} {{ greet("me", "?") }} {{ greet("all", times=3) }} {{ greet() }}
{% macro m(a, b=a) %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1) }} {{ m(1, 2, 3, k=4) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(z=2) }}
{% macro box(t) %}<{{ t }}:{{ caller() }}>{% endmacro %}{% call box("k") %}inner {{ word }}{% endcall %}
{% macro each(l) %}{% for i in l %}{{ caller(i) }}{% endfor %}{% endmacro %}{% call(i) each(nums) %}({{ i }}){% endcall %}
{% macro fact(k) %}{{ k * fact(k - 1)|int if k > 1 else 1 }}{% endmacro %}{{ fact(10) }}
{% macro m() %}{{ outer }}{% endmacro %}{% set outer = "late" %}{{ m() }} {{ m.name }} {{ m }} {{ m.arguments }}
{% filter upper|replace("E", "3") %}{{ word }} here{% endfilter %}
{% generation %}said: {{ word }}{% endgeneration %}
{% autoescape true %}{{ odd }}{{ odd|safe }}{{ "<" ~ "b" }}{% endautoescape %}
{% block main %}in block {{ word }}{% endblock %} {{ self.main() }}
{% print word, n %}
{{ raise_exception("stop: " ~ word) }}
{{ strftime_now("%d %B %Y, %A %H:%M:%S %j %p %y") }}
{% set s = joiner("; ") %}{{ s() }}a{{ s() }}b{% set c = cycler("x", "y") %}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.next() }}
{{ dict(a=1, b=[2]) }} {{ dict([("x", 1)], y=2) }} {{ dict(rec, id=0).id }}
{% include "other" %}
{% extends "base" %}
{% import "lib" as lib %}
{{ lib.x
{% if yes %}
{% endfor %}
{{ 1 2 }}
{% for x nums %}{% endfor %}
{{ word|nope }}
{% if no %}{{ word|nope }}{% endif %}fine
{{ word is nope }}
{{ [1, 2 }}
{% nope %}
{{ "unterminated }}
{{ nope + 1 }}
{{ nope() }}
{{ word() }}
{{ nope|list }} {{ nope|upper }}| {{ nope == nothing }} {{ nope ~ "x" }}
{{ turns|selectattr("role", "equalto", "user")|list|last|tojson }} {{ (turns|last).calls[0].args.deep[1] }}
{%- for t in turns %}<|{{ t.role }}|>{{ t["content"]|trim }}{% if t.calls is defined and t.calls %}{{ t.calls|tojson }}{% endif %}<|end|>{{ "\n" }}{%- endfor %}
{% set ns = namespace(found=false) %}{% for t in turns %}{% if t.role == "user" and not ns.found %}{% set ns.found = true %}{{ loop.index0 }}{% endif %}{% endfor %}{{ ns.found }}
{{ "\u00e9\x41\101\\\n\"\q" }} {{ 'it''s' }} {{ "a" "b" }}
{{ 0x1F }} {{ 0b101 }} {{ 0o17 }} {{ 1_000 }} {{ 1.5e3 }}
{{ -2 ** 2 }} {{ 2 ** 3 ** 2 }} {{ - -3 }} {{ +yes }} {{ -1|abs }}
{{ word
   .upper(
   ) }}
{{ nums.pop() }}{{ nums }}{{ nums.pop(0) }}{{ nums }}
{{ [nope] }} {{ {"a": nope} }} {{ nope in [nope] }}
{{ (1).bit_length() }} {{ pi.is_integer() }} {{ pi.hex() }} {{ n.real }} {{ n.denominator }} {{ pi.as_integer_ratio() }}
{{ loop }}|{% for x in [1] %}{{ loop }}{% endfor %}
{{ {1: "int", true: "bool", 1.0: "float"} }} {{ {[1]: 2} }}
{{ turns[0].role ~ turns[-1]["role"] }}{{ turns[5].role }}
{{ "x".nosuch() }}
{% set x = 5 %}{% macro show() %}{{ x }}{% endmacro %}{% for x in [1] %}{{ show() }}{{ x }}{% endfor %}
{% for i in range(3) %}{% set j = i * 2 %}{{ j }}{% endfor %}{{ j is defined }}
{{ "\n"|length }}{{ "	"|length }}
"""


def main():
    env = environment()
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "chat")
    # A snippet is a line; a line that does not begin one (leading blank or bare end) continues the one before.
    sources = []
    for line in SNIPPETS.strip("\n").split("\n"):
        if sources and (line.startswith("  ") or line in ("out",)) and not line.startswith("  {% if yes"):
            sources[-1] += "\n" + line
        else:
            sources.append(line)
    with open(os.path.join(folder, "snippets.jsonl"), "w", encoding="utf-8") as out:
        for source in sources:
            output, error, message = render(env, source, json.loads(json.dumps(CONTEXT)))
            row = {"template": source}
            if error is None:
                row["output"] = output
            else:
                row["error"] = error
                if error in ("TemplateError", "UndefinedError", "SecurityError"):
                    row["message"] = message
            out.write(json.dumps(row) + "\n")
    with open(os.path.join(folder, "context.json"), "w", encoding="utf-8") as out:
        out.write(json.dumps(CONTEXT) + "\n")
    print(len(sources), "snippets")


main()
