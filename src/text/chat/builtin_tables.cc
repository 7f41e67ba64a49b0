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

// Attributes that the sandbox hides, of every Python 3.11 object and, below, of some kinds of them.
constexpr std::string_view kObjectAttributes =
    "__class__ __delattr__ __dir__ __doc__ __eq__ __format__ __ge__ __getattribute__ __getstate__ __gt__ __hash__ "
    "__init__ __init_subclass__ __le__ __lt__ __ne__ __new__ __reduce__ __reduce_ex__ __repr__ __setattr__ __sizeof__ "
    "__str__ __subclasshook__";

constexpr std::string_view kSequenceAttributes = "__add__ __contains__ __getitem__ __iter__ __len__ __mul__ __rmul__";

// Beyond those of sequences.
constexpr std::string_view kStringAttributes = "__getnewargs__ __mod__ __rmod__";

constexpr std::string_view kMarkupAttributes = "__html__ __html_format__ __module__ __radd__ __slots__";

constexpr std::string_view kListAttributes = "__class_getitem__ __delitem__ __iadd__ __imul__ __reversed__ __setitem__";

constexpr std::string_view kTupleAttributes = "__class_getitem__ __getnewargs__";

constexpr std::string_view kDictAttributes =
    "__class_getitem__ __contains__ __delitem__ __getitem__ __ior__ __iter__ __len__ __or__ __reversed__ __ror__ "
    "__setitem__";

constexpr std::string_view kNumberAttributes =
    "__abs__ __add__ __bool__ __ceil__ __divmod__ __float__ __floor__ __floordiv__ __getnewargs__ __int__ __mod__ "
    "__mul__ __neg__ __pos__ __pow__ __radd__ __rdivmod__ __rfloordiv__ __rmod__ __rmul__ __round__ __rpow__ __rsub__ "
    "__rtruediv__ __sub__ __truediv__ __trunc__";

constexpr std::string_view kIntegerAttributes =
    "__and__ __index__ __invert__ __lshift__ __or__ __rand__ __rlshift__ __ror__ __rrshift__ __rshift__ __rxor__ "
    "__xor__";

constexpr std::string_view kUndefinedAttributes =
    "__add__ __aiter__ __bool__ __call__ __complex__ __div__ __float__ __floordiv__ __getattr__ __getitem__ __int__ "
    "__iter__ __len__ __mod__ __module__ __mul__ __neg__ __pos__ __pow__ __radd__ __rdiv__ __rfloordiv__ __rmod__ "
    "__rmul__ __rpow__ __rsub__ __rtruediv__ __sub__ __truediv__ _fail_with_undefined_error _undefined_exception "
    "_undefined_hint _undefined_message _undefined_name _undefined_obj";

constexpr std::string_view kViewAttributes = "__iter__ __len__ __reversed__";

constexpr std::string_view kSetViewAttributes =
    "__and__ __contains__ __or__ __rand__ __ror__ __rsub__ __rxor__ __sub__ __xor__";

constexpr std::string_view kRangeAttributes = "__bool__ __contains__ __getitem__ __iter__ __len__ __reversed__";

constexpr std::string_view kGeneratorAttributes = "__del__ __iter__ __name__ __next__ __qualname__ gi_code gi_frame";

constexpr std::string_view kIteratorAttributes = "__iter__ __length_hint__ __next__ __setstate__";

constexpr std::string_view kFunctionAttributes =
    "__annotations__ __builtins__ __call__ __closure__ __code__ __defaults__ __dict__ __get__ __globals__ "
    "__kwdefaults__ __module__ __name__ __qualname__";

constexpr std::string_view kMethodAttributes = "__call__ __module__ __name__ __qualname__ __self__ __text_signature__";

// Of classes that Jinja2 itself defines.
constexpr std::string_view kInstanceAttributes = "__dict__ __module__ __weakref__";

constexpr std::string_view kListMutators[] = {"append", "extend", "insert", "remove", "reverse", "sort"};
constexpr std::string_view kDictMutators[] = {"clear", "pop", "popitem", "setdefault", "update"};

template <size_t N>
bool Has(const std::string_view (&names)[N], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

// Whether `name` is a word of `words`.
bool HasWord(std::string_view words, std::string_view name) {
  if (name.empty() || name.find(' ') != std::string_view::npos) return false;
  for (size_t at = words.find(name); at != std::string_view::npos; at = words.find(name, at + 1)) {
    const size_t end = at + name.size();
    if ((at == 0 || words[at - 1] == ' ') && (end == words.size() || words[end] == ' ')) return true;
  }
  return false;
}

bool HasHiddenAttribute(const Value& value, std::string_view name) {
  const auto has = [name](std::string_view words) { return HasWord(words, name); };
  switch (value.kind()) {
    case Kind::kString:
      return has(kSequenceAttributes) || has(kStringAttributes) ||
             (value.as<StringObject>().markup && has(kMarkupAttributes));
    case Kind::kList: return has(kSequenceAttributes) || has(kListAttributes);
    case Kind::kTuple: return has(kSequenceAttributes) || has(kTupleAttributes);
    case Kind::kDict: return has(kDictAttributes);
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kBig: return has(kNumberAttributes) || has(kIntegerAttributes);
    case Kind::kFloat: return has(kNumberAttributes) || name == "__getformat__";
    case Kind::kNone: return name == "__bool__";
    case Kind::kUndefined: return has(kUndefinedAttributes);
    case Kind::kDictView:
      return has(kViewAttributes) || (value.as<DictViewObject>().part != DictPart::kValues && has(kSetViewAttributes));
    case Kind::kRange: return has(kRangeAttributes);
    case Kind::kIterator:
      return has(value.as<IteratorObject>().type_name == "generator" ? kGeneratorAttributes : kIteratorAttributes);
    case Kind::kFunction:
      return has(value.as<FunctionObject>().self.missing() ? kFunctionAttributes : kMethodAttributes);
    case Kind::kMacro:
    case Kind::kJoiner:
    case Kind::kBlock: return has(kInstanceAttributes) || name == "__call__";
    case Kind::kCycler: return has(kInstanceAttributes) || name == "__next__";
    case Kind::kSelf: return has(kInstanceAttributes) || name == "__getitem__";
    case Kind::kLoop: return has(kInstanceAttributes) || has("__annotations__ __call__ __iter__ __len__ __next__");
    case Kind::kNamespace:
    case Kind::kSlice:
    case Kind::kEnv:
    case Kind::kFailed:
    case Kind::kMissing: break;
  }
  return false;
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
  return HasWord(kObjectAttributes, name) || HasHiddenAttribute(value, name);
}

bool TextArgument(Runtime& runtime, const Call& call, size_t i, std::string_view* text) {
  if (!call.args[i].is_string()) {
    runtime.TypeError(fmt::format("argument {} must be str, not {}", i + 1, TypeName(call.args[i])));
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
