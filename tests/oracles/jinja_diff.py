#!/usr/bin/python3
"""Compares `nunspark chat-format` with Python's jinja2 on sweeps and on random templates.

    tests/oracles/jinja_diff.py --binary build/release/bin/nunspark [--seconds 300] [--seed 1] [--sweep]

--sweep first runs every filter, test, method and operator over a table of values. Prints each difference that is not
explained below and exits with 1 if there is one.
"""
import argparse
import itertools
import json
import random
import re
import signal
import subprocess
import sys
import warnings

import jinja2.defaults
import jinja2.filters
import jinja2.tests

from jinja_reference import environment, render
from processor_time import processor_seconds

warnings.simplefilter("ignore")

VARIABLES = {
    "s": "Hello World", "e": "", "n": None, "t": True, "f": False, "i": 7, "z": 0, "neg": -3, "x": 2.5, "h": 0.5,
    "big": 12345678901234567890, "l": [3, 1, 2], "ls": ["b", "a", "C"], "el": [], "d": {"a": 1, "b": [1, 2], "c": {"k": "v"}},
    "ed": {}, "u": "Z\u00fcrich \u4e2d\u6587 \U0001f600", "q": "it's \"q\" <b>&amp;</b>\n\t\\", "ml": "line1\nline2\n\nline4",
    "sp": "  pad \n", "mix": [1, "a", None, 2.5, True, [1], {"k": 2}],
    "msgs": [{"role": "user", "content": "hi", "n": 2}, {"role": "assistant", "content": "yo", "n": 1},
             {"role": "User", "content": "bye", "n": 3, "tool_calls": [{"id": "x", "f": {"name": "g"}}]}],
}

# Differences with a reason. Each is checked on the pair of results.
ADDRESS = re.compile(r" at 0x[0-9a-f]+|<generator|_reverseiterator|reversed object|<function|<bound method|&lt;bound method|<built-in|<class"
                     r"|object>|<Cycler|<BlockRef|<method|dict_reverse|<module|<jinja2|<range_iterator|object at|method \w+ of", re.IGNORECASE)


def explained(source, ours, theirs):
    out, error, _ = theirs
    if out is not None and ADDRESS.search(out):
        return "prints an object's address or type"
    if ours.get("error", {}).get("type") == "LimitError":
        return "a limit of ours"
    if error in ("RecursionError", "MemoryError", "Timeout"):
        return "Python gave up"
    message = ours.get("error", {}).get("message", "")
    if "not supported" in message and ("bytes" in message or "complex" in message):
        return "bytes and complex numbers do not exist here"
    if ours.get("error", {}).get("type") == "TemplateAssertionError" and re.search("No (filter|test) named", message):
        return "an unknown filter or test that Jinja2's optimizer folds away (constant and/or)"
    if re.search("not subscriptable|'slice'|slice indices", message):
        return "a slice of a constant that has none: Jinja2's optimizer makes it undefined"
    if "not supported" in message and "sets" in message:
        return "sets do not exist here"
    if re.search(r"\bdict\b(?!\()", source):
        return "the class dict as a value"
    if ours.get("error", {}).get("type") == "OverflowError" and "C ssize_t" in message and "range" in source:
        return "a range whose ends are beyond 64 bits"
    if out is not None and ("b'" in out or 'b"' in out) and "encode" in source:
        return "bytes"
    if "random" in source or "lipsum" in source:
        return "random"
    # Code that Jinja2 generates and Python then refuses; the text of such templates is an error here as well.
    if error == "NameError" and ("1e999" in source or "inf" in theirs[2]):
        return "generated code: an infinite constant"
    if error in ("SyntaxError", "NameError", "AssertionError", "UnboundLocalError", "IndentationError") and "error" in ours:
        return "generated code"
    return None


class Ours:
    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")

    def run(self, sources):
        lines = [json.dumps({"context": VARIABLES, "template": s}) for s in sources]
        answers = []
        for line in lines:  # one at a time: no pipe can fill up
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
            if not answer:
                raise SystemExit("the binary died on: " + line[:2000])
            answers.append(json.loads(answer))
        return answers


class Timeout(Exception):
    pass


def on_alarm(*_):
    raise Timeout()


