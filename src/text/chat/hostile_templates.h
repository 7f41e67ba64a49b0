// Templates that want to hang or exhaust us, and how each ends. For tests, and for benchmarks of how long that takes.
#ifndef NUNSPARK_TEXT_CHAT_HOSTILE_TEMPLATES_H_
#define NUNSPARK_TEXT_CHAT_HOSTILE_TEMPLATES_H_

#include <string>
#include <string_view>
#include <vector>

namespace nunspark::text {

struct HostileTemplate {
  std::string_view name;
  std::string source;
  std::string_view error;  // the beginning of "Type: message"; empty: it renders
};

inline std::string Repeated(std::string_view part, int count) {
  std::string text;
  text.reserve(part.size() * static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) text += part;
  return text;
}

// `make(i)` for i in [0, count), joined.
template <typename Make>
std::string Numbered(int count, Make make) {
  std::string text;
  for (int i = 0; i < count; ++i) text += make(std::to_string(i));
  return text;
}

inline std::vector<HostileTemplate> HostileTemplates() {
  constexpr std::string_view kSteps = "LimitError: the template needs more than 4";  // 4,000,000 and some
  constexpr std::string_view kText = "LimitError: a text of ";
  constexpr std::string_view kItems = "LimitError: a sequence of ";
  constexpr std::string_view kDigits = "LimitError: an integer of more than 4300 digits is above the limit";
  constexpr std::string_view kCalls = "LimitError: calls or data are nested deeper than 200 levels";
  constexpr std::string_view kData = "LimitError: lists or dicts are nested too deeply";
  constexpr std::string_view kBlocks = "LimitError: blocks or expressions are nested deeper than 400 levels";
  constexpr std::string_view kExpression = "LimitError: an expression is nested deeper than 700 levels";
  constexpr std::string_view kNames = "LimitError: the template's names need more than 50000 look-ups";
  // Runs `body` with `set` before it, again and again.
  const auto loop = [](std::string_view set, std::string_view body) {
    return std::string(set) + "{% for k in range(100000) %}{% for i in range(100000) %}" + std::string(body) +
           "{% endfor %}{% endfor %}";
  };
  // Sets x to `next` so many times, 100000 at most (the sandbox has no longer ranges), and then `then`.
  const auto grow = [](std::string_view start, std::string_view next, int times, std::string_view then) {
    return "{% set n = namespace(x=" + std::string(start) + ") %}{% for i in range(" + std::to_string(times) +
           ") %}{% set n.x = " + std::string(next) + " %}{% endfor %}" + std::string(then);
  };
  // A dict of 3000 entries p0 to p2999, and as many parameters.
  const std::string dict =
      "{% set w = {" + Numbered(3000, [](const std::string& i) { return "'p" + i + "':1,"; }) + "} %}";
  const std::string macro =
      "{% macro m(" + Numbered(2999, [](const std::string& i) { return "p" + i + ","; }) + "p2999) %}{% endmacro %}";
  const std::string many = "{% for i in range(100000) %}{% for j in range(100000) %}";
  const std::string ends = "{% endfor %}{% endfor %}";
  return {
      // Sizes that are asked for.
      {"range(10**9)", "{% for i in range(10**9) %}x{% endfor %}", "OverflowError: Range too big"},
      {"'a' * 10**9", "{{ 'a' * 10**9 }}", kText},
      {"[1] * 10**9", "{{ [1] * 10**9 }}", kItems},
      {"%1000000000d", "{{ '%1000000000d' % 1 }}", kText},
      {"{:1000000000}", "{{ '{:1000000000}'.format(1) }}", kText},
      {"%.1000000000f", "{{ '%.1000000000f' % 1.5 }}", kText},
      {"center(10**9)", "{{ 'a'|center(10**9) }}", kText},
      {"zfill(10**12)", "{{ '1'.zfill(10**12) }}", kText},
      {"expandtabs", "{{ ('\t' * 1000000).expandtabs(1000000) }}", kText},
      {"indent(10**9)", "{{ 'a\nb'|indent(10**9) }}", kText},
      {"tojson(indent=10**9)", "{{ [1]|tojson(indent=10**9) }}", kText},
      {"replace of all by much", "{{ ('a' * 1000000)|replace('a', 'b' * 1000000) }}", kText},
      {"replace of nothing by much", "{{ ('a' * 1000000).replace('', 'b' * 1000) }}", kText},
      {"translate by much", "{{ ('a' * 100000).translate('a'.maketrans({'a': 'b' * 100000})) }}", kText},
      {"join by much", "{{ range(100000)|join('a' * 1000000) }}", kText},
      {"wordwrap by much", "{{ ('a ' * 10000)|wordwrap(1, wrapstring='b' * 100000) }}", kText},
      {"batch(10**9)", "{{ [1]|batch(10**9, 'x')|list }}", kItems},
      {"slice(10**9)", "{{ [1]|slice(10**9)|list }}", kSteps},
      {"lipsum(10**9)", "{{ lipsum(n=10**9) }}", kText},
      {"10 ** (10 ** 10)", "{{ 10 ** (10 ** 10) }}", kDigits},
      {"2 ** (10**9)", "{{ 2 ** (10**9) }}", kDigits},
      // Growth.
      {"text doubles", grow("'ab'", "n.x + n.x", 99, ""), kSteps},
      {"text doubles by ~", grow("'ab'", "n.x ~ n.x", 99, ""), kSteps},
      {"text grows and is read", grow("'ab'", "n.x + n.x", 22, loop("", "{% set y = n.x|upper %}")), kSteps},
      {"text grows by a little", grow("''", "n.x + 'abcdefgh'", 100000, ""), kSteps},
      {"list doubles", grow("[1]", "n.x + n.x", 99, ""), kItems},
      {"number squares", grow("3", "n.x * n.x", 99, ""), kDigits},
      {"output doubles", loop("{% set s = 'a' * 1000000 %}", "{{ s }}"), kSteps},
      {"set block", loop("{% set s = 'a' * 1000000 %}", "{% set x %}{{ s }}{% endset %}"), kSteps},
      {"big text joined", loop("{% set l = ['aaaaaaaaaaaaaaaa'] * 1000000 %}", "{% set x = l|join(',') %}"), kSteps},
      // Steps.
      {"empty loops", many + ends, kSteps},
      {"loops with output", many + "x" + ends, kSteps},
      {"loops with arithmetic", "{% set n = namespace(x=0) %}" + many + "{% set n.x = n.x + j * i %}" + ends, kSteps},
      {"loops with attributes", many + "{% if d.a.b == j %}{% endif %}" + ends, kSteps},
      {"loops with loop.index", many + "{{ loop.index }}{{ loop.last }}" + ends, kSteps},
      {"filters", loop("", "{% set x = 'a'|upper|lower|trim|length %}"), kSteps},
      {"format", loop("", "{% set x = '{} {:>10} {:.3f}'.format(i, i, 1.5) %}"), kSteps},
      {"digits of a float", loop("", "{% set x = '%.500f' % (i / 7) %}"), kSteps},
      {"dicts", loop("", "{% set x = dict(d, b=i) %}"), kSteps},
      {"namespaces", loop("", "{% set x = namespace(a=1) %}"), kSteps},
      {"macros", loop("{% macro m() %}{{ caller() }}{% endmacro %}", "{% call m() %}x{% endcall %}"), kSteps},
      {"tojson", loop("", "{% set x = {'a': [1, 2, 3]}|tojson(indent=2) %}"), kSteps},
      {"strftime_now", loop("{% set f = '%c' * 1000 %}", "{% set x = strftime_now(f) %}"), kSteps},
      {"range to list", loop("", "{% set x = range(100000)|map('string')|list %}"), kSteps},
      {"sort", loop("{% set l = range(100000)|list %}", "{% set x = l|sort(reverse=true) %}"), kSteps},
      {"unique", loop("{% set l = range(100000)|list %}", "{% set x = l|unique|list %}"), kSteps},
      {"reversed slices", loop("{% set l = range(100000)|list %}", "{% set x = l[::-1] %}"), kSteps},
      {"in a list", loop("{% set l = range(100000)|list %}", "{% if -1 in l %}{% endif %}"), kSteps},
      {"random", loop("{% set l = ('ab' * 1000000) %}", "{% set x = l|random %}"), kSteps},
      {"powers", loop("", "{% set x = 7 ** 4900 %}"), kSteps},
      {"products of long numbers", loop("{% set n = 10 ** 2100 %}", "{% set x = n * n %}"), kSteps},
      {"quotients of long numbers", loop("{% set n = 10 ** 4200 %}", "{% set x = n // (n - 7) ~ n % 7 %}"), kSteps},
      {"quotients as floats", loop("{% set n = 10 ** 4200 %}", "{% set x = n / (n - 7) %}"), kSteps},
      {"powers of minus one", loop("{% set n = 10 ** 4200 %}", "{% set x = (0 - 1) ** n %}"), kSteps},
      {"rounded long numbers", loop("{% set n = 10 ** 4200 %}", "{% set x = n|round(-3000) %}"), kSteps},
      {"ratios", loop("{% set f = 5e-324 %}", "{% set x = f.as_integer_ratio() %}"), kSteps},
      {"digits of long numbers", loop("{% set n = 10 ** 4200 %}", "{% set x = n|string %}"), kSteps},
      {"long numbers from text", loop("{% set s = '9' * 4200 %}", "{% set x = s|int %}"), kSteps},
      {"floats from text", loop("{% set s = '0.' + '1' * 1000000 %}", "{% set x = s|float %}"), kSteps},
      // Texts that are slow to look through.
      {"find", loop("{% set s = 'a' * 4000000 %}{% set t = 'a' * 2000000 + 'b' %}", "{{ s.find(t) }}"), kSteps},
      {"rfind", loop("{% set s = 'a' * 4000000 %}{% set t = 'b' + 'a' * 2000000 %}", "{{ s.rfind(t) }}"), kSteps},
      {"in", loop("{% set s = 'a' * 4000000 %}{% set t = 'a' * 2000000 + 'b' %}", "{{ t in s }}"), kSteps},
      {"startswith any of many",
       loop("{% set s = 'a' * 1000000 %}{% set t = ('a' * 999999 + 'b',) * 100000 %}", "{{ s.startswith(t) }}"),
       kSteps},
      {"replace", loop("{% set s = 'a' * 1000000 %}", "{% set x = s.replace('a', 'b') %}"), kSteps},
      {"split", loop("{% set s = 'a ' * 500000 %}", "{% set x = s.split() %}"), kSteps},
      {"splitlines", loop("{% set s = 'a\n' * 500000 %}", "{% set x = s.splitlines() %}"), kSteps},
      {"strip", loop("{% set s = ' ' * 4000000 %}", "{% set x = s.strip() %}"), kSteps},
      {"isalpha", loop("{% set s = 'a' * 4000000 %}", "{% set x = s.isalpha() %}"), kSteps},
      {"title", loop("{% set s = 'ab ' * 1000000 %}", "{% set x = s|title %}"), kSteps},
      {"striptags", loop("{% set s = '<' * 1000000 %}", "{% set x = s|striptags %}"), kSteps},
      {"escape", loop("{% set s = '<' * 1000000 %}", "{% set x = s|e %}"), kSteps},
      {"urlize", loop("{% set s = 'www.a' + ')' * 100000 %}", "{% set x = s|urlize %}"), kSteps},
      {"urlize of brackets", loop("{% set s = 'a' + '(' * 99999 + ')' * 99999 %}", "{% set x = s|urlize %}"), kSteps},
      {"field numbers", loop("{% set s = '{0[' + '9' * 4000 + ']}' %}", "{% set x = s.format(d) %}"), kSteps},
      {"keywords to a macro", loop(dict + macro, "{{ m(**w) }}"), kSteps},
      {"keywords to format", loop(dict + "{% set f = '{p2999}' * 3000 %}", "{% set x = f.format(**w) %}"), kSteps},
      {"wordwrap", "{{ ('a' * 10000000)|wordwrap(1) }}", kSteps},
      {"pprint", "{{ ('a b ' * 1000000)|pprint }}", kSteps},
      {"index of a character", loop("{% set s = '\u00e9' * 4000000 %}", "{% set x = s[3999999] %}"), kSteps},
      {"key", loop("{% set s = 'a' * 4000000 %}", "{% set x = d[s] %}"), kSteps},
      // Depth.
      {"macro calls itself", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", kCalls},
      {"macros call each other",
       "{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{% endmacro %}{{ f() }}", kCalls},
      {"macro calls itself twice",
       "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}", kSteps},
      {"recursive loop", "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", kCalls},
      {"block in itself", "{% block a %}{{ self.a() }}{% endblock %}", kCalls},
      {"brackets", "{{ " + Repeated("(", 120000) + "1" + Repeated(")", 120000) + " }}", kBlocks},
      {"lists in lists", "{{ " + Repeated("[", 100000) + Repeated("]", 100000) + " }}", kBlocks},
      {"minus minus", "{{ " + Repeated("-", 100000) + "1 }}", kBlocks},
      {"conditions", "{{ " + Repeated("1 if 1 else ", 20000) + "1 }}", kBlocks},
      {"sums", "{{ " + Repeated("1+", 100000) + "1 }}", kExpression},
      {"attributes", "{{ d" + Repeated(".a", 100000) + " }}", kExpression},
      {"blocks in blocks", Repeated("{% if 1 %}", 12000) + Repeated("{% endif %}", 12000), kBlocks},
      {"list in list in list", grow("[]", "[n.x]", 100000, "{{ n.x }}"), kData},
      {"generators", grow("[]", "n.x|map('string')", 10000, "{{ n.x|list }}"), kCalls},
      // Data that holds itself, or itself twice.
      {"namespace holds itself", "{% set n = namespace() %}{% set n.me = n %}{{ n }}{{ n.me.me.me == n }}", ""},
      {"namespace as JSON", "{% set n = namespace() %}{% set n.me = n %}{{ n|tojson }}", "TypeError: "},
      {"dict holds itself", "{% set x = {} %}{% set y = x.update({'a': x}) %}{{ x }}", "SecurityError: "},
      {"list holds itself", "{% set x = [] %}{% set y = x.append(x) %}{{ x }}", "SecurityError: "},
      {"shared lists print", grow("[1]", "[n.x, n.x]", 60, "{{ n.x }}"), kSteps},
      {"shared lists as JSON", grow("[1]", "[n.x, n.x]", 60, "{{ n.x|tojson }}"), kSteps},
      {"shared lists compare",
       grow("[1]", "[n.x, n.x]", 60, "{% set a = n.x %}" + grow("[1]", "[n.x, n.x]", 60, "{{ n.x == a }}")), kSteps},
      {"shared tuples as keys", grow("(1,)", "(n.x, n.x)", 60, "{{ {n.x: 1}|length }}"), kSteps},
      // Sources of the most that there may be.
      {"a megabyte", Repeated("a", 1000000), "LimitError: a template of 1000000 bytes is above the limit of 262144"},
      {"many names", Numbered(13000, [](const std::string& i) { return "{% set v" + i + "=1 %}"; }), ""},
      {"many names in many ifs",
       Repeated("{% if 1 %}", 100) + Numbered(10000, [](const std::string& i) { return "{% set v" + i + " = 1 %}"; }) +
           Repeated("{% endif %}", 100),
       kNames},
      {"many names in many loops",
       Repeated("{% for a in b %}", 100) + Numbered(20000, [](const std::string& i) { return "{{ v" + i + "}}"; }) +
           Repeated("{% endfor %}", 100),
       kNames},
      {"many keywords", "{{ f(" + Numbered(30000, [](const std::string& i) { return "a" + i + "=1,"; }) + ") }}",
       "UndefinedError: 'f' is undefined"},
      {"many macros", Numbered(6500, [](const std::string& i) { return "{% macro m" + i + "() %}{% endmacro %}"; }),
       ""},
      {"many outputs", Repeated("{{a}}", 50000), "LimitError: the template's names"},
      {"long list", "{{ [" + Repeated("1,", 130000) + "]|length }}", ""},
      {"no ends", Repeated("{{ ", 80000), kBlocks},
  };
}

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_CHAT_HOSTILE_TEMPLATES_H_
