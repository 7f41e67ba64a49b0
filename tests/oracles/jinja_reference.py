"""Renders templates as transformers does, with Python's own jinja2. A development oracle: tests never need it."""
import datetime
import json

import jinja2
import jinja2.ext
import jinja2.sandbox

NOW = datetime.datetime(2026, 7, 4, 15, 9, 26)


class Generation(jinja2.ext.Extension):
    """{% generation %} ... {% endgeneration %}: renders its body through a call block, as transformers does."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_pass"), [], [], body).set_lineno(line)

    def _pass(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


def render(env, source, context):
    """(output, None, None) or (None, error type, message)."""
    try:
        output = env.from_string(source).render(**context)
        output.encode("utf-8")
        return output, None, None
    except RecursionError:
        return None, "RecursionError", ""
    except Exception as error:  # every error of a template is a result here
        return None, type(error).__name__, str(error)
