// The state of one render, and Python's object model on Values: making, printing, comparing, looking up, calling.
//
// Errors: the first one is kept in the Runtime. Functions that return a Value return Value::Failed() after it; the
// others return something harmless and the caller asks failed(). One thread only.
#ifndef NUNSPARK_TEXT_CHAT_RUNTIME_H_
#define NUNSPARK_TEXT_CHAT_RUNTIME_H_

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/chat/chat_template.h"
#include "text/chat/value.h"

// Assigns the value of `expr` to `lhs`, or returns Value::Failed() from the enclosing function.
#define JINJA_TRY(lhs, expr) JINJA_TRY_IMPL_(JINJA_CONCAT_(jinja_value_, __LINE__), lhs, expr)
#define JINJA_TRY_IMPL_(temporary, lhs, expr)     \
  auto temporary = (expr);                        \
  if (temporary.failed()) return Value::Failed(); \
  lhs = std::move(temporary)
#define JINJA_CONCAT_INNER_(a, b) a##b
#define JINJA_CONCAT_(a, b) JINJA_CONCAT_INNER_(a, b)

namespace nunspark::text::jinja {

class Interpreter;
struct Builtin;

// What a caller hands to a callable.
struct Arguments {
  Values positional;
  std::vector<std::pair<std::string, Value>> keywords;
};

// Arguments bound to a builtin's parameters.
struct Call {
  Value self;   // the object of a method, the left side of a filter or test
  Values args;  // one for each named parameter; kMissing when not given
  Values rest;  // further positional ones, when the builtin takes them
  std::vector<std::pair<std::string, Value>> keywords;

  bool has(size_t i) const { return !args[i].missing(); }
};

// A function, method, filter or test written in C++.
struct Builtin {
  std::string_view name;
  // Names separated by spaces. "name?" may be left out, "*" takes any more positional, "**" any more keyword
  // arguments; a leading "/" means that none can be given by keyword.
  std::string_view parameters;
  Value (*call)(Runtime& runtime, Call& call);
  // How many times the price of reading its texts it costs.
  int price = 1;
};
// Of builtins that look at every character.
inline constexpr int kPerCharacter = 8;

struct FunctionObject : Object {
  FunctionObject(const Builtin& function, Value bound)
      : Object(Kind::kFunction), builtin(&function), self(std::move(bound)) {}
  void Clear() override { self = Value(); }
  const Builtin* builtin;
  Value self;  // kMissing for a plain function
};

enum class BinaryOp : uint8_t { kAdd, kSub, kMul, kDiv, kFloorDiv, kMod, kPow };
enum class CompareOp : uint8_t { kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };

class Runtime {
 public:
  Runtime(const RenderLimits& limits, const CivilTime& now);

  // --- Errors and limits ---
  bool failed() const { return failed_; }
  const TemplateError& error() const { return error_; }
  // Keeps the first error. Always returns Value::Failed().
  Value Fail(std::string_view type, std::string message);
  Value TypeError(std::string message) { return Fail("TypeError", std::move(message)); }
  Value ValueError(std::string message) { return Fail("ValueError", std::move(message)); }
  // The error that using this Undefined causes.
  Value FailUndefined(const Value& undefined);
  // Pays for work; false (and failed) when the budget is used up.
  bool Step(int64_t steps = 1) {
    steps_left_ -= steps;
    return steps_left_ >= 0 && !heap_.exhausted() ? true : OutOfSteps();
  }
  // The price of an object, over that of its bytes.
  static constexpr int64_t kObjectSteps = 16;
  // Pays for turning an integer of so many digits into text or back, which takes the square of that.
  bool StepDigits(int64_t digits) {
    digits = std::min<int64_t>(digits, 5000);
    return Step(1 + digits * digits / 100);
  }
  // Pays for hashing a key and comparing it with others.
  bool StepKey(const Value& key);
  bool StepBytes(size_t bytes) { return Step(1 + static_cast<int64_t>(bytes / 4)); }
  // False (and failed) when a sequence of so many items, or a string of so many bytes, is not allowed.
  bool CheckItems(int64_t count);
  bool CheckBytes(int64_t count);
  const RenderLimits& limits() const { return limits_; }
  const CivilTime& now() const { return now_; }

  // --- Making values ---
  Heap& heap() { return heap_; }
  Value String(std::string text, bool markup = false);
  Value Integer(const BigInt& number);
  Value List(Values items) { return Sequence(Kind::kList, std::move(items)); }
  Value Tuple(Values items) { return Sequence(Kind::kTuple, std::move(items)); }
  Value Sequence(Kind list_or_tuple, Values items);
  // Takes a dict filled by SetKey.
  Value Seal(DictObject* dict);
  // Adds a key as Python's dict does. False (and failed) for an unhashable key or too many.
  bool SetKey(DictObject& dict, const Value& key, Value value);
  bool SetText(DictObject& dict, std::string_view key, Value value);
  Value UndefinedName(std::string_view name);
  Value UndefinedHint(std::string hint);
  Value UndefinedMember(const Value& owner, const Value& name);
  Value Unsafe(const Value& owner, std::string_view attribute);
  Value Function(const Builtin& builtin, Value self = Value::Missing());
  template <typename T>
  Value Adopt(T* object, int64_t bytes = 0) {
    return Value(static_cast<Object*>(heap_.Adopt(object, bytes)));
  }

