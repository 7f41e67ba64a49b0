// Filters over sequences that look at all of them at once.
#include <fmt/format.h>

#include <algorithm>

#include "text/chat/builtin_tables.h"
#include "text/chat/unicode.h"

namespace nunspark::text::jinja {
namespace {

Value LengthFilter(Runtime& runtime, Call& call) {
  const int64_t length = runtime.Length(call.self);
  return length < 0 ? Value::Failed() : Value::Int(length);
}

Value ListFilter(Runtime& runtime, Call& call) {
  Values items;
  return runtime.Collect(call.self, &items) ? runtime.List(std::move(items)) : Value::Failed();
}

Value Default(Runtime& runtime, Call& call) {
  const bool boolean = FlagArgument(runtime, call, 1);
  if (!call.self.is_undefined() && (!boolean || runtime.Truthy(call.self))) return call.self;
  return call.has(0) ? call.args[0] : runtime.String("");
}

Value First(Runtime& runtime, Call& call) {
  Cursor cursor;
  Value item;
  if (!cursor.Start(runtime, call.self)) return Value::Failed();
  if (cursor.Next(runtime, &item)) return item;
  return runtime.failed() ? Value::Failed() : runtime.UndefinedHint("No first item, sequence was empty.");
}

bool IsReversible(const Value& value) {
  switch (value.kind()) {
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kDictView:
    case Kind::kRange:
    case Kind::kUndefined: return true;
    default: return false;
  }
}

Value Last(Runtime& runtime, Call& call) {
  if (!IsReversible(call.self))
    return runtime.TypeError(fmt::format("'{}' object is not reversible", TypeName(call.self)));
  const int64_t length = runtime.Length(call.self);
  if (length == 0) return runtime.UndefinedHint("No last item, sequence was empty.");
  if (call.self.is_dict() || call.self.kind() == Kind::kDictView) {
    Values items;
    if (!runtime.Collect(call.self, &items)) return Value::Failed();
    return items.back();
  }
  return runtime.GetItem(call.self, Value::Int(length - 1));
}

Value Reverse(Runtime& runtime, Call& call) {
  if (call.self.is_string()) return runtime.Slice(call.self, Value::None(), Value::None(), Value::Int(-1));
  if (!runtime.IsIterable(call.self)) return runtime.Fail("FilterArgumentError", "argument must be iterable");
  Values items;
  if (!runtime.Collect(call.self, &items)) return Value::Failed();
  std::reverse(items.begin(), items.end());
  JINJA_TRY(Value list, runtime.List(std::move(items)));
  // reversed() of a sequence is an iterator, of anything else Jinja2 makes a list.
  if (!IsReversible(call.self)) return list;
  const std::string name = call.self.is_list() ? "list_reverseiterator" : "reversed";
  return MakeGenerator(runtime, name, {list}, [](Runtime& rt, Values& kept, Cursor& cursor, Value* item) {
    if (kept.size() == 1) {
      kept.push_back(Value::None());
      if (!cursor.Start(rt, kept[0])) return false;
    }
    return cursor.Next(rt, item);
  });
}

Value Random(Runtime& runtime, Call& call) {
  const int64_t length = runtime.Length(call.self);
  if (length < 0) return Value::Failed();
  if (length == 0) return runtime.UndefinedHint("No random item, sequence was empty.");
  runtime.random_state = runtime.random_state * 6364136223846793005u + 1442695040888963407u;
  const auto index = static_cast<int64_t>((runtime.random_state >> 33) % static_cast<uint64_t>(length));
  return runtime.GetItem(call.self, Value::Int(index));
}

Value Join(Runtime& runtime, Call& call) {
  AttributePath path(runtime);
  const bool has_attribute = call.has(1) && !call.args[1].is_none();
  if (has_attribute && !path.Parse(call.args[1])) return Value::Failed();
  Values items;
  if (!runtime.Collect(call.self, &items)) return Value::Failed();
  Value separator = call.has(0) ? call.args[0] : runtime.String("");
  bool markup = runtime.autoescape && IsMarkup(separator);
  for (Value& item : items) {
    if (has_attribute) {
      JINJA_TRY(item, path.Get(item));
    }
    markup = markup || (runtime.autoescape && IsMarkup(item));
  }
  if (markup) {
    JINJA_TRY(separator, Escape(runtime, separator));
  }
  std::string out, between;
  if (!runtime.AppendStr(separator, between)) return Value::Failed();
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += between;
    if (markup) {
      JINJA_TRY(items[i], Escape(runtime, items[i]));
    }
    if (!runtime.AppendStr(items[i], out)) return Value::Failed();
  }
  if (!runtime.CheckBytes(static_cast<int64_t>(out.size()))) return Value::Failed();
  return runtime.String(std::move(out), markup);
}

Value DictSort(Runtime& runtime, Call& call) {
  const bool case_sensitive = FlagArgument(runtime, call, 0);
  const std::string by = !call.has(1) ? "key" : call.args[1].is_string() ? std::string(Text(call.args[1])) : "";
  if (by != "key" && by != "value") {
    return runtime.Fail("FilterArgumentError", "You can only sort by either \"key\" or \"value\"");
  }
  if (call.self.is_undefined()) return runtime.FailUndefined(call.self);
  if (!call.self.is_dict()) {
    return runtime.Fail("AttributeError", fmt::format("'{}' object has no attribute 'items'", TypeName(call.self)));
  }
  std::vector<std::pair<Value, Value>> pairs;
  for (const DictObject::Entry& entry : call.self.as<DictObject>().entries) {
    const Value& key = by == "key" ? entry.key : entry.value;
    JINJA_TRY(Value sort_key, case_sensitive ? key : IgnoreCase(runtime, key));
    JINJA_TRY(Value item, runtime.Tuple({entry.key, entry.value}));
    pairs.emplace_back(std::move(sort_key), std::move(item));
  }
  if (!runtime.Sort(pairs, FlagArgument(runtime, call, 2))) return Value::Failed();
  Values items;
  for (auto& [key, item] : pairs) items.push_back(std::move(item));
  return runtime.List(std::move(items));
}

// The paths of a comma-separated attribute argument.
bool ParsePaths(Runtime& runtime, const Value& attribute, std::vector<AttributePath>* paths) {
  if (!attribute.is_string()) {
    paths->emplace_back(runtime);
    return paths->back().Parse(attribute);
  }
  std::string_view rest = Text(attribute);
  while (true) {
    const size_t comma = rest.find(',');
    const Value part = runtime.String(std::string(rest.substr(0, comma)));
    paths->emplace_back(runtime);
    if (part.failed() || !paths->back().Parse(part)) return false;
    if (comma == std::string_view::npos) return true;
    rest = rest.substr(comma + 1);
  }
}

Value SortFilter(Runtime& runtime, Call& call) {
  const bool reverse = FlagArgument(runtime, call, 0), case_sensitive = FlagArgument(runtime, call, 1);
  std::vector<AttributePath> paths;
  if (!ParsePaths(runtime, call.has(2) ? call.args[2] : Value::None(), &paths)) return Value::Failed();
  Values items;
  if (!runtime.Collect(call.self, &items)) return Value::Failed();
  std::vector<std::pair<Value, Value>> pairs;
  for (Value& item : items) {
    Values keys;
    for (const AttributePath& path : paths) {
      JINJA_TRY(Value key, path.Get(item));
      if (!case_sensitive) {
        JINJA_TRY(key, IgnoreCase(runtime, key));
      }
      keys.push_back(std::move(key));
    }
    JINJA_TRY(Value key, runtime.List(std::move(keys)));
    pairs.emplace_back(std::move(key), std::move(item));
  }
  if (!runtime.Sort(pairs, reverse)) return Value::Failed();
  Values sorted;
  for (auto& [key, item] : pairs) sorted.push_back(std::move(item));
  return runtime.List(std::move(sorted));
}

template <CompareOp kBetter>
Value Extreme(Runtime& runtime, Call& call) {
  const bool case_sensitive = FlagArgument(runtime, call, 0);
  AttributePath path(runtime);
  Cursor cursor;
  if (!cursor.Start(runtime, call.self)) return Value::Failed();
  if (call.has(1) && !path.Parse(call.args[1])) return Value::Failed();
  Value best = Value::Missing(), best_key, item;
  while (cursor.Next(runtime, &item)) {
    JINJA_TRY(Value key, path.Get(item));
    if (!case_sensitive) {
      JINJA_TRY(key, IgnoreCase(runtime, key));
    }
    const bool better = best.missing() || runtime.Ordered(kBetter, key, best_key);
    if (runtime.failed()) return Value::Failed();
    if (!better) continue;
    best = item;
    best_key = std::move(key);
  }
  if (runtime.failed()) return Value::Failed();
  return best.missing() ? runtime.UndefinedHint("No aggregated item, sequence was empty.") : best;
}

Value Sum(Runtime& runtime, Call& call) {
  AttributePath path(runtime);
  if (call.has(0) && !path.Parse(call.args[0])) return Value::Failed();
  Value total = call.has(1) ? call.args[1] : Value::Int(0);
  if (total.is_string()) return runtime.TypeError("sum() can't sum strings [use ''.join(seq) instead]");
  Cursor cursor;
  Value item;
  if (!cursor.Start(runtime, call.self)) return Value::Failed();
  while (cursor.Next(runtime, &item)) {
    JINJA_TRY(const Value part, path.Get(item));
    JINJA_TRY(total, runtime.Binary(BinaryOp::kAdd, total, part));
  }
  return runtime.failed() ? Value::Failed() : total;
}

Value GroupBy(Runtime& runtime, Call& call) {
  const Value fallback = call.has(1) ? call.args[1] : Value::Missing();
  const bool case_sensitive = FlagArgument(runtime, call, 2);
  AttributePath path(runtime);
  if (!path.Parse(call.args[0])) return Value::Failed();
  Values items;
  if (!runtime.Collect(call.self, &items)) return Value::Failed();
  std::vector<std::pair<Value, Value>> pairs;
  for (Value& item : items) {
    JINJA_TRY(Value key, path.Get(item, fallback));
    if (!case_sensitive) {
      JINJA_TRY(key, IgnoreCase(runtime, key));
    }
    pairs.emplace_back(std::move(key), std::move(item));
  }
  if (!runtime.Sort(pairs, false)) return Value::Failed();
  Values groups;
  for (size_t begin = 0; begin < pairs.size();) {
    Values members;
    size_t end = begin;
    while (end < pairs.size() && runtime.Equal(pairs[begin].first, pairs[end].first))
      members.push_back(pairs[end++].second);
    if (runtime.failed()) return Value::Failed();
    if (end == begin) members.push_back(pairs[end++].second);  // NaN is not equal to itself
    // The key as the group's first member has it, not in lower case.
    JINJA_TRY(Value key, case_sensitive ? pairs[begin].first : path.Get(members[0], fallback));
    JINJA_TRY(Value list, runtime.List(std::move(members)));
    JINJA_TRY(Value group, runtime.Tuple({std::move(key), std::move(list)}));
    group.as<ListObject>().group = true;
    groups.push_back(std::move(group));
    begin = end;
  }
  return runtime.List(std::move(groups));
}

Value Attr(Runtime& runtime, Call& call) {
  std::string_view name;
  if (!TextArgument(runtime, call, 0, &name)) return Value::Failed();
  if (call.self.is_undefined() && !HasForeignAttribute(call.self, name)) return runtime.FailUndefined(call.self);
  // Attributes only, never items.
  const Value attribute = runtime.PlainAttribute(call.self, name);
  if (attribute.failed()) return attribute;
  if (attribute.missing() && !HasForeignAttribute(call.self, name))
    return runtime.UndefinedMember(call.self, call.args[0]);
  return runtime.GetAttribute(call.self, name);
}

constexpr Builtin kFilters[] = {
    {"attr", "name", Attr},
    {"count", "/", LengthFilter},
    {"d", "default_value? boolean?", Default},
    {"default", "default_value? boolean?", Default},
    {"dictsort", "case_sensitive? by? reverse?", DictSort},
    {"first", "", First},
    {"groupby", "attribute default? case_sensitive?", GroupBy},
    {"join", "d? attribute?", Join},
    {"last", "", Last},
    {"length", "/", LengthFilter},
    {"list", "", ListFilter},
    {"max", "case_sensitive? attribute?", Extreme<CompareOp::kGt>},
    {"min", "case_sensitive? attribute?", Extreme<CompareOp::kLt>},
    {"random", "", Random},
    {"reverse", "", Reverse},
    {"sort", "reverse? case_sensitive? attribute?", SortFilter},
    {"sum", "attribute? start?", Sum},
};

}  // namespace

std::span<const Builtin> SequenceFilters() { return kFilters; }

}  // namespace nunspark::text::jinja
