#include "text/chat/value.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace nunspark::text::jinja {
namespace {

int64_t CountCodePoints(std::string_view text) {
  int64_t count = 0;
  for (char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

uint64_t Mix(uint64_t x) {
  x ^= kHashKey;
  x ^= x >> 33;
  x *= 0xFF51AFD7ED558CCDu;
  x ^= x >> 33;
  x *= 0xC4CEB9FE1A85EC53u;
  return x ^ x >> 33;
}

}  // namespace

bool Value::SameAs(const Value& other) const {
  if (kind_ != other.kind_) return false;
  if (is_object()) {
    if (object_ == other.object_) return true;
    // Equal strings may or may not be one object in Python; its compiler makes one of equal literals.
    if (is_string()) return Text(*this) == Text(other);
    return (is_tuple() && as<ListObject>().items.empty() && other.as<ListObject>().items.empty());
  }
  if (kind_ == Kind::kFloat) return float_ == other.float_;
  return kind_ == Kind::kNone || int_ == other.int_;
}

void Value::Release() {
  if (object_->heap != nullptr && --object_->references == 0) object_->heap->Free(object_);
}

Heap::~Heap() {
  // First cut every reference, then delete: an object must not look at one that is already gone.
  ending_ = true;
  for (Object* object = first_; object != nullptr; object = object->heap_next) object->Clear();
  while (first_ != nullptr) {
    Object* object = first_;
    first_ = object->heap_next;
    delete object;
  }
}

void Heap::Link(Object* object, int64_t bytes) {
  object->heap = this;
  object->bytes = bytes;
  used_bytes_ += bytes;
  object->heap_next = first_;
  if (first_ != nullptr) first_->heap_previous = object;
  first_ = object;
}

void Heap::Unlink(Object* object) {
  used_bytes_ -= object->bytes;
  if (object->heap_previous != nullptr) object->heap_previous->heap_next = object->heap_next;
  if (object->heap_next != nullptr) object->heap_next->heap_previous = object->heap_previous;
  if (first_ == object) first_ = object->heap_next;
}

void Heap::Grow(Object* object, int64_t bytes) {
  object->bytes += bytes;
  used_bytes_ += bytes;
}

void Heap::Free(Object* object) {
  if (ending_) return;
  pending_.push_back(object);
  if (freeing_) return;
  freeing_ = true;
  while (!pending_.empty()) {
    Object* last = pending_.back();
    pending_.pop_back();
    Unlink(last);
    delete last;
  }
  freeing_ = false;
}

StringObject::StringObject(std::string value, bool is_markup)
    : Object(Kind::kString), text(std::move(value)), markup(is_markup), length(CountCodePoints(text)) {}

RangeObject::RangeObject(int64_t from, int64_t to, int64_t by)
    : Object(Kind::kRange), start(from), stop(to), step(by), length([&]() -> int64_t {
        // 128-bit free: callers keep the bounds within +-2^62.
        if (by > 0) return from < to ? (to - from - 1) / by + 1 : 0;
        return from > to ? (from - to - 1) / -by + 1 : 0;
      }()) {}

template <typename Equal>
int64_t DictObject::Locate(uint64_t hash, Equal equal) const {
  if (index.empty()) {
    for (size_t i = 0; i < entries.size(); ++i) {
      if (entries[i].hash == hash && equal(entries[i].key)) return static_cast<int64_t>(i);
    }
    return -1;
  }
  const size_t mask = index.size() - 1;
  for (size_t probe = Mix(hash) & mask; index[probe] != 0; probe = (probe + 1) & mask) {
    const Entry& entry = entries[index[probe] - 1];
    if (entry.hash == hash && equal(entry.key)) return index[probe] - 1;
  }
  return -1;
}

const Value* DictObject::Find(const Value& key, uint64_t hash) const {
  const int64_t i = Locate(hash, [&](const Value& other) { return KeysEqual(key, other); });
  return i < 0 ? nullptr : &entries[static_cast<size_t>(i)].value;
}

const Value* DictObject::FindText(std::string_view key) const {
  const int64_t i = Locate(HashText(key), [&](const Value& other) { return other.is_string() && Text(other) == key; });
  return i < 0 ? nullptr : &entries[static_cast<size_t>(i)].value;
}

void DictObject::Set(const Value& key, uint64_t hash, Value value) {
  const int64_t i = Locate(hash, [&](const Value& other) { return KeysEqual(key, other); });
  if (i >= 0) {
    entries[static_cast<size_t>(i)].value = std::move(value);
    return;
  }
  entries.push_back({key, std::move(value), hash});
  constexpr size_t kLinearSearchLimit = 8;
  if (entries.size() <= kLinearSearchLimit) return;
  if (entries.size() * 2 > index.size()) {
    Reindex();
    return;
  }
  const size_t mask = index.size() - 1;
  size_t probe = Mix(hash) & mask;
  while (index[probe] != 0) probe = (probe + 1) & mask;
  index[probe] = static_cast<uint32_t>(entries.size());
}

void DictObject::Reindex() {
  index.assign(std::bit_ceil(entries.size() * 4), 0);
  const size_t mask = index.size() - 1;
  for (size_t i = 0; i < entries.size(); ++i) {
    size_t probe = Mix(entries[i].hash) & mask;
    while (index[probe] != 0) probe = (probe + 1) & mask;
    index[probe] = static_cast<uint32_t>(i + 1);
  }
}

bool HashValue(const Value& value, uint64_t* hash) {
  switch (value.kind()) {
    case Kind::kBool:
    case Kind::kInt: *hash = static_cast<uint64_t>(value.small_int()); return true;
    case Kind::kBig: *hash = value.as<BigObject>().value.Hash(); return true;
    case Kind::kFloat: {
      // An integral float is the same key as the integer.
      const double number = value.float_value();
      if (std::isfinite(number) && std::trunc(number) == number) {
        *hash = BigInt::FromDouble(number).Hash();
      } else {
        *hash = std::bit_cast<uint64_t>(number);
      }
      return true;
    }
    case Kind::kString: *hash = HashText(Text(value)); return true;
    case Kind::kTuple: {
      uint64_t sum = 0x345678;
      for (const Value& item : value.as<ListObject>().items) {
        uint64_t part = 0;
        if (!HashValue(item, &part)) return false;
        sum = Mix(sum ^ part) + 97531;
      }
      *hash = sum;
      return true;
    }
    case Kind::kRange: *hash = 0x72616E6765u ^ static_cast<uint64_t>(value.as<RangeObject>().length); return true;
    case Kind::kUndefined: *hash = 0x756E6465u; return true;
    case Kind::kNone: *hash = 0x4E6F6E65u; return true;
    case Kind::kFailed:
    case Kind::kMissing: *hash = 0; return true;
    case Kind::kList:
    case Kind::kDict:
    case Kind::kDictView:
    case Kind::kSlice: return false;
    case Kind::kIterator:
    case Kind::kNamespace:
    case Kind::kFunction:
    case Kind::kMacro:
    case Kind::kLoop:
    case Kind::kCycler:
    case Kind::kJoiner:
    case Kind::kSelf:
    case Kind::kBlock:
    case Kind::kEnv: *hash = std::bit_cast<uint64_t>(value.object()); return true;
  }
  return false;
}

namespace {

bool IntegerEqualsFloat(const Value& integer, double number) {
  if (!std::isfinite(number) || std::trunc(number) != number) return false;
  const BigInt other = BigInt::FromDouble(number);
  if (integer.kind() == Kind::kBig) return integer.as<BigObject>().value == other;
  return other.ToInt64() == integer.small_int();
}

}  // namespace

bool KeysEqual(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_float() && b.is_float()) {
      return a.float_value() == b.float_value();
    }
    if (a.is_float()) return IntegerEqualsFloat(b, a.float_value());
    if (b.is_float()) return IntegerEqualsFloat(a, b.float_value());
    const bool big_a = a.kind() == Kind::kBig, big_b = b.kind() == Kind::kBig;
    if (big_a != big_b) return false;  // a BigObject never fits int64
    return big_a ? a.as<BigObject>().value == b.as<BigObject>().value : a.small_int() == b.small_int();
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kString: return Text(a) == Text(b);
    case Kind::kNone:
    case Kind::kUndefined: return true;
    case Kind::kTuple: {
      const Values& left = a.as<ListObject>().items;
      const Values& right = b.as<ListObject>().items;
      if (left.size() != right.size()) return false;
      for (size_t i = 0; i < left.size(); ++i) {
        if (!KeysEqual(left[i], right[i])) return false;
      }
      return true;
    }
    case Kind::kRange: {
      const auto &left = a.as<RangeObject>(), &right = b.as<RangeObject>();
      return left.length == right.length &&
             (left.length == 0 || (left.start == right.start && (left.length == 1 || left.step == right.step)));
    }
    default: return a.SameAs(b);
  }
}