def reference(env, source):
    # Processor time, so that a busy machine changes nothing.
    signal.signal(signal.SIGVTALRM, on_alarm)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, 2.0)
        try:
            return render(env, source, json.loads(json.dumps(VARIABLES)))
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    except Timeout:
        return None, "Timeout", ""


class Comparison:
    def __init__(self, command):
        self.env = environment()
        self.ours = Ours(command)
        self.count = 0
        self.differences = 0
        self.reasons = {}

    def check(self, sources):
        for source, ours in zip(sources, self.ours.run(sources)):
            theirs = reference(self.env, source)
            self.count += 1
            if theirs[0] is not None:
                same = ours.get("output") == theirs[0]
            else:
                same = ours.get("error", {}).get("type") == theirs[1]
            if same:
                continue
            reason = explained(source, ours, theirs)
            if reason is not None:
                self.reasons[reason] = self.reasons.get(reason, 0) + 1
                continue
            self.differences += 1
            if self.differences <= 200:
                print(f"--- {source!r}\n  ours   {ours}\n  theirs {theirs}")


# --- Sweeps ---

VALUES = ["s", "e", "n", "t", "f", "i", "z", "neg", "x", "big", "l", "ls", "el", "d", "ed", "u", "q", "ml", "sp", "mix", "msgs",
          "missing", "(1, 2)", "()", "range(4)", "d.items()", "d.keys()", "namespace(a=1)", "-0.0", "1e16", "1e-5", "(q|safe)",
          "[[1, 2], [3]]", "['a', 'A', 'b']", "'3.7'", "' 42 '", "'0x1f'", "'<a href=\"x\">b</a> www.example.com (http://x.org)'",
          "{'b': 1, 'A': 2, 'c': [1]}", "12345.678", "2**70", "'\u00dfI\u0130\u01c5\u03a3 \u03b1\u03a3'", "[2.5, 1]", "dict", "[missing]"]

FILTERS = ["abs", "attr('a')", "attr('upper')", "batch(2)|list", "batch(2, 'x')|list", "batch(0)|list", "capitalize", "center", "center(15)",
           "count", "default", "default('D')", "default('D', true)", "d('q', boolean=true)", "dictsort", "dictsort(true)",
           "dictsort(by='value')", "dictsort(reverse=true)", "dictsort(false, 'x')", "e", "escape", "filesizeformat",
           "filesizeformat(true)", "first", "float", "float(1.5)", "forceescape", "format(1)", "format(1, 2)", "format(a=1)",
           "groupby('role')|list", "groupby('n')|map('first')|list", "groupby(0)|list", "groupby('tool_calls', default='-')|list",
           "indent", "indent(2)", "indent(2, true)", "indent('> ')", "indent(width=3, blank=true)", "indent(first=true)", "int", "int(5)",
           "int(0, 16)", "int(base=8)", "int(default='d')", "join", "join(',')", "join(', ', attribute='role')", "join(1)", "last", "length",
           "list", "lower", "items|list", "map('upper')|list", "map(attribute='role')|list", "map(attribute='x', default=1)|list",
           "map(attribute='tool_calls.0.id')|list", "map('int')|list", "map('default', 3)|list", "map('nope')|list", "map()|list",
           "max", "min", "max(case_sensitive=true)", "min(attribute='n')", "max(attribute='n')", "pprint", "reject|list", "reject('odd')|list",
           "rejectattr('n')|list", "rejectattr('tool_calls', 'defined')|list", "replace('l', 'L')", "replace('l', 'L', 1)", "replace(1, 2)",
           "replace('', '-')", "reverse", "reverse|list", "round", "round(1)", "round(-1)", "round(1, 'ceil')", "round(0, 'floor')",
           "round(2, 'x')", "round(precision=2)", "safe", "select|list", "select('string')|list", "select('gt', 1)|list", "select('nope')|list",
           "selectattr('n')|list", "selectattr('n', '>', 1)|list", "selectattr('role', 'in', ['user'])|list", "selectattr()|list",
           "slice(2)|list", "slice(2, 'f')|list", "slice(0)|list", "sort", "sort(reverse=true)", "sort(case_sensitive=true)",
           "sort(attribute='n')", "sort(attribute='role,n')", "sort(attribute='role', reverse=true)", "string", "striptags", "sum",
           "sum('n')", "sum(attribute='n', start=10)", "sum(start=[])", "title", "tojson", "tojson(indent=2)", "tojson(ensure_ascii=true)",
           "tojson(sort_keys=true)", "tojson(separators=(',', ':'))", "tojson(indent='--')", "tojson(2)", "trim", "trim('Hd')", "truncate(5)",
           "truncate(5, true)", "truncate(7, false, '..', 0)", "truncate(2)", "truncate", "unique|list", "unique(true)|list",
           "unique(attribute='role')|list", "upper", "urlencode", "urlize", "urlize(10)", "urlize(nofollow=true, target='_blank')",
           "wordcount", "wordwrap(5)", "wordwrap(4, false)", "wordwrap(6, wrapstring='|')", "xmlattr", "xmlattr(false)", "nofilter",
           "upper(1)", "trim(chars='o', x=1)", "length(1)", "join(d='-')", "sort(1, 2, 3, 4)", "list|tojson", "string|length"]

