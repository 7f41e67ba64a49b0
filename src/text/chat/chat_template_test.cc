#include "text/chat/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "text/chat/chat_format_lines.h"
#include "text/chat/hostile_templates.h"
#include "text/chat/runtime.h"

namespace nunspark::text {
namespace {

constexpr CivilTime kNow{2026, 7, 4, 15, 9, 26};

// What the template gives: its output, or "Type: message".
std::string RenderText(std::string_view source, std::string_view context = "{}", const RenderLimits& limits = {}) {
  TemplateError error;
  auto chat_template = ChatTemplate::Parse(source, &error);
  std::string output;
  if (chat_template != nullptr && chat_template->RenderJsonText(context, kNow, &output, &error, limits)) return output;
  return error.type + ": " + error.message;
}

std::string ErrorType(std::string_view source, std::string_view context = "{}", const RenderLimits& limits = {}) {
  TemplateError error;
  auto chat_template = ChatTemplate::Parse(source, &error);
  std::string output;
  if (chat_template != nullptr && chat_template->RenderJsonText(context, kNow, &output, &error, limits)) return "";
  return error.type;
}

TEST(ChatTemplate, DefaultsFillInWhatAJsonTextLacks) {
  TemplateError error;
  std::string output;
  const auto chat_template = ChatTemplate::Parse("{{ a }} {{ b }} {{ n }}", &error);
  const Json defaults(Json::Object{{"a", Json("1")}, {"b", Json("2")}, {"c", Json(3)}});
  ASSERT_TRUE(chat_template->RenderJsonText(R"({"b": "own", "n": 123456789012345678901234567890})", kNow, &output,
                                            &error, {}, defaults));
  EXPECT_EQ(output, "1 own 123456789012345678901234567890");
  EXPECT_FALSE(chat_template->RenderJsonText("[]", kNow, &output, &error, {}, defaults));
  EXPECT_EQ(error.type, "TypeError");
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::string> ReadLines(const std::string& path) {
  std::vector<std::string> lines;
  std::ifstream file(path, std::ios::binary);
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

std::string OwnData(const std::string& name) { return std::string(NUNSPARK_SOURCE_DIR) + "/tests/data/chat/" + name; }

// The set of recorded reference renderings, where it is present.
std::string SharedFolder() { return std::string(NUNSPARK_SOURCE_DIR) + "/../shared/tokenizers/_chat_templates/"; }

// One line of chat-format; reads and writes JSON exactly, big integers included.
struct Case {
  std::string name;
  std::string template_json, context_json;  // JSON texts
  std::string output;
  std::string error_type, error_message;  // empty type: success expected; empty message: any
};

class Reader {
 public:
  jinja::Value Parse(std::string_view text) { return jinja::ParseJsonValue(runtime_, text); }
  std::string Json(const jinja::Value& value) {
    std::string text;
    jinja::AppendJson(runtime_, value, {}, text);
    return text;
  }
  static std::string TextOf(const jinja::Value& object, std::string_view key) {
    const jinja::Value* value = object.as<jinja::DictObject>().FindText(key);
    return value != nullptr && value->is_string() ? std::string(jinja::Text(*value)) : "";
  }
  jinja::Runtime& runtime() { return runtime_; }

 private:
  jinja::Runtime runtime_{RenderLimits{.steps = INT64_C(1) << 50}, kNow};
};

int CountFailures(const std::vector<Case>& cases) {
  auto lines = ChatFormatLines::Open("", kNow);
  int failures = 0;
  for (const Case& c : cases) {
    const std::string answer =
        (*lines)->Answer("{\"context\": " + c.context_json + ", \"template\": " + c.template_json + "}");
    Reader reader;
    const jinja::Value result = reader.Parse(answer);
    bool same = false;
    if (c.error_type.empty()) {
      same =
          result.as<jinja::DictObject>().FindText("output") != nullptr && Reader::TextOf(result, "output") == c.output;
    } else if (const jinja::Value* error = result.as<jinja::DictObject>().FindText("error")) {
      same = Reader::TextOf(*error, "type") == c.error_type &&
             (c.error_message.empty() || Reader::TextOf(*error, "message") == c.error_message);
    }
    if (!same && ++failures <= 10) {
      ADD_FAILURE() << c.name << "\n  template " << c.template_json.substr(0, 300) << "\n  got "
                    << answer.substr(0, 600) << "\n  expected " << c.error_type << " " << c.error_message << " "
                    << c.output.substr(0, 600);
    }
  }
  return failures;
}

TEST(ChatTemplate, RendersOwnSnippetsAsJinja2Does) {
  const std::string context = ReadFile(OwnData("context.json"));
  std::vector<Case> cases;
  for (const std::string& line : ReadLines(OwnData("snippets.jsonl"))) {
    Reader reader;
    const jinja::Value row = reader.Parse(line);
    const std::string source = Reader::TextOf(row, "template");
    cases.push_back({source, JsonQuote(source), context, Reader::TextOf(row, "output"), Reader::TextOf(row, "error"),
                     Reader::TextOf(row, "message")});
  }
  EXPECT_GE(cases.size(), 150u);
  EXPECT_EQ(CountFailures(cases), 0);
}

TEST(ChatTemplate, RendersTheSharedSnippetsAsRecorded) {
  if (!std::filesystem::exists(SharedFolder())) GTEST_SKIP() << "full reference set not present";
  const std::string context = ReadFile(SharedFolder() + "jinja_snippets_vars.json");
  std::vector<Case> cases;
  for (const std::string& line : ReadLines(SharedFolder() + "jinja_snippets.jsonl")) {
    Reader reader;
    const jinja::Value row = reader.Parse(line);
    cases.push_back({Reader::TextOf(row, "id"), JsonQuote(Reader::TextOf(row, "src")), context,
                     Reader::TextOf(row, "expected"), Reader::TextOf(row, "error_type"), ""});
  }
  EXPECT_GT(cases.size(), 400u);
  EXPECT_EQ(CountFailures(cases), 0);
}

TEST(ChatTemplate, RendersTheSharedTemplatesAsRecorded) {
  if (!std::filesystem::exists(SharedFolder())) GTEST_SKIP() << "full reference set not present";
  Reader reader;
  const jinja::Value contexts = reader.Parse(ReadFile(SharedFolder() + "contexts.json"));
  std::map<std::string, std::string> context_json;
  for (const jinja::Value& context : contexts.as<jinja::ListObject>().items) {
    auto* dict = new jinja::DictObject();
    jinja::Runtime& runtime = reader.runtime();
    for (const char* token : {"bos_token", "eos_token", "unk_token", "pad_token"}) {
      const std::string name(token);
      const std::string text = name == "bos_token"   ? "<s>"
                               : name == "eos_token" ? "</s>"
                               : name == "unk_token" ? "<unk>"
                                                     : "<pad>";
      runtime.SetText(*dict, name, runtime.String(text));
    }
    runtime.SetText(*dict, "tools", jinja::Value::None());
    runtime.SetText(*dict, "documents", jinja::Value::None());
    for (const auto& entry : context.as<jinja::DictObject>().entries) {
      if (jinja::Text(entry.key) != "id") runtime.SetKey(*dict, entry.key, entry.value);
    }
    context_json[Reader::TextOf(context, "id")] = reader.Json(runtime.Seal(dict));
  }
  std::vector<Case> cases;
  for (const std::string& line : ReadLines(SharedFolder() + "templates.jsonl")) {
    Reader row_reader;
    const jinja::Value row = row_reader.Parse(line);
    const std::string source = JsonQuote(Reader::TextOf(row, "template"));
    for (const jinja::Value& c : row.as<jinja::DictObject>().FindText("cases")->as<jinja::ListObject>().items) {
      const std::string error = Reader::TextOf(c, "error");
      const size_t colon = error.find(": ");
      const std::string type = error.substr(0, colon);
      cases.push_back({Reader::TextOf(row, "name") + " " + Reader::TextOf(c, "ctx"), source,
                       context_json[Reader::TextOf(c, "ctx")], Reader::TextOf(c, "output"), type,
                       type == "TemplateError" ? error.substr(colon + 2) : ""});
    }
  }
  EXPECT_GT(cases.size(), 2000u);
  EXPECT_EQ(CountFailures(cases), 0);
}

TEST(ChatTemplate, RendersFromAJsonTreeToo) {
  TemplateError error;
  auto chat_template =
      ChatTemplate::Parse("{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}{{ n }}{{ x }}", &error);
  ASSERT_NE(chat_template, nullptr);
  Json context;
  context.Set("messages", Json::Array{Json::Object{{"role", "user"}, {"content", "hi"}}});
  context.Set("n", 3);
  context.Set("x", 0.5);
  std::string output;
  ASSERT_TRUE(chat_template->Render(context, kNow, &output, &error)) << error.message;
  EXPECT_EQ(output, "[user]hi30.5");
  EXPECT_FALSE(chat_template->Render(Json(5), kNow, &output, &error));
  EXPECT_EQ(error.type, "TypeError");
}

TEST(ChatTemplate, IsParsedOnceAndRenderedByManyThreads) {
  TemplateError error;
  auto chat_template = ChatTemplate::Parse(
      "{% macro m(a) %}<{{ a }}{{ 'const' }}>{% endmacro %}{% for i in range(50) %}{{ m(i ~ s) }}{% endfor %}", &error);
  ASSERT_NE(chat_template, nullptr);
  std::vector<std::string> outputs(4);
  std::vector<std::thread> threads;
  for (std::string& output : outputs) {
    threads.emplace_back([&] {
      TemplateError mine;
      for (int i = 0; i < 20; ++i) chat_template->RenderJsonText(R"({"s": "x"})", kNow, &output, &mine);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& output : outputs) EXPECT_EQ(output, outputs[0]);
  EXPECT_EQ(outputs[0].substr(0, 20), "<0xconst><1xconst><2");
}

TEST(ChatTemplate, KeepsBigIntegersExact) {
  EXPECT_EQ(RenderText("{{ b }} {{ b + 1 }} {{ b * b }} {{ b|tojson }}", R"({"b": 12345678901234567890})"),
            "12345678901234567890 12345678901234567891 152415787532388367501905199875019052100 12345678901234567890");
  EXPECT_EQ(RenderText("{{ -9223372036854775808 }} {{ 9223372036854775807 + 1 }}"),
            "-9223372036854775808 9223372036854775808");
  EXPECT_EQ(ErrorType("{{ 10 ** 5000 }}"), "LimitError");
}

TEST(ChatTemplate, NamesTheLineOfASyntaxError) {
  EXPECT_EQ(RenderText("a\nb\n{{ 1 + }}"), "TemplateSyntaxError: unexpected 'end of print statement' (line 3)");
  EXPECT_EQ(
      RenderText("{% if x %}"),
      "TemplateSyntaxError: Unexpected end of template. Jinja was looking for the following tags: 'elif' or 'else' or "
      "'endif'. The innermost block that needs to be closed is 'if'. (line 1)");
}

TEST(ChatTemplate, EveryCutOfATemplateParsesOrFailsCleanly) {
  const std::string source =
      "{% macro m(a, b=[1, 'x\\n']) -%}{{ a|default('q', true)|join(', ') }}{%- endmacro %}{% for k, v in d.items() if "
      "v is not none "
      "recursive %}{{ loop.index ~ k[1:-1] }}{% else %}{# c #}{% endfor %}{% raw %}{{ {% endraw %}{% set ns.x = {1: "
      "(2, 3.5e2)} %}";
  for (size_t i = 0; i <= source.size(); ++i) {
    TemplateError error;
    auto chat_template = ChatTemplate::Parse(source.substr(0, i), &error);
    EXPECT_EQ(chat_template == nullptr, !error.type.empty()) << i;
  }
}

TEST(ChatTemplate, EscapesByThePlaceInTheSource) {
  EXPECT_EQ(
      RenderText("{% macro m(p) %}{{ p }}{% endmacro %}{% autoescape true %}{{ m('<') }}{{ '<' }}{% endautoescape %}"),
      "<&lt;");
  // A condition that is known when rendering only reaches what is computed then.
  EXPECT_EQ(RenderText("{% autoescape x %}{{ '<' }}{{ y }}{% endautoescape %}", R"({"x": true, "y": "<"})"), "<&lt;");
  EXPECT_EQ(RenderText("{% autoescape true %}{% block b %}{{ y }}{% endblock %}{% endautoescape %}", R"({"y": "<"})"),
            "<");
}

TEST(ChatTemplate, ErrorsComeInJinjasOrder) {
  // The namespace is asked for before the parts of the block are joined, where the number would be refused.
  EXPECT_EQ(ErrorType("{% set ns.v %}{% filter length %}a{% endfilter %}{% endset %}"), "TemplateRuntimeError");
  EXPECT_EQ(ErrorType("{% set v %}{% filter length %}a{% endfilter %}{% endset %}"), "TypeError");
  EXPECT_EQ(RenderText("{{ self|urlencode }}"), "%3CTemplateReference%20None%3E");
}

TEST(ChatTemplate, InvalidUtf8BecomesReplacementCharacters) {
  EXPECT_EQ(RenderText("a\xFF{{ 'b\xC3' }}"),
            "a\xEF\xBF\xBD"
            "b\xEF\xBF\xBD");
}

TEST(ChatTemplate, RefusesHalfCharactersInTheOutput) {
  EXPECT_EQ(ErrorType("{{ s }}", R"({"s": "\ud83d"})"), "UnicodeEncodeError");
  EXPECT_EQ(RenderText("{{ s|length }}{{ s|tojson(ensure_ascii=true) }}", R"({"s": "\ud83d"})"), "1\"\\ud83d\"");
}

// --- Limits ---

TEST(ChatTemplateLimits, EndsWhatWouldGrowWithoutEnd) {
  for (const char* source : {
           "{{ 'a' * 10**9 }}",
           "{{ [1] * 10**9 }}",
           "{{ '%1000000000d' % 1 }}",
           "{{ '{:1000000000}'.format(1) }}",
           "{{ 'x'.center(10**9) }}",
           "{{ ('a' * 1000000).replace('a', 'b' * 1000000) }}",
           "{{ 'a'|indent(10**9) }}",
           "{{ 2 ** (10 ** 6) }}",
           "{{ [1]|batch(10**9, 'x')|list }}",
           "{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
           "{% set n = namespace(x=[1]) %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
           "{% set n = namespace(x=[1]) %}{% for i in range(99) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}",
           "{% set n = namespace(x=[1]) %}{% for i in range(99) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x|tojson "
           "}}",
           "{% set n = namespace(x=2) %}{% for i in range(99) %}{% set n.x = n.x * n.x %}{% endfor %}",
           "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
           "{% for i in range(100000) %}{{ 'x' * 1000000 }}{% endfor %}",
       }) {
    EXPECT_EQ(ErrorType(source), "LimitError") << source;
  }
  EXPECT_EQ(ErrorType("{{ range(10**9) }}"), "OverflowError");
}

TEST(ChatTemplateLimits, EndsDeepRecursion) {
  for (const char* source : {
           "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
           "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
           "{% block a %}{{ self.a() }}{% endblock %}",
           "{% set n = namespace(x=[]) %}{% for i in range(100000) %}{% set n.x = [n.x] %}{% endfor %}",
           "{% set n = namespace(x=[]) %}{% for i in range(10000) %}{% set n.x = n.x|map('string') %}{% endfor %}{{ "
           "n.x|list }}",
       }) {
    EXPECT_EQ(ErrorType(source), "LimitError") << source;
  }
  auto repeat = [](std::string_view part) {
    std::string text;
    for (int i = 0; i < 50'000; ++i) text += part;
    return text;
  };
  for (std::string_view part : {"(", "[", "{1:", "-", "not ", "1 if 1 else ", "1+", "x|", "f("}) {
    EXPECT_NE(ErrorType("{{ " + repeat(part) + "1 }}"), "") << part;
  }
  EXPECT_EQ(ErrorType("{{ x" + repeat(".a") + " }}"), "LimitError");
  EXPECT_EQ(ErrorType(repeat("{% if 1 %}")), "LimitError");
  // Where escaping is decided at run time, constants are looked for.
  EXPECT_EQ(ErrorType("{% autoescape x %}{{ " + repeat("1+") + "1 }}{% endautoescape %}"), "LimitError");
}

// How long each takes is in docs/measurements/tokenizers.md; here it counts that and how it ends.
TEST(ChatTemplateLimits, HostileTemplatesEndInAClearError) {
  for (const HostileTemplate& hostile : HostileTemplates()) {
    SCOPED_TRACE(hostile.name);
    TemplateError error;
    std::string output;
    constexpr std::string_view kContext = R"({"d": {"a": {"b": 1}}, "b": [1]})";
    const auto chat_template = ChatTemplate::Parse(hostile.source, &error);
    const bool renders = chat_template != nullptr && chat_template->RenderJsonText(kContext, kNow, &output, &error);
    EXPECT_EQ(renders, hostile.error.empty());
    const std::string said = renders ? "" : error.type + ": " + error.message;
    EXPECT_THAT(said, ::testing::StartsWith(std::string(hostile.error)));
  }
}

TEST(ChatTemplate, HalvesOfCharactersInTheSourceAreKeptAndRefusedAtTheEnd) {
  EXPECT_EQ(ErrorType("x\xED\xA0\x80y"), "UnicodeEncodeError");
  EXPECT_EQ(RenderText("{{ 'x\xED\xA0\x80y'|length }}"), "3");
  EXPECT_EQ(RenderText("x\xFFy"), "x\uFFFDy");
}

// Generators run code of the template wherever their items are wanted, also while a list that holds their loop is
// printed. Python's answers, but for the names of types.
TEST(ChatTemplateLimits, GeneratorsMayChangeWhatIsBeingRead) {
  EXPECT_EQ(RenderText("{% set n = namespace(x=[]) %}{% for a in [1, 2, 3] if (n.x and n.x.pop()) or true %}"
                       "{% set n.x = [loop] %}{% break %}{% endfor %}{{ n.x }}",
                       "{}"),
            "[<LoopContext 1/3>]");
  EXPECT_EQ(RenderText("{% set n = namespace(x=[]) %}{% for a in [1, 2, 3] if (n.x and n.x.pop()) or true %}"
                       "{% set n.x = [loop, 'b', 'c'] %}{% break %}{% endfor %}{{ n.x|pprint }}",
                       "{}"),
            "[<LoopContext 1/3>]");
  const std::string grows = "{% macro m() %}{% set n.a = 1 %}{% set n.b = 1 %}{% set n.c = 1 %}{% endmacro %}";
  EXPECT_EQ(RenderText("{% set n = namespace() %}" + grows +
                           "{% for a in [1, 2] if n.l is not defined or m() or true %}{% set n.l = loop %}{% break %}"
                           "{% endfor %}{{ n }}",
                       "{}"),
            "RuntimeError: dictionary changed size during iteration");
  EXPECT_EQ(RenderText("{% set n = namespace() %}{% for a in [1, 2, 3] if n.l is not defined or n.l.length %}"
                       "{% set n.l = loop %}{{ loop.length }}{% endfor %}",
                       "{}"),
            "ValueError: generator already executing");
}

TEST(ChatTemplateLimits, GrowWithTheContext) {
  const std::string text(1'000'000, 'a');
  const std::string context = R"({"messages": [{"content": ")" + text + R"("}]})";
  const std::string source = "{% for m in messages %}" +
                             Repeated("{{ m.content|trim|replace('b', 'c') }}{{ m.content|length }}", 30) +
                             "{% endfor %}";
  EXPECT_THAT(RenderText(source, context), ::testing::StartsWith("LimitError: "));
  const RenderLimits limits = RenderLimits::ForContext(context.size());
  EXPECT_EQ(RenderText(source, context, {.steps = limits.steps, .output_bytes = 64 << 20}).size(), 30'000'210u);
}

TEST(ChatTemplateLimits, LetsOrdinaryRecursionThrough) {
  EXPECT_EQ(
      RenderText("{% macro f(n) %}{% if n > 0 %}{{ n }},{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60)|length }}"),
      "171");
}

TEST(ChatTemplateLimits, SelfReferencesPrintAndEnd) {
  EXPECT_EQ(RenderText("{% set n = namespace() %}{% set n.me = n %}{{ n }}"), "<Namespace {'me': <Namespace {...}>}>");
  EXPECT_EQ(RenderText("{% set n = namespace() %}{% set n.l = [n] %}{{ n.l == n.l }}"), "True");
}

TEST(ChatTemplateLimits, AreThoseOfTheCaller) {
  EXPECT_EQ(ErrorType("{{ 'a' * 100 }}", "{}", {.output_bytes = 50}), "LimitError");
  EXPECT_EQ(ErrorType("{{ range(100)|list }}", "{}", {.sequence_items = 50}), "LimitError");
  EXPECT_EQ(ErrorType("{% for i in range(100) %}{% endfor %}", "{}", {.steps = 50}), "LimitError");
  EXPECT_EQ(ErrorType("{% macro f(n) %}{{ f(n - 1) if n }}{% endmacro %}{{ f(20) }}", "{}", {.depth = 10}),
            "LimitError");
}

// --- The sandbox ---

TEST(ChatTemplateSandbox, HidesInternalsAndRefusesChanges) {
  for (const char* source :
       {"{{ ''.__class__.__mro__ }}", "{{ l.append(1) }}", "{{ l.sort() }}", "{{ d.update({}) }}", "{{ d.pop('a') }}",
        "{{ d.setdefault('b', 1) }}", "{{ '{0.__class__.x}'.format(l) }}", "{{ l['append'](1) }}",
        "{{ d.keys().__len__.x }}", "{{ (3).__add__.x }}", "{{ range(3).__iter__.x }}", "{{ l.append.__self__.x }}",
        "{{ (l|map('string')).gi_frame.x }}", "{{ nope.__add__.x }}"}) {
    EXPECT_EQ(ErrorType(source, R"({"l": [1], "d": {"a": 1}})"), "SecurityError") << source;
  }
  EXPECT_EQ(RenderText("{{ ''.__class__ }}|{{ '{0.__class__}'.format(l) }}", R"({"l": [1]})"), "|");
}

}  // namespace
}  // namespace nunspark::text