  // --- Printing (python_text.cc) ---
  // str(value) and repr(value) at the end of `out`. False when failed.
  bool AppendStr(const Value& value, std::string& out);
  bool AppendRepr(const Value& value, std::string& out);
  // str(value) as a string value; a string is returned as it is.
  Value ToString(const Value& value);

  // --- Operators (operators.cc) ---
  bool Truthy(const Value& value);
  Value Binary(BinaryOp op, const Value& a, const Value& b);
  Value Negate(const Value& value);
  Value Plus(const Value& value);
  bool Equal(const Value& a, const Value& b);
  // REQUIRES: op is an order (not equality or membership).
  bool Ordered(CompareOp op, const Value& a, const Value& b);
  bool Compare(CompareOp op, const Value& a, const Value& b);
  bool Contains(const Value& container, const Value& item);
  // Stable, with Python's <. `keys` are compared, `items` go along.
  bool Sort(std::vector<std::pair<Value, Value>>& keys_and_items, bool reverse);

  // --- Objects (objects.cc) ---
  // obj.name and obj[key] as the sandboxed environment resolves them.
  Value GetAttribute(const Value& object, std::string_view name);
  Value GetItem(const Value& object, const Value& key);
  // kMissing when the object has no such attribute (the class's, not its items).
  Value PlainAttribute(const Value& object, std::string_view name);
  // object[start:stop:step].
  Value Slice(const Value& object, const Value& start, const Value& stop, const Value& step);
  // len(object), -1 when failed.
  int64_t Length(const Value& object);
  bool HasLength(const Value& object) const;
  bool IsIterable(const Value& object) const;
  bool IsCallable(const Value& object) const;
  // list(object).
  bool Collect(const Value& object, Values* items);

  // --- Calling (calls.cc) ---
  Value Invoke(const Value& callee, Arguments arguments);
  Value InvokeBuiltin(const Builtin& builtin, Value self, Arguments arguments);
  // An integer argument (Python's __index__). False when failed.
  bool ToIndex(const Value& value, int64_t* index);

  Interpreter* interpreter = nullptr;
  bool autoescape = false;
  uint64_t random_state = 0x2545F4914F6CDD1D;  // the random filter repeats itself from render to render

 private:
  friend class DepthGuard;
  bool OutOfSteps();

  const RenderLimits limits_;
  const CivilTime now_;
  Heap heap_;
  int64_t steps_left_;
  int depth_left_;
  bool failed_ = false;
  TemplateError error_;
};

// Counts nested evaluation while it lives. `ok` is false (and the runtime failed) beyond the limit.
class DepthGuard {
 public:
  explicit DepthGuard(Runtime& runtime, int weight = 1);
  ~DepthGuard() { runtime_.depth_left_ += weight_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;
  const bool ok;

 private:
  Runtime& runtime_;
  const int weight_;
};

// Walks anything that Python can iterate.
class Cursor {
 public:
  // False (and failed) when `object` is not iterable.
  bool Start(Runtime& runtime, const Value& object);
  // False at the end, and on an error.
  bool Next(Runtime& runtime, Value* item);

 private:
  Value object_;
  size_t position_ = 0;
};

// A generator: `step` is called until it returns false (or fails).
Value MakeGenerator(Runtime& runtime, std::string type_name, Values kept,
                    bool (*step)(Runtime& runtime, Values& kept, Cursor& cursor, Value* item));

// "%s" % args, value.format(...), format(value, spec): python_format.cc.
Value PercentFormat(Runtime& runtime, const Value& format, const Value& arguments);
Value BraceFormat(Runtime& runtime, std::string_view format, const Arguments& arguments, const Value& mapping,
                  bool markup);
bool FormatValue(Runtime& runtime, const Value& value, std::string_view spec, std::string& out);

// HTML escaping as MarkupSafe does it; Markup stays as it is. The result is Markup.
Value Escape(Runtime& runtime, const Value& value);
std::string EscapeText(std::string_view text);

// repr() of a float: the shortest digits that read back equal, in Python's layout.
std::string FloatRepr(double value);
std::string StringRepr(std::string_view text);
// float(text) with Python's grammar (underscores, inf, nan, surrounding white space).
bool ParseFloat(std::string_view text, double* value);
// int(text, base) with Python's grammar. False when it is no integer.
bool ParseInteger(std::string_view text, int64_t base, BigInt* value);

// json.dumps(value) with these options (json_text.cc). False when failed.
struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::string indent;  // of one level; has_indent false: one line
  bool has_indent = false;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
bool AppendJson(Runtime& runtime, const Value& value, const JsonStyle& style, std::string& out);
// A JSON text or tree as Python's json module reads it. Failed on malformed text.
Value ParseJsonValue(Runtime& runtime, std::string_view text);
Value FromJson(Runtime& runtime, const Json& json);
// Sets what `context` (a dict) lacks of `defaults`, an object of strings or no object. False when failed.
bool AddMissing(Runtime& runtime, const Value& context, const Json& defaults);

// Tables of builtins. nullptr when there is none of that name.
const Builtin* FindFilter(std::string_view name);
const Builtin* FindTest(std::string_view name);
const Builtin* FindGlobal(std::string_view name);
const Builtin* FindMethod(Kind kind, std::string_view name);
// Does Python's class of this value have that attribute, although we do not run it?
bool HasForeignAttribute(const Value& value, std::string_view name);

}  // namespace nunspark::text::jinja

#endif  // NUNSPARK_TEXT_CHAT_RUNTIME_H_
