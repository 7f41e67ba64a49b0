// Looking things up: attributes, items, slices, lengths, iteration.
#include <fmt/format.h>

#include <algorithm>

#include "text/chat/interpreter.h"
#include "text/chat/unicode.h"

namespace nunspark::text::jinja {
namespace {

Value NumberAttribute(const Value& number, std::string_view name) {
  const bool is_float = number.is_float();
  if (name == "real") return number.is_bool() ? Value::Int(number.small_int()) : number;
  if (name == "imag") return is_float ? Value::Float(0) : Value::Int(0);
  if (is_float) return Value::Missing();
  if (name == "numerator") return number.is_bool() ? Value::Int(number.small_int()) : number;
  if (name == "denominator") return Value::Int(1);
  return Value::Missing();
}

Value MacroAttribute(Runtime& runtime, const MacroObject& macro, std::string_view name) {
  const MacroInfo& info = macro.info();
  if (name == "name") return info.anonymous ? Value::None() : runtime.String(info.name);
  if (name == "catch_kwargs") return Value::Bool(info.kwargs_slot >= 0);
  if (name == "catch_varargs") return Value::Bool(info.varargs_slot >= 0);
  if (name == "caller") return Value::Bool(info.caller_slot >= 0);
  if (name == "explicit_caller") return Value::Bool(info.explicit_caller);
  if (name != "arguments") return Value::Missing();
  Values names;
  for (const std::string& parameter : info.parameter_names) {
    JINJA_TRY(Value text, runtime.String(parameter));
    names.push_back(std::move(text));
  }
  return runtime.Tuple(std::move(names));
}

Value BlockOfSelf(Runtime& runtime, const Value& self, std::string_view name) {
  const BlockInfo* block = runtime.interpreter->FindBlock(name);
  if (block == nullptr) return Value::Missing();
  return runtime.Adopt(new BlockObject(block, self.as<SelfObject>().context));
}

// obj[key] of Python; kMissing for what Jinja2 turns into Undefined (TypeError, KeyError, IndexError).
Value RawItem(Runtime& runtime, const Value& object, const Value& key) {
  if (object.is_dict()) {
    uint64_t hash = 0;
    if (!runtime.StepKey(key)) return Value::Failed();
    if (!HashValue(key, &hash)) return Value::Missing();
    const Value* item = object.as<DictObject>().Find(key, hash);
    return item != nullptr ? *item : Value::Missing();
  }
  if (object.kind() == Kind::kSelf) {
    return key.is_string() ? BlockOfSelf(runtime, object, Text(key)) : Value::Missing();
  }
  const bool is_sequence = object.is_list() || object.is_tuple() || object.is_string() || object.kind() == Kind::kRange;
  if (!is_sequence || (key.kind() != Kind::kInt && key.kind() != Kind::kBool)) return Value::Missing();
  const int64_t length = runtime.Length(object);
  int64_t index = key.small_int();
  if (index < 0) index += length;
  if (index < 0 || index >= length) return Value::Missing();
  if (object.kind() == Kind::kRange) return object.as<RangeObject>().At(index);
  if (!object.is_string()) return object.as<ListObject>().items[static_cast<size_t>(index)];
  const auto& text = object.as<StringObject>();
  size_t begin = static_cast<size_t>(index);
  if (!text.ascii()) {
    if (!runtime.StepBytes(text.text.size())) return Value::Failed();
    begin = ByteOffset(text.text, index);
  }
  size_t end = begin;
  NextCodePoint(text.text, &end);
  return runtime.String(text.text.substr(begin, end - begin), text.markup);
}

// A slice bound of Python: absent, or an integer cut to +-2^62.
bool SliceBound(Runtime& runtime, const Value& bound, int64_t* value, bool* present) {
  constexpr int64_t kFar = int64_t{1} << 61;
  *present = !bound.is_none();
  if (!*present) return true;
  if (bound.is_undefined()) {
    runtime.TypeError("slice indices must be integers or None or have an __index__ method");
    return false;
  }
  if (!bound.is_integer()) {
    runtime.TypeError("slice indices must be integers or None or have an __index__ method");
    return false;
  }
  *value = bound.kind() == Kind::kBig ? (bound.as<BigObject>().value.is_negative() ? -kFar : kFar)
                                      : std::clamp(bound.small_int(), -kFar, kFar);
  return true;
}

struct SliceRange {
  int64_t start, stop, step, count;
};

bool ResolveSlice(Runtime& runtime, const Value& start, const Value& stop, const Value& step, int64_t length,
                  SliceRange* range) {
  int64_t from = 0, to = 0, by = 1;
  bool has_from = false, has_to = false, has_by = false;
  if (!SliceBound(runtime, step, &by, &has_by)) return false;
  if (!has_by) by = 1;
  if (by == 0) {
    runtime.ValueError("slice step cannot be zero");
    return false;
  }
  if (!SliceBound(runtime, start, &from, &has_from) || !SliceBound(runtime, stop, &to, &has_to)) return false;
  const int64_t lowest = by > 0 ? 0 : -1, highest = by > 0 ? length : length - 1;
  auto place = [&](int64_t index) { return std::clamp(index < 0 ? index + length : index, lowest, highest); };
  from = has_from ? place(from) : by > 0 ? 0 : length - 1;
  to = has_to ? place(to) : by > 0 ? length : -1;
  const int64_t span = by > 0 ? to - from : from - to;
  *range = {from, to, by, span > 0 ? (span - 1) / (by > 0 ? by : -by) + 1 : 0};
  return true;
}

Value SliceString(Runtime& runtime, const StringObject& text, const SliceRange& range) {
  if (!runtime.StepBytes(text.text.size())) return Value::Failed();
  if (range.step == 1) {
    const size_t begin = ByteOffset(text.text, range.start);
    const size_t end = begin + ByteOffset(std::string_view(text.text).substr(begin), range.count);
    return runtime.String(text.text.substr(begin, end - begin), text.markup);
  }
  std::vector<uint32_t> offsets;
  for (size_t i = 0; i < text.text.size();) {
    offsets.push_back(static_cast<uint32_t>(i));
    NextCodePoint(text.text, &i);
  }
  std::string result;
  for (int64_t i = 0; i < range.count; ++i) {
    const size_t begin = offsets[static_cast<size_t>(range.start + i * range.step)];
    size_t end = begin;
    NextCodePoint(text.text, &end);
    result.append(text.text, begin, end - begin);
  }
  return runtime.String(std::move(result), text.markup);
}

}  // namespace

Value Runtime::PlainAttribute(const Value& object, std::string_view name) {
  if (const Builtin* method = FindMethod(object.kind(), name)) return Function(*method, object);
  switch (object.kind()) {
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kBig:
    case Kind::kFloat: return NumberAttribute(object, name);
    case Kind::kNamespace: {
      const Value* value = object.as<NamespaceObject>().attributes.as<DictObject>().FindText(name);
      return value != nullptr ? *value : Value::Missing();
    }
    case Kind::kLoop: return object.as<LoopObject>().Attribute(*this, name);
    case Kind::kMacro: return MacroAttribute(*this, object.as<MacroObject>(), name);
    case Kind::kRange: {
      const auto& range = object.as<RangeObject>();
      if (name == "start") return Value::Int(range.start);
      if (name == "stop") return Value::Int(range.stop);
      if (name == "step") return Value::Int(range.step);
      return Value::Missing();
    }
    case Kind::kTuple: {
      const auto& tuple = object.as<ListObject>();
      if (tuple.group && name == "grouper") return tuple.items[0];
      if (tuple.group && name == "list") return tuple.items[1];
      return Value::Missing();
    }
    case Kind::kCycler: {
      const auto& cycler = object.as<CyclerObject>();
      if (name == "current") return cycler.items[cycler.position];
      if (name == "items") return Tuple(cycler.items);
      if (name == "pos") return Value::Int(static_cast<int64_t>(cycler.position));
      return Value::Missing();
    }
    case Kind::kJoiner: {
      const auto& joiner = object.as<JoinerObject>();
      if (name == "sep") return joiner.separator;
      if (name == "used") return Value::Bool(joiner.used);
      return Value::Missing();
    }
    case Kind::kBlock:
      if (name == "name") return String(object.as<BlockObject>().block->stmt->text);
      if (name == "super") {
        return UndefinedHint(
            fmt::format("there is no parent block called '{}'.", object.as<BlockObject>().block->stmt->text));
      }
      return Value::Missing();
    default: return Value::Missing();
  }
}

Value Runtime::GetAttribute(const Value& object, std::string_view name) {
  if (object.is_undefined() && !HasForeignAttribute(object, name)) return FailUndefined(object);
  Value attribute = PlainAttribute(object, name);
  if (!attribute.missing()) {
    return !attribute.failed() && name[0] == '_' ? Unsafe(object, name) : attribute;
  }
  if (HasForeignAttribute(object, name)) return Unsafe(object, name);
  if (object.is_dict()) {
    if (const Value* item = object.as<DictObject>().FindText(name)) return *item;
  }
  JINJA_TRY(const Value key, String(std::string(name)));
  if (object.kind() == Kind::kSelf) {
    if (Value block = BlockOfSelf(*this, object, name); !block.missing()) return block;
  }
  return UndefinedMember(object, key);
}

Value Runtime::GetItem(const Value& object, const Value& key) {
  if (object.is_undefined()) return FailUndefined(object);
  Value item = RawItem(*this, object, key);
  if (!item.missing()) return item;
  if (key.is_string()) {
    const std::string_view name = Text(key);
    Value attribute = PlainAttribute(object, name);
    if (!attribute.missing()) {
      return !attribute.failed() && name.starts_with('_') ? Unsafe(object, name) : attribute;
    }
    if (HasForeignAttribute(object, name)) return Unsafe(object, name);
  }
  return UndefinedMember(object, key);
}

Value Runtime::Slice(const Value& object, const Value& start, const Value& stop, const Value& step) {
  if (object.is_undefined()) return FailUndefined(object);
  const bool is_sequence = object.is_list() || object.is_tuple() || object.is_string() || object.kind() == Kind::kRange;
  if (!is_sequence) {
    if (object.is_dict()) return TypeError("unhashable type: 'slice'");
    return TypeError(fmt::format("'{}' object is not subscriptable", TypeName(object)));
  }
  SliceRange range{};
  if (!ResolveSlice(*this, start, stop, step, Length(object), &range)) return Value::Failed();
  if (object.is_string()) return SliceString(*this, object.as<StringObject>(), range);
  if (object.kind() == Kind::kRange) {
    const auto& of = object.as<RangeObject>();
    // The bounds are products of small numbers, but the step may be anything within 2^61.
    int64_t by = 0;
    constexpr int64_t kFar = int64_t{1} << 61;
    if (__builtin_mul_overflow(of.step, range.step, &by)) by = (of.step < 0) == (range.step < 0) ? kFar : -kFar;
    by = std::clamp(by, -kFar, kFar);
    return Adopt(new RangeObject(of.start + range.start * of.step, of.start + range.stop * of.step, by));
  }
  Values items;
  items.reserve(static_cast<size_t>(range.count));
  const Values& source = object.as<ListObject>().items;
  for (int64_t i = 0; i < range.count; ++i) items.push_back(source[static_cast<size_t>(range.start + i * range.step)]);
  return Sequence(object.kind(), std::move(items));
}

bool Runtime::HasLength(const Value& object) const {
  switch (object.kind()) {
    case Kind::kString:
    case Kind::kUndefined:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kDictView:
    case Kind::kRange:
    case Kind::kLoop: return true;
    default: return false;
  }
}

int64_t Runtime::Length(const Value& object) {
  switch (object.kind()) {
    case Kind::kString: return object.as<StringObject>().length;
    case Kind::kUndefined: return 0;
    case Kind::kList:
    case Kind::kTuple: return static_cast<int64_t>(object.as<ListObject>().items.size());
    case Kind::kDict: return static_cast<int64_t>(object.as<DictObject>().entries.size());
    case Kind::kDictView: return Length(object.as<DictViewObject>().dict);
    case Kind::kRange: return object.as<RangeObject>().length;
    case Kind::kLoop: return object.as<LoopObject>().Length(*this);
    default: TypeError(fmt::format("object of type '{}' has no len()", TypeName(object))); return -1;
  }
}

bool Runtime::IsIterable(const Value& object) const {
  return HasLength(object) || object.kind() == Kind::kIterator || object.kind() == Kind::kSelf;
}

bool Runtime::IsCallable(const Value& object) const {
  switch (object.kind()) {
    case Kind::kUndefined:
    case Kind::kFunction:
    case Kind::kMacro:
    case Kind::kLoop:
    case Kind::kJoiner:
    case Kind::kBlock: return true;
    default: return false;
  }
}

bool Runtime::Collect(const Value& object, Values* items) {
  Cursor cursor;
  if (!cursor.Start(*this, object)) return false;
  Value item;
  while (cursor.Next(*this, &item)) {
    items->push_back(std::move(item));
    if (!Step() || !CheckItems(static_cast<int64_t>(items->size()))) return false;
  }
  return !failed();
}

bool Cursor::Next(Runtime& runtime, Value* item) {
  if (!runtime.Step()) return false;
  switch (object_.kind()) {
    case Kind::kList:
    case Kind::kTuple: {
      const Values& items = object_.as<ListObject>().items;
      if (position_ >= items.size()) return false;
      *item = items[position_++];
      return true;
    }
    case Kind::kString: {
      const auto& text = object_.as<StringObject>();
      if (position_ >= text.text.size()) return false;
      const size_t begin = position_;
      NextCodePoint(text.text, &position_);
      // Iterating over Markup gives plain characters.
      *item = runtime.String(text.text.substr(begin, position_ - begin));
      return !item->failed();
    }
    case Kind::kDict:
    case Kind::kDictView: {
      const bool is_view = object_.kind() == Kind::kDictView;
      const DictPart part = is_view ? object_.as<DictViewObject>().part : DictPart::kKeys;
      const auto& entries = (is_view ? object_.as<DictViewObject>().dict : object_).as<DictObject>().entries;
      if (position_ >= entries.size()) return false;
      const DictObject::Entry& entry = entries[position_++];
      *item = part == DictPart::kKeys     ? entry.key
              : part == DictPart::kValues ? entry.value
                                          : runtime.Tuple({entry.key, entry.value});
      return !item->failed();
    }
    case Kind::kRange: {
      const auto& range = object_.as<RangeObject>();
      if (position_ >= static_cast<size_t>(range.length)) return false;
      *item = range.At(static_cast<int64_t>(position_++));
      return true;
    }
    case Kind::kIterator: return object_.as<IteratorObject>().Next(runtime, item);
    case Kind::kSelf: runtime.Fail("KeyError", "0"); return false;  // Python tries self[0]
    case Kind::kLoop: {
      Value next;
      if (!object_.as<LoopObject>().Next(runtime, &next)) return false;
      *item = runtime.Tuple({next, object_});
      return !item->failed();
    }
    default: return false;
  }
}

}  // namespace nunspark::text::jinja
