// Contexts as JSON text, through a template that walks, prints, sorts and serialises whatever is in them.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "text/chat/chat_format_lines.h"

namespace {

constexpr std::string_view kSource =
    "{% macro show(v, depth=0) %}{% if depth > 6 %}..{% elif v is mapping %}{% for k, x in v.items() %}{{ "
    "k|string|upper }}={{ show(x, depth + 1) }};{% endfor %}"
    "{% elif v is string %}{{ v|trim|e }}{{ v[::-1] }}{{ v.split()|join('_') }}{{ v.title() }}{{ v|length }}{{ "
    "v|indent }}{{ v|wordwrap(5) }}"
    "{% elif v is sequence %}{% for x in v %}{{ loop.index }}{{ show(x, depth + 1) }}{{ ',' if not loop.last }}{% "
    "endfor %}"
    "{% else %}{{ v }}{{ v|int if v is number }}{{ v is odd if v is integer }}{{ '%r' % (v,) }}{% endif %}{% endmacro "
    "%}"
    "{{ v|tojson }}{{ v|tojson(indent=2, ensure_ascii=true) }}{{ v|pprint }}{{ v }}{{ show(v) }}{{ [v, v] == [v, v] "
    "}}{{ v in [v] }}{{ messages|map(attribute='role')|list }}";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nunspark;
  static const auto lines = text::ChatFormatLines::Open("", {2026, 7, 4, 15, 9, 26});
  CHECK(lines.ok());
  const std::string input(reinterpret_cast<const char*>(data), size);
  const std::string request = "{\"context\": {\"v\": " + input + "}, \"template\": " + JsonQuote(kSource) + "}";
  const std::string answer = (*lines)->Answer(request);
  // Whatever came in, one line of JSON goes out.
  CHECK(answer.find('\n') == std::string::npos);
  const Result<Json> parsed = ParseJson(answer, "answer");
  CHECK(parsed.ok() && (parsed->Find("output") != nullptr || parsed->Find("error") != nullptr));
  return 0;
}