TESTS = ["boolean", "callable", "defined", "divisibleby 2", "divisibleby(0)", "eq 1", "equalto 'a'", "escaped", "even", "false", "filter",
         "float", "ge 1", "gt 1", "in l", "in s", "in d", "in n", "integer", "iterable", "le 1", "lower", "lt 2", "mapping", "ne 1", "none", "number",
         "odd", "sameas t", "sameas none", "sequence", "string", "test", "true", "undefined", "upper", "not none", "not string",
         "== 1", "nosuch", "eq", "in", "lessthan 3", "greaterthan(3)", "divisibleby(num=3)"]

STRINGS = ["s", "e", "u", "q", "ml", "sp", "'a,b,,c'", "'  a  b '", "'\u00dfI\u0130\u01c5\u03a3 \u03b1\u03a3'", "'xxaxyx'", "(q|safe)", "'1\u00b2\u0663\u4e94\u2167'",
           "'tab\tone\ttwo\\n\tx'", "'a\\r\\nb\\x0bc\\x85d\\u2028'", "'-42'", "'Hello World'", "'{0} {a} {}'", "'%d %s'"]

METHODS = ["capitalize()", "casefold()", "center(9)", "center(8, '*')", "center(3)", "count('l')", "count('')", "count('l', 3)", "endswith('d')",
           "endswith(('x', 'd'))", "endswith(1)", "expandtabs()", "expandtabs(3)", "find('o')", "find('o', 5)", "find('o', -4, -1)", "find('')",
           "find('', 99)", "format(1, a=2)", "format()", "index('o')", "index('zz')", "isalnum()", "isalpha()", "isascii()", "isdecimal()", "isdigit()",
           "isidentifier()", "islower()", "isnumeric()", "isprintable()", "isspace()", "istitle()", "isupper()", "join(ls)", "join(l)", "join('ab')",
           "ljust(12)|replace(' ', '.')", "lower()", "lstrip()", "lstrip('Hx ')", "partition('o')", "partition('')", "partition(',')", "removeprefix('He')",
           "removesuffix('ld')", "replace('l', 'L')", "replace('l', 'L', 2)", "replace('', '-')", "replace('', '-', 3)", "replace('a')", "rfind('o')",
           "rindex('l')", "rjust(12, '#')", "rpartition('o')", "rpartition('zz')", "rsplit()", "rsplit(',')", "rsplit(',', 1)", "rsplit(maxsplit=1)",
           "rstrip()", "rstrip('d\\n ')", "split()", "split(' ')", "split(',')", "split(',', 1)", "split(none, 1)", "split(maxsplit=1)", "split(sep='l')",
           "split('')", "split(1)", "splitlines()", "splitlines(true)", "startswith('He')", "startswith(('a', 'H'))", "startswith('l', 2)", "strip()",
           "strip('Hd')", "strip(none)", "swapcase()", "title()", "translate({108: 'LL', 111: none})", "upper()", "zfill(14)", "nosuch()", "append(1)",
           "__class__", "upper", "format_map({'a': 3})", "lower().upper()[:3]", "strip(1)", "split(',', x=1)", "center()", "isupper(1)"]

