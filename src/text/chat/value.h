// What a template computes with: Python's values, small and reference-counted.
//
// A Value is 16 bytes: a kind and a number, or a pointer to an Object. Objects belong to the Heap of one render and are
// counted without atomics, so a Heap and its values stay on one thread. Objects without a heap are constants of a
// parsed template: never counted, never freed by a Value, shared by all renders. Lists, tuples and dicts never change
// once made (the sandbox forbids it); only a Namespace can make a cycle, which the Heap's end breaks.
#ifndef NUNSPARK_TEXT_CHAT_VALUE_H_
#define NUNSPARK_TEXT_CHAT_VALUE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/chat/big_int.h"
#include "text/text_hash.h"

namespace nunspark::text::jinja {

class Heap;
class Runtime;
class Value;

enum class Kind : uint8_t {
  kFailed,   // no value: an error was recorded in the Runtime
  kMissing,  // no value: a variable or argument that is not there
  kNone,
  kBool,
  kInt,
  kFloat,
  // Objects from here on.
  kBig,
  kString,
  kUndefined,
  kList,
  kTuple,
  kDict,
  kDictView,
  kRange,
  kIterator,
  kNamespace,
  kFunction,
  kMacro,
  kLoop,
  kCycler,
  kJoiner,
  kSelf,
  kBlock,
  kSlice,
  kEnv,
};

class Object {
 public:
  explicit Object(Kind object_kind) : kind(object_kind) {}
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;
  // Drops all references to other objects.
  virtual void Clear() {}

  const Kind kind;
  uint32_t references = 0;
  uint32_t nesting = 0;  // levels of containers below and including this one
  int64_t bytes = 0;     // what the heap's account holds for it
  Heap* heap = nullptr;  // nullptr: a constant
  Object* heap_previous = nullptr;
  Object* heap_next = nullptr;
};

class Value {
 public:
  Value() : kind_(Kind::kNone), int_(0) {}
  static Value Failed() { return Value(Kind::kFailed); }
  static Value Missing() { return Value(Kind::kMissing); }
  static Value None() { return Value(); }
  static Value Bool(bool value) {
    Value v(Kind::kBool);
    v.int_ = value;
    return v;
  }
  static Value Int(int64_t value) {
    Value v(Kind::kInt);
    v.int_ = value;
    return v;
  }
  static Value Float(double value) {
    Value v(Kind::kFloat);
    v.float_ = value;
    return v;
  }
  explicit Value(Object* object) : kind_(object->kind), object_(object) { Retain(); }

  Value(const Value& other) : kind_(other.kind_), int_(other.int_) {
    if (is_object()) {
      object_ = other.object_;
      Retain();
    }
  }
  Value(Value&& other) noexcept : kind_(other.kind_), int_(other.int_) {
    if (is_object()) object_ = other.object_;
    other.kind_ = Kind::kNone;
  }
  Value& operator=(const Value& other) {
    Value copy(other);
    Swap(copy);
    return *this;
  }
  Value& operator=(Value&& other) noexcept {
    Swap(other);
    return *this;
  }
  ~Value() {
    if (is_object()) Release();
  }

