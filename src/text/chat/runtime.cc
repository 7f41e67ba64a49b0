#include "text/chat/runtime.h"

#include <fmt/format.h>

#include <algorithm>

namespace nunspark::text::jinja {
namespace {

// Each call weighs this many levels of plain nesting, so that limits.depth calls of ordinary macros fit.
constexpr int kLevelsPerCall = 8;

// Deeper data could not be printed or compared without deep recursion. JSON contexts end at 512.
constexpr uint32_t kMaxNesting = 600;

// Live objects of one render. Far above any conversation, far below what would hurt a machine.
constexpr int64_t kHeapBytes = int64_t{256} << 20;

// Of tuples; sums of it and multiples must not overflow.
constexpr int64_t kMaxSpread = int64_t{1} << 40;

uint32_t NestingOf(const Value& value) { return value.is_object() ? value.object()->nesting : 0; }

}  // namespace

Runtime::Runtime(const RenderLimits& limits, const CivilTime& now)
    : limits_(limits),
      now_(now),
      heap_(std::max<int64_t>(kHeapBytes, limits.output_bytes * 4)),
      steps_left_(limits.steps),
      depth_left_(limits.depth * kLevelsPerCall) {}

Value Runtime::Fail(std::string_view type, std::string message) {
  if (!failed_) {
    failed_ = true;
    error_ = {std::string(type), std::move(message)};
  }
  return Value::Failed();
}

Value Runtime::FailUndefined(const Value& undefined) {
  const auto& object = undefined.as<UndefinedObject>();
  const std::string_view type = object.unsafe ? "SecurityError" : "UndefinedError";
  if (!object.hint.empty()) return Fail(type, object.hint);
  std::string name;
  AppendRepr(object.name, name);
  if (object.owner.missing()) return Fail(type, name + " is undefined");
  std::string owner = object.owner.is_none() ? "None" : TypeName(object.owner) + " object";
  if (object.owner.kind() == Kind::kNamespace) owner = "jinja2.utils." + owner;
  if (!object.name.is_string()) return Fail(type, owner + " has no element " + name);
  return Fail(type, fmt::format("'{}' has no attribute {}", owner, name));
}

bool Runtime::OutOfSteps() {
  if (heap_.exhausted()) {
    Fail("LimitError", "the template's values need more memory than a render may use");
  } else {
    Fail("LimitError", fmt::format("the template needs more than {} steps", limits_.steps));
  }
  return false;
}

bool Runtime::CheckItems(int64_t count) {
  if (count <= limits_.sequence_items) return true;
  Fail("LimitError", fmt::format("a sequence of {} items is above the limit of {}", count, limits_.sequence_items));
  return false;
}

bool Runtime::CheckBytes(int64_t count) {
  if (count <= limits_.output_bytes) return true;
  Fail("LimitError", fmt::format("a text of {} bytes is above the limit of {}", count, limits_.output_bytes));
  return false;
}

Value Runtime::String(std::string text, bool markup) {
  if (!CheckBytes(static_cast<int64_t>(text.size())) || !Step(kObjectSteps) || !StepBytes(text.size())) {
    return Value::Failed();
  }
  const auto bytes = static_cast<int64_t>(text.capacity());
  return Adopt(new StringObject(std::move(text), markup), bytes);
}

Value Runtime::Integer(const BigInt& number) {
  if (auto small = number.ToInt64()) return Value::Int(*small);
  if (number.bit_length() > BigInt::kMaxBits) {
    return Fail("LimitError", "an integer of more than 4300 digits is above the limit");
  }
  if (!Step(kObjectSteps + number.bit_length() / 4)) return Value::Failed();
  return Adopt(new BigObject(number), number.bit_length() / 8);
}

Value Runtime::Sequence(Kind list_or_tuple, Values items) {
  const auto count = static_cast<int64_t>(items.size());
  if (!CheckItems(count) || !Step(kObjectSteps + count / 2)) return Value::Failed();
  uint32_t nesting = 0;
  int64_t spread = 1;
  for (const Value& item : items) {
    nesting = std::max(nesting, NestingOf(item));
    spread += item.is_tuple() ? item.as<ListObject>().spread : 1;
  }
  if (nesting >= kMaxNesting) return Fail("LimitError", "lists or dicts are nested too deeply");
  auto* object = new ListObject(list_or_tuple, std::move(items));
  object->nesting = nesting + 1;
  object->spread = std::min(spread, kMaxSpread);
  return Adopt(object, count * static_cast<int64_t>(sizeof(Value)));
}

Value Runtime::Seal(DictObject* dict) {
  uint32_t nesting = 0;
  for (const DictObject::Entry& entry : dict->entries) {
    nesting = std::max({nesting, NestingOf(entry.key), NestingOf(entry.value)});
  }
  dict->nesting = nesting + 1;
  const auto count = static_cast<int64_t>(dict->entries.size());
  // Owned from here on, also when refused.
  Value value = Adopt(dict, count * static_cast<int64_t>(sizeof(DictObject::Entry) + 16));
  if (nesting >= kMaxNesting) return Fail("LimitError", "lists or dicts are nested too deeply");
  return Step(kObjectSteps + count * 2) ? value : Value::Failed();
}

bool Runtime::StepKey(const Value& key) {
  if (key.is_string()) return StepBytes(Text(key).size());
  return !key.is_tuple() || Step(key.as<ListObject>().spread * 8);
}

bool Runtime::SetKey(DictObject& dict, const Value& key, Value value) {
  if (!StepKey(key)) return false;
  uint64_t hash = 0;
  if (!HashValue(key, &hash)) {
    Value culprit = key;
    while (culprit.is_tuple()) {
      for (const Value& item : culprit.as<ListObject>().items) {
        if (!HashValue(item, &hash)) {
          culprit = Value(item);
          break;
        }
      }
    }
    TypeError(fmt::format("unhashable type: '{}'", TypeName(culprit)));
    return false;
  }
  dict.Set(key, hash, std::move(value));
  return CheckItems(static_cast<int64_t>(dict.entries.size()));
}

bool Runtime::SetText(DictObject& dict, std::string_view key, Value value) {
  Value name = String(std::string(key));
  return !name.failed() && SetKey(dict, name, std::move(value));
}

Value Runtime::UndefinedName(std::string_view name) {
  JINJA_TRY(Value text, String(std::string(name)));
  auto* object = new UndefinedObject();
  object->name = std::move(text);
  return Adopt(object);
}

Value Runtime::UndefinedHint(std::string hint) {
  auto* object = new UndefinedObject();
  object->hint = std::move(hint);
  return Adopt(object);
}

Value Runtime::UndefinedMember(const Value& owner, const Value& name) {
  auto* object = new UndefinedObject();
  object->owner = owner;
  object->name = name;
  return Adopt(object);
}

Value Runtime::Unsafe(const Value& owner, std::string_view attribute) {
  auto* object = new UndefinedObject();
  object->hint =
      fmt::format("access to attribute {} of '{}' object is unsafe.", StringRepr(attribute), TypeName(owner));
  object->unsafe = true;
  return Adopt(object);
}

Value Runtime::Function(const Builtin& builtin, Value self) {
  return Adopt(new FunctionObject(builtin, std::move(self)));
}

DepthGuard::DepthGuard(Runtime& runtime, int weight)
    : ok((runtime.depth_left_ -= weight) >= 0), runtime_(runtime), weight_(weight) {
  if (!ok)
    runtime.Fail("LimitError", fmt::format("calls or data are nested deeper than {} levels", runtime.limits().depth));
}

bool IteratorObject::Next(Runtime& runtime, Value* item) {
  if (running_) {
    runtime.ValueError("generator already executing");
    return false;
  }
  const Value self(this);  // what it runs may drop the last other reference to it
  running_ = true;
  const bool more = Advance(runtime, item);
  running_ = false;
  return more;
}

bool Cursor::Start(Runtime& runtime, const Value& object) {
  position_ = 0;
  object_ = object;
  if (runtime.IsIterable(object)) return true;
  runtime.TypeError(fmt::format("'{}' object is not iterable", TypeName(object)));
  return false;
}

namespace {

class Generator : public IteratorObject {
 public:
  using StepFunction = bool (*)(Runtime&, Values&, Cursor&, Value*);
  Generator(std::string name, Values values, StepFunction function)
      : IteratorObject(std::move(name)), kept_(std::move(values)), step_(function) {}
  void Clear() override {
    kept_.clear();
    cursor_ = Cursor();
  }

 private:
  bool Advance(Runtime& runtime, Value* item) override {
    if (finished_ || !runtime.Step()) return false;
    DepthGuard depth(runtime, 2);
    if (!depth.ok) return false;
    const bool more = step_(runtime, kept_, cursor_, item) && !runtime.failed();
    finished_ = !more;
    return more;
  }

  Values kept_;
  Cursor cursor_;
  StepFunction step_;
  bool finished_ = false;
};

}  // namespace

Value MakeGenerator(Runtime& runtime, std::string type_name, Values kept,
                    bool (*step)(Runtime& runtime, Values& kept, Cursor& cursor, Value* item)) {
  const auto bytes = static_cast<int64_t>(kept.size() * sizeof(Value));
  return runtime.Adopt(new Generator(std::move(type_name), std::move(kept), step), bytes);
}

}  // namespace nunspark::text::jinja