ATTRIBUTES = ["a", "b.0", "c.k", "x", "keys()|list", "values()|list", "items()|list", "get('a')", "get('zz', 5)", "copy()", "pop('a')", "pop()", "clear()", "append(1)",
              "count(1)", "index(1)", "index(9)", "sort()", "reverse()", "update({})", "setdefault('a')", "real", "imag", "numerator", "denominator",
              "bit_length()", "is_integer()", "hex()", "as_integer_ratio()", "conjugate()", "__len__", "_x", "start", "stop", "step", "role", "0", "1.0",
              "name", "insert(0, 1)", "extend([1])", "remove(1)", "fromkeys([1, 2])", "isdisjoint([1])", "popitem()", "mro", "__init__"]

ITEMS = ["0", "-1", "5", "'a'", "'x'", "1:", ":-1", "::-1", "::2", "-2:", "1:100", "5:1", "none", "true", "1.0", "'keys'", "'append'", "[1]", "'__class__'", "::0",
         "'a':", "none:none", "(1, 2)", "-100:100:3", "1, 2", "missing", "big"]

OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]
SMALL = ["s", "e", "n", "t", "i", "z", "neg", "x", "h", "l", "d", "missing", "(1, 2)", "'ab'", "3", "0.1", "-2", "[1]", "range(3)", "d.keys()", "1e300", "(q|safe)",
         "'%s|%s'", "'%d'", "2**65", "-7.5", "9007199254740993", "9007199254740992.0", "'%(a)s'"]

PERCENT = ["%s", "%r", "%a", "%d", "%i", "%5d|", "%-5d|", "%05d", "%+d", "% d", "%x", "%X", "%#x", "%o", "%#o", "%e", "%E", "%f", "%.2f", "%g", "%G", "%.3g", "%c", "%%",
           "%5s|", "%-5s|", "%.2s", "%10.3f|", "%+.1e", "%#g", "%#.0f", "%(a)s", "%(zz)s", "%", "%y", "%5", "%*d", "%.d", "%.5d", "%08.3f", "%-08d|", "%ld", "%s %s", "%q"]
PERCENT_VALUES = ["1", "-42", "3.14159", "'x'", "none", "true", "l", "d", "(1, 2)", "(1,)", "missing", "big", "1e22", "0.0", "-0.0", "1e999", "[1]", "'\u00e9'", "65", "-1e999",
                  "(5, 3)", "{'a': 'v'}", "u", "1.5", "(q|safe)", "range(2)"]

SPECS = ["", "5", "<5", ">5", "^5", "*^9", "05", "=5", "+", "-", " ", "#", "d", "x", "X", "#x", "b", "#b", "o", "c", "n", "e", "E", "f", "F", ".2f", "g", "G", "%", ".1%", ",", "_",
         ",d", "_x", ",.2f", "010,", "+.3e", ".3", ".0", "10.3", "s", ".2", ".3s", "<10s", "z.1f", "\u00e9^9", "08.2f", "+08d", "#010x", "q", "5.", "=+8", ",,", "_,", "1000", "^+9.1f",
         ".10g", "#.3g", "#.0f", "0<6", "x<6", ".0e", ".17", ",s", "+s", "012,.1f", "_b", "{{w}}"]
SPEC_VALUES = ["42", "-7", "3.14159", "0.0", "-0.0", "'text'", "true", "none", "1e16", "123456789.123", "big", "1234567", "l", "missing", "'\u00e9\u4e2d'", "1e999", "(q|safe)", "65",
               "1e-7", "123.0", "999999.5", "0.00001234"]


FILTERS_OF_JINJA, TESTS_OF_JINJA, GLOBALS_OF_JINJA = (sorted(names) for names in (jinja2.filters.FILTERS, jinja2.tests.TESTS, jinja2.defaults.DEFAULT_NAMESPACE))


