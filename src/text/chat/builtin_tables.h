// The tables of filters, tests, functions and methods, one per file, and what those files share.
#ifndef NUNSPARK_TEXT_CHAT_BUILTIN_TABLES_H_
#define NUNSPARK_TEXT_CHAT_BUILTIN_TABLES_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat/runtime.h"

namespace nunspark::text::jinja {

std::span<const Builtin> TextFilters();
std::span<const Builtin> HtmlFilters();
std::span<const Builtin> NumberFilters();
std::span<const Builtin> SequenceFilters();
std::span<const Builtin> SelectionFilters();
std::span<const Builtin> Tests();
std::span<const Builtin> Globals();
std::span<const Builtin> StringMethods();
std::span<const Builtin> StringSearchMethods();
std::span<const Builtin> ListMethods();
std::span<const Builtin> TupleMethods();
std::span<const Builtin> DictMethods();
std::span<const Builtin> DictViewMethods();
std::span<const Builtin> RangeMethods();
std::span<const Builtin> IntegerMethods();
std::span<const Builtin> FloatMethods();
std::span<const Builtin> LoopMethods();
std::span<const Builtin> CyclerMethods();

// Argument `i` as text. False (and failed) when it is no string.
bool TextArgument(Runtime& runtime, const Call& call, size_t i, std::string_view* text);
// Argument `i` as an integer, or `otherwise` when it is absent. False when failed.
bool IntegerArgument(Runtime& runtime, const Call& call, size_t i, int64_t otherwise, int64_t* value);
// The truth of argument `i`; false when it is absent.
bool FlagArgument(Runtime& runtime, const Call& call, size_t i);
inline bool IsMarkup(const Value& value) { return value.is_string() && value.as<StringObject>().markup; }

// Looks attributes up by a path such as "function.name" or "0.role" (Jinja2's attribute arguments).
class AttributePath {
 public:
  explicit AttributePath(Runtime& runtime) : runtime_(runtime) {}
  // `attribute`: a string, an integer, or none (the item itself).
  bool Parse(const Value& attribute);
  // `fallback` replaces what is undefined on the way; kMissing or none: nothing does.
  Value Get(const Value& item, const Value& fallback = Value::Missing()) const;

 private:
  Runtime& runtime_;
  Values parts_;
};

// A string in lower case, anything else as it is: Jinja2's case-insensitive keys.
Value IgnoreCase(Runtime& runtime, const Value& value);

// str.split() without separator: runs of white space separate.
std::vector<std::string_view> SplitWhitespace(std::string_view text);
std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends);
std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to, int64_t count,
                       int64_t* replaced);

// textwrap.wrap of one line (text_wrap.cc).
struct WrapStyle {
  int64_t width = 79;
  bool break_long_words = true;
  bool break_on_hyphens = true;
};
std::vector<std::string> WrapText(std::string_view text, const WrapStyle& style);
// pprint.pformat (pretty_print.cc). False when failed.
bool PrettyPrint(Runtime& runtime, const Value& value, std::string& out);
// Jinja2's urlize (urlize.cc) on already escaped words.
struct LinkStyle {
  int64_t trim_limit = -1;
  std::string rel, target;  // attributes with their leading space, or empty
  std::vector<std::string> schemes;
};
std::string LinkUrls(std::string_view escaped, const LinkStyle& style);
// html.unescape for the entities that MarkupSafe writes, numbers and the common names.
std::string UnescapeHtml(std::string_view text);
// time.strftime in the C locale (strftime.cc).
std::string FormatTime(const CivilTime& time, std::string_view format);

}  // namespace nunspark::text::jinja

#endif  // NUNSPARK_TEXT_CHAT_BUILTIN_TABLES_H_