  Kind kind() const { return kind_; }
  bool failed() const { return kind_ == Kind::kFailed; }
  bool missing() const { return kind_ == Kind::kMissing; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_bool() const { return kind_ == Kind::kBool; }
  bool is_float() const { return kind_ == Kind::kFloat; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_list() const { return kind_ == Kind::kList; }
  bool is_tuple() const { return kind_ == Kind::kTuple; }
  bool is_dict() const { return kind_ == Kind::kDict; }
  bool is_object() const { return kind_ >= Kind::kBig; }
  // Python's int, which bool is a kind of.
  bool is_integer() const { return kind_ == Kind::kInt || kind_ == Kind::kBool || kind_ == Kind::kBig; }
  bool is_number() const { return is_integer() || kind_ == Kind::kFloat; }

  // REQUIRES: the matching kind. small_int is also for bools (0 and 1).
  bool bool_value() const { return int_ != 0; }
  int64_t small_int() const { return int_; }
  double float_value() const { return float_; }
  Object* object() const { return object_; }
  template <typename T>
  T& as() const {
    return *static_cast<T*>(object_);
  }

  // Python's `is`.
  bool SameAs(const Value& other) const;

 private:
  explicit Value(Kind kind) : kind_(kind), int_(0) {}
  void Swap(Value& other) noexcept {
    std::swap(kind_, other.kind_);
    std::swap(bits_, other.bits_);
  }
  void Retain() const {
    if (object_->heap != nullptr) ++object_->references;
  }
  void Release();

  Kind kind_;
  union {
    int64_t int_;
    double float_;
    Object* object_;
    uint64_t bits_;
  };
};
static_assert(sizeof(Value) == 16 && sizeof(void*) == 8);

using Values = std::vector<Value>;

// Owns the objects of one render and knows how much memory they take.
class Heap {
 public:
  explicit Heap(int64_t limit_bytes) : limit_bytes_(limit_bytes) {}
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;
  ~Heap();

  // Takes ownership; `bytes` is what the object holds beyond its own struct.
  template <typename T>
  T* Adopt(T* object, int64_t bytes = 0) {
    Link(object, bytes + static_cast<int64_t>(sizeof(T)) + 16);
    return object;
  }
  // Adds to an object's account (a namespace that grows).
  void Grow(Object* object, int64_t bytes);
  // The objects' memory has passed the limit: the runtime must end the render.
  bool exhausted() const { return used_bytes_ > limit_bytes_; }

  // Called by the last Value that lets go.
  void Free(Object* object);

 private:
  void Link(Object* object, int64_t bytes);
  void Unlink(Object* object);

  Object* first_ = nullptr;
  int64_t used_bytes_ = 0;
  int64_t limit_bytes_;
  // Objects whose count fell to zero wait here, so that freeing a long chain needs no stack.
  std::vector<Object*> pending_;
  bool freeing_ = false;
  bool ending_ = false;
};

struct StringObject : Object {
  explicit StringObject(std::string value, bool is_markup = false);
  const std::string text;  // UTF-8; lone surrogates, which Python allows, as three bytes
  const bool markup;       // Python's Markup: text that is safe in HTML
  const int64_t length;    // code points
  bool ascii() const { return length == static_cast<int64_t>(text.size()); }
};

struct BigObject : Object {
  explicit BigObject(BigInt number) : Object(Kind::kBig), value(std::move(number)) {}
  const BigInt value;
};

// Jinja's Undefined: knows how it came about, for the message of the error that most uses of it are.
struct UndefinedObject : Object {
  UndefinedObject() : Object(Kind::kUndefined), owner(Value::Missing()), name(Value::Missing()) {}
  void Clear() override { owner = name = Value::Missing(); }
  std::string hint;  // the whole message, when not empty
  Value owner;       // what was asked for `name`; kMissing for a variable
  Value name;
  bool unsafe = false;  // its error is a SecurityError
};

struct ListObject : Object {  // also tuples
  ListObject(Kind list_or_tuple, Values values) : Object(list_or_tuple), items(std::move(values)) {}
  void Clear() override { items.clear(); }
  Values items;
  bool group = false;  // the (grouper, list) tuple of groupby
  int64_t spread = 1;  // of tuples: the values in it, those in its tuples included, each as often as it occurs
};

// Insertion-ordered, with Python's equality of keys (1, 1.0 and true are one key).
struct DictObject : Object {
  struct Entry {
    Value key;
    Value value;
    uint64_t hash;
  };
  DictObject() : Object(Kind::kDict) {}
  void Clear() override {
    entries.clear();
    index.clear();
  }
  // nullptr when absent.
  const Value* Find(const Value& key, uint64_t hash) const;
  const Value* FindText(std::string_view key) const;
  // Replaces the value of an equal key. REQUIRES: not yet shared.
  void Set(const Value& key, uint64_t hash, Value value);

  std::vector<Entry> entries;

 private:
  template <typename Equal>
  int64_t Locate(uint64_t hash, Equal equal) const;
  void Reindex();
  std::vector<uint32_t> index;  // open addressing, entry number + 1; empty while few
};

enum class DictPart : uint8_t { kKeys, kValues, kItems };

struct DictViewObject : Object {
  DictViewObject(Value of, DictPart which) : Object(Kind::kDictView), dict(std::move(of)), part(which) {}
  void Clear() override { dict = Value(); }
  Value dict;
  const DictPart part;
};

struct RangeObject : Object {
  RangeObject(int64_t from, int64_t to, int64_t by);
  const int64_t start, stop, step, length;
  Value At(int64_t i) const { return Value::Int(start + i * step); }
};

// A Python iterator or generator: consumed once, computed as it is asked.
class IteratorObject : public Object {
 public:
  explicit IteratorObject(std::string name) : Object(Kind::kIterator), type_name(std::move(name)) {}
  // False at the end, and on an error (see Runtime::failed): also when what it runs asks it for the next item.
  bool Next(Runtime& runtime, Value* item);
  const std::string type_name;  // "generator", "list_reverseiterator", ...

 private:
  virtual bool Advance(Runtime& runtime, Value* item) = 0;
  bool running_ = false;
};

struct NamespaceObject : Object {
  NamespaceObject() : Object(Kind::kNamespace), attributes(Value::None()) {}
  void Clear() override { attributes = Value(); }
  Value attributes;  // a dict that only this object holds
};

struct SliceObject : Object {
  SliceObject() : Object(Kind::kSlice) {}
  void Clear() override { start = stop = step = Value(); }
  Value start, stop, step;
};

struct CyclerObject : Object {
  CyclerObject() : Object(Kind::kCycler) {}
  void Clear() override { items.clear(); }
  Values items;
  size_t position = 0;
};

struct JoinerObject : Object {
  explicit JoinerObject(Value text) : Object(Kind::kJoiner), separator(std::move(text)) {}
  void Clear() override { separator = Value(); }
  Value separator;
  bool used = false;
};

// A key's hash. False for what Python cannot hash (lists, dicts, slices, and tuples of such).
bool HashValue(const Value& value, uint64_t* hash);
// Equality of keys; needs no runtime, since keys hold no lists.
bool KeysEqual(const Value& a, const Value& b);

// str, int, NoneType, ... as type(x).__name__ gives it.
std::string TypeName(const Value& value);

inline std::string_view Text(const Value& value) { return value.as<StringObject>().text; }

}  // namespace nunspark::text::jinja

#endif  // NUNSPARK_TEXT_CHAT_VALUE_H_