def unknown_names(comparison):
    """Built-ins of Jinja2 that we do not know, and those that the sweeps leave out (random gives anything)."""
    questions = [(name, f"{{{{ '{name}' is {kind} }}}}") for kind, names in (("filter", FILTERS_OF_JINJA), ("test", TESTS_OF_JINJA)) for name in names]
    questions += [(name, f"{{{{ {name} is defined }}}}") for name in GLOBALS_OF_JINJA]
    answers = comparison.ours.run([question for _, question in questions])
    missing = [name for (name, _), answer in zip(questions, answers) if answer.get("output") != "True"]
    swept = {re.match(r"\w+", f).group() for f in FILTERS} | {"random"}
    operators = {"!=", "<", "<=", "==", ">", ">="}
    tried = {re.match(r"\W+|\w+", t.removeprefix("not ")).group().strip() for t in TESTS} | operators
    return missing + [f"{name} (not swept)" for name in FILTERS_OF_JINJA if name not in swept] + [f"{name} (not swept)" for name in TESTS_OF_JINJA if name not in tried]


def quote(text):
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def sweeps():
    for v, f in itertools.product(VALUES, FILTERS):
        yield "{{ %s|%s }}" % (v, f)
    for v, t in itertools.product(VALUES, TESTS):
        yield "{{ %s is %s }}" % (v, t)
    for v, m in itertools.product(STRINGS, METHODS):
        yield "{{ %s.%s }}" % (v, m)
    for v, a in itertools.product(VALUES, ATTRIBUTES):
        yield "{{ %s.%s }}" % ("(%s)" % v if v[0] in "-1(" or "*" in v else v, a)
        yield "{%% set v = %s %%}{{ v.%s is defined }}" % (v, a)
    for v, k in itertools.product(VALUES, ITEMS):
        # Through a variable: constants are folded, and then slices have other errors.
        yield "{%% set v = %s %%}{{ v[%s] }}" % (v, k)
    for a, op, b in itertools.product(SMALL, OPERATORS, SMALL):
        if op == "**" and ("1e300" in a or "**" in a or "**" in b or len(b) > 8):
            continue
        yield "{{ (%s) %s (%s) }}" % (a, op, b)
    for v in VALUES:
        for form in ("{{ %s }}", "{{ [%s] }}", "{{ -(%s) }}", "{{ +(%s) }}", "{{ not (%s) }}", "{%% for a in %s %%}{{ loop.index }}{{ a }},{%% else %%}E{%% endfor %%}",
                     "{%% for a, b in %s %%}{{ a }}{%% endfor %%}", "{%% if %s %%}y{%% endif %%}", "{{ (%s)() }}", "{{ (%s) ~ 1 }}", "{{ dict(%s) }}", "{{ {(%s): 1} }}",
                     "{{ range(%s) }}", "{{ namespace(%s) }}", "{{ loop(%s) }}", "{%% set a, b = %s %%}{{ b }}", "{{ '{}'.format(%s) }}", "{{ '{0.a}'.format(%s) }}",
                     "{{ '{0[0]}'.format(%s) }}", "{{ '{!r:>20}'.format(%s) }}", "{{ raise_exception(%s) }}", "{{ cycler(%s).next() }}", "{{ s.join(%s) }}",
                     "{{ dict(**%s) }}", "{{ '%%s-%%s' %% (%s) }}", "{{ [1, *%s] }}", "{{ cycler(*%s).current }}", "{%% autoescape true %%}{{ %s }}|{{ %s ~ '<' }}{%% endautoescape %%}",
                     "{%% autoescape true %%}{{ [%s, '<']|join('&') }}{%% endautoescape %%}"):
            yield form.replace("%s", v).replace("%%", "%")
    for p, v in itertools.product(PERCENT, PERCENT_VALUES):
        yield "{{ %s %% %s }}" % (quote(p), v)
    for p, v in itertools.product(SPECS, SPEC_VALUES):
        yield "{{ %s.format(%s, w=6) }}" % (quote("{:" + p.replace("{{", "{").replace("}}", "}") + "}"), v)
    for code in "aAbBcCdDeFgGhHIjklmMnpPrRsStTuUVwWxXyYzZ%fEq":
        yield "{{ strftime_now('%%%s') }}" % code
    for number in ("0.1", "1e22", "1e21", "123456789012345678.0", "1.5e-7", "5e-324", "1.7976931348623157e308", "100.0", "1e15", "1e16", "0.0001", "0.00001", "1_000.5",
                   "1e5", "3.0e10", "2.50", "0x1F", "0b101", "0o17", "1_0", "00", "1e-7", "12345678901234567890123", "1.1e1", ".5", "1.", "07"):
        yield "{{ %s }}" % number
        yield "{{ [%s, -%s] }}" % (number, number)


