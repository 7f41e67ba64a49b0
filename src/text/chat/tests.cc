// What may follow `is`.
#include "text/chat/builtin_tables.h"
#include "text/chat/unicode.h"

namespace nunspark::text::jinja {
namespace {

template <CompareOp kOp>
Value Comparison(Runtime& runtime, Call& call) {
  const bool holds = runtime.Compare(kOp, call.self, call.args[0]);
  return runtime.failed() ? Value::Failed() : Value::Bool(holds);
}

template <Kind kKind>
Value IsKind(Runtime&, Call& call) {
  return Value::Bool(call.self.kind() == kKind);
}

Value Remainder(Runtime& runtime, const Value& value, const Value& divisor, int64_t wanted) {
  JINJA_TRY(const Value rest, runtime.Binary(BinaryOp::kMod, value, divisor));
  return Value::Bool(runtime.Equal(rest, Value::Int(wanted)));
}

Value Odd(Runtime& runtime, Call& call) { return Remainder(runtime, call.self, Value::Int(2), 1); }
Value Even(Runtime& runtime, Call& call) { return Remainder(runtime, call.self, Value::Int(2), 0); }
Value DivisibleBy(Runtime& runtime, Call& call) { return Remainder(runtime, call.self, call.args[0], 0); }

Value Defined(Runtime&, Call& call) { return Value::Bool(!call.self.is_undefined()); }
Value True(Runtime&, Call& call) { return Value::Bool(call.self.is_bool() && call.self.bool_value()); }
Value False(Runtime&, Call& call) { return Value::Bool(call.self.is_bool() && !call.self.bool_value()); }
Value Number(Runtime&, Call& call) { return Value::Bool(call.self.is_number()); }
Value Integer(Runtime&, Call& call) { return Value::Bool(call.self.is_integer() && !call.self.is_bool()); }
Value Iterable(Runtime& runtime, Call& call) { return Value::Bool(runtime.IsIterable(call.self)); }
Value Callable(Runtime& runtime, Call& call) { return Value::Bool(runtime.IsCallable(call.self)); }
Value SameAs(Runtime&, Call& call) { return Value::Bool(call.self.SameAs(call.args[0])); }
Value Escaped(Runtime&, Call& call) { return Value::Bool(IsMarkup(call.self)); }

Value Sequence(Runtime&, Call& call) {
  switch (call.self.kind()) {
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kRange:
    case Kind::kUndefined: return Value::Bool(true);
    default: return Value::Bool(false);
  }
}

// str(value).islower() and isupper().
template <bool kUpper>
Value IsCase(Runtime& runtime, Call& call) {
  JINJA_TRY(const Value text, runtime.ToString(call.self));
  return runtime.InvokeBuiltin(*FindMethod(Kind::kString, kUpper ? "isupper" : "islower"), text, {});
}

template <const Builtin* (*kFind)(std::string_view)>
Value Exists(Runtime& runtime, Call& call) {
  uint64_t hash = 0;
  if (!runtime.StepKey(call.self)) return Value::Failed();
  if (!HashValue(call.self, &hash)) return runtime.TypeError("unhashable type: '" + TypeName(call.self) + "'");
  return Value::Bool(call.self.is_string() && kFind(Text(call.self)) != nullptr);
}

constexpr Builtin kTests[] = {
    {"!=", "/ b", Comparison<CompareOp::kNe>},
    {"<", "/ b", Comparison<CompareOp::kLt>},
    {"<=", "/ b", Comparison<CompareOp::kLe>},
    {"==", "/ b", Comparison<CompareOp::kEq>},
    {">", "/ b", Comparison<CompareOp::kGt>},
    {">=", "/ b", Comparison<CompareOp::kGe>},
    {"boolean", "", IsKind<Kind::kBool>},
    {"callable", "/", Callable},
    {"defined", "", Defined},
    {"divisibleby", "num", DivisibleBy},
    {"eq", "/ b", Comparison<CompareOp::kEq>},
    {"equalto", "/ b", Comparison<CompareOp::kEq>},
    {"escaped", "", Escaped},
    {"even", "", Even},
    {"false", "", False},
    {"filter", "", Exists<FindFilter>},
    {"float", "", IsKind<Kind::kFloat>},
    {"ge", "/ b", Comparison<CompareOp::kGe>},
    {"greaterthan", "/ b", Comparison<CompareOp::kGt>},
    {"gt", "/ b", Comparison<CompareOp::kGt>},
    {"in", "seq", Comparison<CompareOp::kIn>},
    {"integer", "", Integer},
    {"iterable", "", Iterable},
    {"le", "/ b", Comparison<CompareOp::kLe>},
    {"lessthan", "/ b", Comparison<CompareOp::kLt>},
    {"lower", "", IsCase<false>},
    {"lt", "/ b", Comparison<CompareOp::kLt>},
    {"mapping", "", IsKind<Kind::kDict>},
    {"ne", "/ b", Comparison<CompareOp::kNe>},
    {"none", "", IsKind<Kind::kNone>},
    {"number", "", Number},
    {"odd", "", Odd},
    {"sameas", "other", SameAs},
    {"sequence", "", Sequence},
    {"string", "", IsKind<Kind::kString>},
    {"test", "", Exists<FindTest>},
    {"true", "", True},
    {"undefined", "", IsKind<Kind::kUndefined>},
    {"upper", "", IsCase<true>},
};

}  // namespace

std::span<const Builtin> Tests() { return kTests; }

}  // namespace nunspark::text::jinja
