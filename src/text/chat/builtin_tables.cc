#include "text/chat/builtin_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <unordered_map>

#include "text/chat/text_search.h"
#include "text/chat/unicode.h"

namespace nunspark::text::jinja {
namespace {

using Table = std::unordered_map<std::string_view, const Builtin*>;

Table Merge(std::initializer_list<std::span<const Builtin>> parts) {
  Table table;
  for (std::span<const Builtin> part : parts) {
    for (const Builtin& builtin : part) table.emplace(builtin.name, &builtin);
  }
  return table;
}

const Builtin* Find(const Table& table, std::string_view name) {
  auto it = table.find(name);
  return it == table.end() ? nullptr : it->second;
}

// Attributes that every Python object has; the sandbox hides them.
constexpr std::string_view kObjectAttributes[] = {
    "__class__", "__delattr__",      "__dir__",    "__doc__",  "__eq__",           "__format__",
    "__ge__",    "__getattribute__", "__gt__",     "__hash__", "__init__",         "__init_subclass__",
    "__le__",    "__lt__",           "__ne__",     "__new__",  "__reduce__",       "__reduce_ex__",
    "__repr__",  "__setattr__",      "__sizeof__", "__str__",  "__subclasshook__", "__getstate__"};
constexpr std::string_view kContainerAttributes[] = {"__len__", "__getitem__", "__iter__", "__contains__",
                                                     "__reversed__"};
constexpr std::string_view kListMutators[] = {"append", "extend", "insert", "remove", "reverse", "sort"};
constexpr std::string_view kDictMutators[] = {"clear", "pop", "popitem", "setdefault", "update"};

template <size_t N>
bool Has(const std::string_view (&names)[N], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

}  // namespace

const Builtin* FindFilter(std::string_view name) {
  static const Table table =
      Merge({TextFilters(), HtmlFilters(), NumberFilters(), SequenceFilters(), SelectionFilters()});
  return Find(table, name);
}

const Builtin* FindTest(std::string_view name) {
  static const Table table = Merge({Tests()});
  return Find(table, name);
}

const Builtin* FindGlobal(std::string_view name) {
  static const Table table = Merge({Globals()});
  return Find(table, name);
}

const Builtin* FindMethod(Kind kind, std::string_view name) {
  static const Table strings = Merge({StringMethods(), StringSearchMethods()});
  static const Table dicts = Merge({DictMethods()});
  static const Table lists = Merge({ListMethods()});
  static const Table tuples = Merge({TupleMethods()});
  static const Table views = Merge({DictViewMethods()});
  static const Table ranges = Merge({RangeMethods()});
  static const Table integers = Merge({IntegerMethods()});
  static const Table floats = Merge({FloatMethods()});
  static const Table loops = Merge({LoopMethods()});
  static const Table cyclers = Merge({CyclerMethods()});
  switch (kind) {
    case Kind::kString: return Find(strings, name);
    case Kind::kDict: return Find(dicts, name);
    case Kind::kList: return Find(lists, name);
    case Kind::kTuple: return Find(tuples, name);
    case Kind::kDictView: return Find(views, name);
    case Kind::kRange: return Find(ranges, name);
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kBig: return Find(integers, name);
    case Kind::kFloat: return Find(floats, name);
    case Kind::kLoop: return Find(loops, name);
    case Kind::kCycler: return Find(cyclers, name);
    default: return nullptr;
  }
}

bool HasForeignAttribute(const Value& value, std::string_view name) {
  switch (value.kind()) {
    case Kind::kList:
      if (Has(kListMutators, name)) return true;
      break;
    case Kind::kDict:
      if (Has(kDictMutators, name)) return true;
      break;
    // A namespace answers only for its own attributes.
    case Kind::kNamespace: return name == "__class__";
    default: break;
  }
  if (!name.starts_with("__")) return false;
  if (Has(kObjectAttributes, name)) return true;
  const bool is_container =
      value.is_string() || value.is_list() || value.is_tuple() || value.is_dict() || value.is_undefined();
  return is_container && Has(kContainerAttributes, name);
}

bool TextArgument(Runtime& runtime, const Builtin* named, const Call& call, size_t i, std::string_view* text) {
  if (!call.args[i].is_string()) {
    runtime.TypeError(fmt::format("{}argument {} must be str, not {}",
                                  named != nullptr ? std::string(named->name) + "() " : "", i + 1,
                                  TypeName(call.args[i])));
    return false;
  }
  *text = Text(call.args[i]);
  return true;
}

bool IntegerArgument(Runtime& runtime, const Call& call, size_t i, int64_t otherwise, int64_t* value) {
  if (!call.has(i)) {
    *value = otherwise;
    return true;
  }
  if (call.args[i].is_undefined()) {
    runtime.TypeError("'Undefined' object cannot be interpreted as an integer");
    return false;
  }
  return runtime.ToIndex(call.args[i], value);
}

bool FlagArgument(Runtime& runtime, const Call& call, size_t i) { return call.has(i) && runtime.Truthy(call.args[i]); }

bool AttributePath::Parse(const Value& attribute) {
  if (attribute.is_none() || attribute.missing()) return true;
  if (!attribute.is_string()) {
    parts_.push_back(attribute);
    return true;
  }
  std::string_view rest = Text(attribute);
  while (true) {
    const size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    const bool is_number = !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
    BigInt number;
    if (is_number && ParseInteger(part, 10, &number)) {
      parts_.push_back(runtime_.Integer(number));
    } else {
      parts_.push_back(runtime_.String(std::string(part)));
    }
    if (parts_.back().failed()) return false;
    if (dot == std::string_view::npos) return true;
    rest = rest.substr(dot + 1);
  }
}

Value AttributePath::Get(const Value& item, const Value& fallback) const {
  Value value = item;
  for (const Value& part : parts_) {
    JINJA_TRY(value, runtime_.GetItem(value, part));
    if (value.is_undefined() && !fallback.missing() && !fallback.is_none()) value = fallback;
  }
  return value;
}

Value IgnoreCase(Runtime& runtime, const Value& value) {
  return value.is_string() ? runtime.String(Lower(Text(value))) : value;
}

std::vector<std::string_view> SplitWhitespace(std::string_view text) {
  std::vector<std::string_view> words;
  size_t begin = 0;
  bool in_word = false;
  for (size_t i = 0; i < text.size();) {
    const size_t at = i;
    const bool space = IsSpace(NextCodePoint(text, &i));
    if (space && in_word) words.push_back(text.substr(begin, at - begin));
    if (!space && !in_word) begin = at;
    in_word = !space;
  }
  if (in_word) words.push_back(text.substr(begin));
  return words;
}

std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t i = 0; i < text.size();) {
    const size_t at = i;
    const uint32_t c = NextCodePoint(text, &i);
    const bool ends = (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
    if (!ends) continue;
    if (c == '\r' && i < text.size() && text[i] == '\n') ++i;
    lines.push_back(text.substr(begin, (keep_ends ? i : at) - begin));
    begin = i;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to, int64_t count,
                       int64_t* replaced) {
  std::string out;
  if (count < 0) count = INT64_MAX;
  *replaced = 0;
  if (from.empty()) {
    // Between all characters, and at both ends.
    for (size_t i = 0; i <= text.size();) {
      if (count-- > 0) out += to;
      ++*replaced;
      if (i == text.size()) break;
      const size_t begin = i;
      NextCodePoint(text, &i);
      out += text.substr(begin, i - begin);
    }
    return out;
  }
  size_t begin = 0;
  for (; count > 0; --count) {
    const size_t at = FindFirst(text, from, begin);
    if (at == std::string_view::npos) break;
    out += text.substr(begin, at - begin);
    out += to;
    ++*replaced;
    begin = at + from.size();
  }
  return out += text.substr(begin);
}

}  // namespace nunspark::text::jinja