# --- Random templates ---

class Generator:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.names = list(VARIABLES) + ["missing", "a", "b", "ns", "m"]

    def pick(self, *choices):
        return self.random.choice(choices)

    def expression(self, depth=3):
        r = self.random
        if depth <= 0 or r.random() < 0.25:
            return r.choice([r.choice(self.names), r.choice(VALUES), str(r.randint(-3, 9)), self.pick("'x'", "'ab c'", "none", "true", "[]", "{}", "1.5"), r.choice(self.names)])
        sub = lambda: self.expression(depth - 1)
        kind = r.randrange(14)
        if kind == 0:
            return f"{sub()}|{r.choice(FILTERS)}"
        if kind == 1:
            return f"({sub()}) is {r.choice(TESTS)}"
        if kind == 2:
            return f"({sub()}).{r.choice(METHODS)}"
        if kind == 3:
            return f"({sub()}).{r.choice(ATTRIBUTES)}"
        if kind == 4:
            return f"({sub()})[{r.choice(ITEMS + [sub()])}]"
        if kind in (5, 6):
            op = r.choice(OPERATORS)
            if op == "**":
                return f"({r.choice(['i', 'x', '2', 'neg'])}) ** ({r.choice(['2', '3', '-1', 'h', 'i'])})"
            if op == "*":
                return f"({sub()}) * ({r.choice(['2', '3', 'z', 'neg', 'x', 'n'])})"
            return f"{sub()} {op} {sub()}" if r.random() < 0.5 else f"({sub()}) {op} ({sub()})"
        if kind == 7:
            return f"{sub()} if {sub()}" + (f" else {sub()}" if r.random() < 0.7 else "")
        if kind == 8:
            return r.choice(["[%s, %s]", "(%s, %s)", "{'k': %s, 'j': %s}"]) % (sub(), sub())
        if kind == 9:
            return r.choice(["not ", "-", "+", ""]) + f"({sub()})"
        if kind == 10:
            return r.choice(["range(%s)", "dict(k=%s)", "namespace(v=%s).v", "m(%s)", "cycler(%s).next()", "ns.v ~ (%s)", "loop.cycle(%s)", "loop.changed(%s)"]) % sub()
        if kind == 11:
            return r.choice(["loop.index", "loop.last", "loop.length", "loop.previtem", "loop.nextitem", "loop.revindex", "loop.first", "loop.depth", "ns.v", "caller()", "varargs", "kwargs", "self"])
        if kind == 12:
            return f"({sub()})|{r.choice(FILTERS)}|{r.choice(FILTERS)}"
        return f"{sub()} ~ {sub()}"

    def tag(self, text):
        r = self.random
        return "{%" + r.choice(["", "", "", "-", "+"]) + " " + text + " " + r.choice(["", "", "", "-", "+"]) + "%}"

    def data(self):
        return self.random.choice(["", " ", "\n", "x", "  \n ", "a\nb", "\t", "\n\n", "{", "<&>", "  "])

    def target(self):
        return self.random.choice(["a", "b", "s", "x", "a, b", "loop_", "i"])

    def statement(self, depth):
        r, e = self.random, self.expression
        if depth <= 0:
            return self.data() + "{{ " + e(2) + " }}"
        body = lambda: self.body(depth - 1)
        kind = r.randrange(18)
        if kind < 4:
            return "{{" + r.choice(["", "-", ""]) + " " + e() + " " + r.choice(["", "-"]) + "}}"
        if kind < 6:
            return self.tag("if " + e(2)) + body() + (self.tag("elif " + e(1)) + body() if r.random() < 0.3 else "") + (
                self.tag("else") + body() if r.random() < 0.5 else "") + self.tag("endif")
        if kind < 10:
            head = "for " + self.target() + " in " + r.choice(["l", "msgs", "ls", "range(3)", "d", "d.items()", "el", "s", "mix", e(1)])
            if r.random() < 0.25:
                head += " if " + e(1)
            recursive = r.random() < 0.1
            inner = body() + (self.tag(r.choice(["break", "continue"])) if r.random() < 0.1 else "")
            if recursive:
                head += " recursive"
                inner += r.choice(["", "{{ loop([1]) if loop.depth < 3 }}", "{{ loop(a) if a is sequence and loop.depth < 3 and a is not string }}"])
            return self.tag(head) + inner + (self.tag("else") + body() if r.random() < 0.3 else "") + self.tag("endfor")
        if kind < 12:
            return self.tag("set " + r.choice(["a", "b", "s", "l", "ns.v", "a, b", "i"]) + " = " + e())
        if kind == 12:
            return self.tag("set " + r.choice(["a", "b", "ns.v", "a | upper", "b | trim | length"])) + body() + self.tag("endset")
        if kind == 13:
            return self.tag("macro m(" + r.choice(["", "p", "p, q=1", "p=a, q=p", "p, q=s|upper", "caller=1"]) + ")") + body() + r.choice(
                ["", "{{ p }}{{ q }}", "{{ caller() }}", "{{ varargs }}{{ kwargs }}"]) + self.tag("endmacro")
        if kind == 14:
            return self.tag("call" + r.choice(["", "(v)", "(v, w=2)"]) + " m(" + e(1) + ")") + body() + self.tag("endcall")
        if kind == 15:
            return self.tag("filter " + r.choice(["upper", "trim", "indent(2)", "replace('a', 'b')|length", "title", "e"])) + body() + self.tag("endfilter")
        if kind == 16:
            return self.tag("with " + r.choice(["a = " + e(1), "a = 1, b = a", "s = " + e(1), ""])) + body() + self.tag("endwith")
        return r.choice([
            lambda: self.tag("generation") + body() + self.tag("endgeneration"),
            lambda: self.tag("raw") + "{{ x }}" + self.tag("endraw"),
            lambda: "{#" + r.choice(["", "-"]) + " c " + r.choice(["", "-"]) + "#}",
            lambda: self.tag("autoescape " + r.choice(["true", "false", e(1)])) + body() + self.tag("endautoescape"),
            lambda: self.tag("block k%d" % r.randrange(1000) + r.choice(["", " scoped"])) + body() + self.tag("endblock"),
            lambda: self.tag("print " + e(1) + ", " + e(1)),
        ])()

    def body(self, depth):
        return "".join(self.data() + self.statement(depth) for _ in range(self.random.randint(1, 2))) + self.data()

    def template(self):
        start = self.random.choice(["", "", "{% set ns = namespace(v=0) %}", "{% macro m(p, q=2) %}<{{ p }}{{ q }}>{% endmacro %}",
                                    "{% set ns = namespace(v=0) %}{% macro m(p) %}{{ p }}{{ caller is defined }}{% endmacro %}"])
        return start + self.body(self.random.randint(1, 3))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True, help="nunspark, or any program that speaks chat-format's lines")
    parser.add_argument("--seconds", type=float, default=60, help="of processor time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sweep", action="store_true")
    arguments = parser.parse_args()
    command = [arguments.binary]
    if arguments.binary.endswith("nunspark"):
        command += ["chat-format", "--now", "2026-07-04 15:09:26"]
    comparison = Comparison(command)
    unknown = unknown_names(comparison)
    print(f"{len(FILTERS_OF_JINJA)} filters, {len(TESTS_OF_JINJA)} tests and {len(GLOBALS_OF_JINJA)} globals of Jinja2, unknown here: {', '.join(unknown) or 'none'}")
    comparison.differences += len(unknown)
    if arguments.sweep:
        comparison.check(list(sweeps()))
        print(f"sweeps: {comparison.count} templates, {comparison.differences} differences")
    generator = Generator(arguments.seed)
    while processor_seconds(comparison.ours.process) < arguments.seconds:
        comparison.check([generator.template() for _ in range(100)])
    print(f"{comparison.count} templates, {comparison.differences} unexplained differences")
    for reason, count in sorted(comparison.reasons.items()):
        print(f"  {count} explained: {reason}")
    sys.exit(1 if comparison.differences else 0)


main()