std::string TypeName(const Value& value) {
  switch (value.kind()) {
    case Kind::kNone: return "NoneType";
    case Kind::kBool: return "bool";
    case Kind::kInt:
    case Kind::kBig: return "int";
    case Kind::kFloat: return "float";
    case Kind::kString: return value.as<StringObject>().markup ? "Markup" : "str";
    case Kind::kUndefined: return "Undefined";
    case Kind::kList: return "list";
    case Kind::kTuple: return value.as<ListObject>().group ? "_GroupTuple" : "tuple";
    case Kind::kDict: return "dict";
    case Kind::kDictView:
      switch (value.as<DictViewObject>().part) {
        case DictPart::kKeys: return "dict_keys";
        case DictPart::kValues: return "dict_values";
        case DictPart::kItems: return "dict_items";
      }
      return "dict_keys";
    case Kind::kRange: return "range";
    case Kind::kIterator: return value.as<IteratorObject>().type_name;
    case Kind::kNamespace: return "Namespace";
    case Kind::kFunction: return "builtin_function_or_method";
    case Kind::kMacro: return "Macro";
    case Kind::kLoop: return "LoopContext";
    case Kind::kCycler: return "Cycler";
    case Kind::kJoiner: return "Joiner";
    case Kind::kSelf: return "TemplateReference";
    case Kind::kBlock: return "BlockReference";
    case Kind::kSlice: return "slice";
    case Kind::kFailed:
    case Kind::kMissing:
    case Kind::kEnv: return "missing";
  }
  return "object";
}

}  // namespace nunspark::text::jinja
