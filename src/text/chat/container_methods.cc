// Methods of everything but str. The sandbox allows only those that leave their object alone - and, like
// Jinja2 3.1.2's, list.pop and list.clear.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "text/chat/builtin_tables.h"
#include "text/chat/interpreter.h"

namespace nunspark::text::jinja {
namespace {

const Values& Items(const Call& call) { return call.self.as<ListObject>().items; }

Value SequenceCount(Runtime& runtime, Call& call) {
  int64_t count = 0;
  for (const Value& item : Items(call)) count += runtime.Equal(item, call.args[0]);
  return runtime.failed() ? Value::Failed() : Value::Int(count);
}

Value SequenceIndex(Runtime& runtime, Call& call) {
  const auto size = static_cast<int64_t>(Items(call).size());
  int64_t start = 0, stop = size;
  if (!IntegerArgument(runtime, call, 1, 0, &start) || !IntegerArgument(runtime, call, 2, size, &stop))
    return Value::Failed();
  if (start < 0) start = std::max<int64_t>(0, start + size);
  if (stop < 0) stop = std::max<int64_t>(0, stop + size);
  for (int64_t i = start; i < std::min(stop, size); ++i) {
    if (runtime.Equal(Items(call)[static_cast<size_t>(i)], call.args[0])) return Value::Int(i);
    if (runtime.failed()) return Value::Failed();
  }
  return runtime.ValueError("the value is not in the sequence");
}

Value ListCopy(Runtime& runtime, Call& call) { return runtime.List(Items(call)); }

Value ListPop(Runtime& runtime, Call& call) {
  Values& items = call.self.as<ListObject>().items;
  int64_t index = -1;
  if (!IntegerArgument(runtime, call, 0, -1, &index)) return Value::Failed();
  if (items.empty()) return runtime.Fail("IndexError", "pop from empty list");
  const auto size = static_cast<int64_t>(items.size());
  if (index < 0) index += size;
  if (index < 0 || index >= size) return runtime.Fail("IndexError", "pop index out of range");
  if (!runtime.Step(1 + (size - index) / 8)) return Value::Failed();
  Value item = std::move(items[static_cast<size_t>(index)]);
  items.erase(items.begin() + static_cast<std::ptrdiff_t>(index));
  return item;
}

Value ListClear(Runtime&, Call& call) {
  // Freed after the list is empty: an item's end must not see it half cleared.
  Values items;
  items.swap(call.self.as<ListObject>().items);
  return Value::None();
}

Value DictGet(Runtime& runtime, Call& call) {
  uint64_t hash = 0;
  if (!runtime.StepKey(call.args[0])) return Value::Failed();
  if (!HashValue(call.args[0], &hash)) {
    return runtime.TypeError(fmt::format("unhashable type: '{}'", TypeName(call.args[0])));
  }
  const Value* value = call.self.as<DictObject>().Find(call.args[0], hash);
  if (value != nullptr) return *value;
  return call.has(1) ? call.args[1] : Value::None();
}

template <DictPart kPart>
Value DictView(Runtime& runtime, Call& call) {
  Value view = runtime.Adopt(new DictViewObject(call.self, kPart));
  view.object()->nesting = call.self.object()->nesting + 1;
  return view;
}

Value DictCopy(Runtime& runtime, Call& call) {
  auto* copy = new DictObject();
  Value value = runtime.Adopt(copy);
  for (const DictObject::Entry& entry : call.self.as<DictObject>().entries)
    copy->Set(entry.key, entry.hash, entry.value);
  copy->nesting = call.self.object()->nesting;
  runtime.heap().Grow(copy, static_cast<int64_t>(copy->entries.size() * sizeof(DictObject::Entry)));
  return runtime.Step(1 + static_cast<int64_t>(copy->entries.size())) ? value : Value::Failed();
}

Value DictFromKeys(Runtime& runtime, Call& call) {
  Values keys;
  if (!runtime.Collect(call.args[0], &keys)) return Value::Failed();
  auto* dict = new DictObject();
  bool ok = true;
  for (size_t i = 0; i < keys.size() && ok; ++i)
    ok = runtime.SetKey(*dict, keys[i], call.has(1) ? call.args[1] : Value::None());
  Value value = runtime.Seal(dict);
  return ok ? value : Value::Failed();
}

Value ViewIsDisjoint(Runtime& runtime, Call& call) {
  Values items;
  if (!runtime.Collect(call.args[0], &items)) return Value::Failed();
  for (const Value& item : items) {
    if (runtime.Contains(call.self, item)) return Value::Bool(false);
    if (runtime.failed()) return Value::Failed();
  }
  return Value::Bool(true);
}

Value RangeCount(Runtime& runtime, Call& call) {
  const bool contains = runtime.Contains(call.self, call.args[0]);
  return runtime.failed() ? Value::Failed() : Value::Int(contains);
}

Value RangeIndex(Runtime& runtime, Call& call) {
  const auto& range = call.self.as<RangeObject>();
  for (int64_t i = 0; i < range.length; ++i) {
    if (!runtime.Step()) return Value::Failed();
    if (runtime.Equal(range.At(i), call.args[0])) return Value::Int(i);
  }
  return runtime.failed() ? Value::Failed() : runtime.ValueError("the value is not in range");
}

BigInt IntegerOf(const Value& value) {
  return value.kind() == Kind::kBig ? value.as<BigObject>().value : BigInt(value.small_int());
}

Value BitLength(Runtime&, Call& call) { return Value::Int(IntegerOf(call.self).bit_length()); }
Value BitCount(Runtime&, Call& call) { return Value::Int(IntegerOf(call.self).bit_count()); }
Value Conjugate(Runtime& runtime, Call& call) { return runtime.Plus(call.self); }
Value IntegerRatio(Runtime& runtime, Call& call) {
  JINJA_TRY(Value number, runtime.Plus(call.self));
  return runtime.Tuple({std::move(number), Value::Int(1)});
}

Value NoBytes(Runtime& runtime, Call&) {
  return runtime.TypeError("int.to_bytes is not supported: templates have no bytes here");
}

Value FloatIsInteger(Runtime&, Call& call) {
  const double value = call.self.float_value();
  return Value::Bool(std::isfinite(value) && std::trunc(value) == value);
}

Value FloatRatio(Runtime& runtime, Call& call) {
  const double value = call.self.float_value();
  if (std::isnan(value)) return runtime.ValueError("cannot convert NaN to integer ratio");
  if (std::isinf(value)) return runtime.Fail("OverflowError", "cannot convert Infinity to integer ratio");
  int exponent = 0;
  double fraction = std::frexp(value, &exponent);
  while (fraction != std::trunc(fraction)) {
    fraction *= 2;
    --exponent;
  }
  BigInt numerator = BigInt::FromDouble(fraction), denominator(1);
  if (!runtime.Step(Runtime::kObjectSteps + 3 * std::abs(exponent))) return Value::Failed();
  BigInt& grown = exponent > 0 ? numerator : denominator;
  for (int i = 0; i < std::abs(exponent); ++i) grown = BigInt::Multiply(grown, BigInt(2));
  JINJA_TRY(Value above, runtime.Integer(numerator));
  JINJA_TRY(Value below, runtime.Integer(denominator));
  return runtime.Tuple({std::move(above), std::move(below)});
}

Value FloatHex(Runtime& runtime, Call& call) {
  const double value = call.self.float_value();
  if (!std::isfinite(value)) return runtime.String(FloatRepr(value));
  if (value == 0) return runtime.String(std::signbit(value) ? "-0x0.0p+0" : "0x0.0p+0");
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%.13a", value);
  return runtime.String(buffer);
}

Value LoopCycle(Runtime& runtime, Call& call) { return call.self.as<LoopObject>().Cycle(runtime, call.rest); }
Value LoopChanged(Runtime& runtime, Call& call) { return call.self.as<LoopObject>().Changed(runtime, call.rest); }

Value CyclerNext(Runtime&, Call& call) {
  auto& cycler = call.self.as<CyclerObject>();
  Value item = cycler.items[cycler.position];
  cycler.position = (cycler.position + 1) % cycler.items.size();
  return item;
}

Value CyclerReset(Runtime&, Call& call) {
  call.self.as<CyclerObject>().position = 0;
  return Value::None();
}

constexpr Builtin kList[] = {
    {"clear", "/", ListClear},           {"copy", "/", ListCopy},
    {"count", "/ value", SequenceCount}, {"index", "/ value start? stop?", SequenceIndex},
    {"pop", "/ index?", ListPop},
};
constexpr Builtin kTuple[] = {
    {"count", "/ value", SequenceCount},
    {"index", "/ value start? stop?", SequenceIndex},
};
constexpr Builtin kDict[] = {
    {"copy", "/", DictCopy},
    {"fromkeys", "/ iterable value?", DictFromKeys},
    {"get", "/ key default?", DictGet},
    {"items", "/", DictView<DictPart::kItems>},
    {"keys", "/", DictView<DictPart::kKeys>},
    {"values", "/", DictView<DictPart::kValues>},
};
constexpr Builtin kDictView[] = {{"isdisjoint", "/ other", ViewIsDisjoint}};
constexpr Builtin kRange[] = {{"count", "/ value", RangeCount}, {"index", "/ value", RangeIndex}};
constexpr Builtin kInteger[] = {
    {"as_integer_ratio", "/", IntegerRatio}, {"bit_count", "/", BitCount},    {"bit_length", "/", BitLength},
    {"conjugate", "/", Conjugate},           {"from_bytes", "* **", NoBytes}, {"to_bytes", "* **", NoBytes},
};
constexpr Builtin kFloat[] = {
    {"as_integer_ratio", "/", FloatRatio},
    {"conjugate", "/", Conjugate},
    {"hex", "/", FloatHex},
    {"is_integer", "/", FloatIsInteger},
};
constexpr Builtin kLoop[] = {{"changed", "*", LoopChanged}, {"cycle", "*", LoopCycle}};
constexpr Builtin kCycler[] = {{"next", "/", CyclerNext}, {"reset", "/", CyclerReset}};

}  // namespace

std::span<const Builtin> ListMethods() { return kList; }
std::span<const Builtin> TupleMethods() { return kTuple; }
std::span<const Builtin> DictMethods() { return kDict; }
std::span<const Builtin> DictViewMethods() { return kDictView; }
std::span<const Builtin> RangeMethods() { return kRange; }
std::span<const Builtin> IntegerMethods() { return kInteger; }
std::span<const Builtin> FloatMethods() { return kFloat; }
std::span<const Builtin> LoopMethods() { return kLoop; }
std::span<const Builtin> CyclerMethods() { return kCycler; }

}  // namespace nunspark::text::jinja
