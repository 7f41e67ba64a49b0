// Expressions.
#include <fmt/format.h>

#include "text/chat/interpreter.h"

namespace nunspark::text::jinja {
namespace {

bool IsNumber(const Expr* expr) { return expr->kind == ExprKind::kConst && expr->constant.is_number(); }

// A negative literal to the power of something that is no literal.
bool NegatesPower(const Expr* power) {
  const Expr* exponent = power->right;
  while (exponent->kind == ExprKind::kNegate || exponent->kind == ExprKind::kPlus) exponent = exponent->left;
  return power->left->kind == ExprKind::kNegate && IsNumber(power->left->left) && exponent->kind != ExprKind::kConst;
}

}  // namespace

Value Interpreter::Load(const Expr* expr, EnvObject& env) {
  const Value& value = Slot(expr->variable, env);
  return value.missing() ? runtime_.UndefinedName(expr->text) : value;
}

Value Interpreter::Evaluate(const Expr* expr, EnvObject& env) {
  if (!runtime_.Step()) return Value::Failed();
  if (expr->kind == ExprKind::kName) return Load(expr, env);
  if (expr->kind == ExprKind::kConst) return expr->constant;
  DepthGuard depth(runtime_);
  if (!depth.ok) return Value::Failed();
  switch (expr->kind) {
    case ExprKind::kName:
    case ExprKind::kConst:
    case ExprKind::kText: return runtime_.String(expr->text);
    case ExprKind::kTuple:
    case ExprKind::kList: return EvaluateItems(expr, env);
    case ExprKind::kDict: return EvaluateDict(expr, env);
    case ExprKind::kNot: {
      JINJA_TRY(const Value value, Evaluate(expr->left, env));
      return Value::Bool(!runtime_.Truthy(value));
    }
    case ExprKind::kNegate: {
      JINJA_TRY(const Value value, Evaluate(expr->left, env));
      return runtime_.Negate(value);
    }
    case ExprKind::kPlus: {
      JINJA_TRY(const Value value, Evaluate(expr->left, env));
      return runtime_.Plus(value);
    }
    case ExprKind::kBinary: {
      JINJA_TRY(const Value left, Evaluate(expr->left, env));
      JINJA_TRY(const Value right, Evaluate(expr->right, env));
      if (expr->binary_op == BinaryOp::kPow && NegatesPower(expr)) {
        // Jinja2 writes the constant -2 into Python code, where -2 ** x is -(2 ** x).
        JINJA_TRY(const Value base, runtime_.Negate(left));
        JINJA_TRY(const Value power, runtime_.Binary(BinaryOp::kPow, base, right));
        return runtime_.Negate(power);
      }
      return runtime_.Binary(expr->binary_op, left, right);
    }
    case ExprKind::kAnd:
    case ExprKind::kOr: {
      JINJA_TRY(Value left, Evaluate(expr->left, env));
      if (runtime_.Truthy(left) == (expr->kind == ExprKind::kOr)) return left;
      return Evaluate(expr->right, env);
    }
    case ExprKind::kCompare: return EvaluateCompare(expr, env);
    case ExprKind::kConcat: return EvaluateConcat(expr, env);
    case ExprKind::kCondition: return EvaluateCondition(expr, env);
    case ExprKind::kGetAttribute: {
      JINJA_TRY(const Value object, Evaluate(expr->left, env));
      // The common case first: an item of a dict that is no method of dict.
      if (object.is_dict() && FindMethod(Kind::kDict, expr->text) == nullptr &&
          !HasForeignAttribute(object, expr->text)) {
        const Value* item = object.as<DictObject>().FindText(expr->text);
        return item != nullptr ? *item : runtime_.UndefinedMember(object, expr->constant);
      }
      return runtime_.GetAttribute(object, expr->text);
    }
    case ExprKind::kGetItem: return EvaluateGetItem(expr, env);
    case ExprKind::kCall: return EvaluateCall(expr, env, Value::Missing());
    case ExprKind::kFilter: return EvaluateFilter(expr, env, nullptr);
    case ExprKind::kTest: return EvaluateTest(expr, env);
    case ExprKind::kNamespaceRef:
    case ExprKind::kSlice: return runtime_.Fail("SyntaxError", "invalid syntax");
  }
  return Value::Failed();
}

Value Interpreter::EvaluateItems(const Expr* expr, EnvObject& env) {
  Values items;
  items.reserve(expr->items.size());
  for (const Expr* item : expr->items) {
    JINJA_TRY(Value value, Evaluate(item, env));
    items.push_back(std::move(value));
  }
  return runtime_.Sequence(expr->kind == ExprKind::kList ? Kind::kList : Kind::kTuple, std::move(items));
}

Value Interpreter::EvaluateDict(const Expr* expr, EnvObject& env) {
  // Values first: a dict that is not yet whole must not be lost on an error.
  Values items;
  for (const Expr* item : expr->items) {
    JINJA_TRY(Value value, Evaluate(item, env));
    items.push_back(std::move(value));
  }
  auto* dict = new DictObject();
  bool ok = true;
  for (size_t i = 0; i + 1 < items.size() && ok; i += 2) ok = runtime_.SetKey(*dict, items[i], std::move(items[i + 1]));
  Value value = runtime_.Seal(dict);
  return ok ? value : Value::Failed();
}

Value Interpreter::EvaluateCompare(const Expr* expr, EnvObject& env) {
  JINJA_TRY(Value left, Evaluate(expr->left, env));
  bool result = true;
  for (size_t i = 0; i < expr->compare_ops.size() && result; ++i) {
    JINJA_TRY(Value right, Evaluate(expr->items[i], env));
    result = runtime_.Compare(expr->compare_ops[i], left, right);
    if (runtime_.failed()) return Value::Failed();
    left = std::move(right);
  }
  return Value::Bool(result);
}

Value Interpreter::EvaluateConcat(const Expr* expr, EnvObject& env) {
  Values parts;
  bool markup = false;
  for (const Expr* item : expr->items) {
    JINJA_TRY(Value value, Evaluate(item, env));
    markup = markup || (value.is_string() && value.as<StringObject>().markup);
    parts.push_back(std::move(value));
  }
  // Only where escaping is on by the source does one Markup make the whole Markup.
  markup = markup && expr->escape == EscapeMode::kOn;
  std::string text;
  for (const Value& part : parts) {
    if (markup) {
      JINJA_TRY(const Value escaped, Escape(runtime_, part));
      text += Text(escaped);
    } else if (!runtime_.AppendStr(part, text)) {
      return Value::Failed();
    }
    if (!runtime_.CheckBytes(static_cast<int64_t>(text.size()))) return Value::Failed();
  }
  return runtime_.String(std::move(text), markup);
}

Value Interpreter::EvaluateCondition(const Expr* expr, EnvObject& env) {
  JINJA_TRY(const Value test, Evaluate(expr->test, env));
  if (runtime_.Truthy(test)) return Evaluate(expr->left, env);
  if (expr->right != nullptr) return Evaluate(expr->right, env);
  return runtime_.UndefinedHint(fmt::format(
      "the inline if-expression on line {} evaluated to false and no else section was defined.", expr->line));
}

Value Interpreter::EvaluateGetItem(const Expr* expr, EnvObject& env) {
  JINJA_TRY(const Value object, Evaluate(expr->left, env));
  if (expr->right->kind != ExprKind::kSlice) {
    JINJA_TRY(const Value key, Evaluate(expr->right, env));
    return runtime_.GetItem(object, key);
  }
  Value bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    if (expr->right->items[i] == nullptr) continue;
    bounds[i] = Evaluate(expr->right->items[i], env);
    if (bounds[i].failed()) return Value::Failed();
  }
  return runtime_.Slice(object, bounds[0], bounds[1], bounds[2]);
}

bool Interpreter::EvaluateArguments(const CallArguments& call, EnvObject& env, Arguments* arguments) {
  for (const Expr* expr : call.positional) {
    Value value = Evaluate(expr, env);
    if (value.failed()) return false;
    arguments->positional.push_back(std::move(value));
  }
  for (const auto& [name, expr] : call.keywords) {
    Value value = Evaluate(expr, env);
    if (value.failed()) return false;
    arguments->keywords.emplace_back(name, std::move(value));
  }
  if (call.star != nullptr) {
    const Value more = Evaluate(call.star, env);
    if (more.failed() || !runtime_.Collect(more, &arguments->positional)) return false;
  }
  if (call.star_star != nullptr) {
    const Value more = Evaluate(call.star_star, env);
    if (more.failed()) return false;
    if (more.is_undefined()) return !runtime_.FailUndefined(more).failed();
    if (!more.is_dict()) {
      runtime_.TypeError(fmt::format("argument after ** must be a mapping, not {}", TypeName(more)));
      return false;
    }
    const size_t named = arguments->keywords.size();  // its own keys are all different
    for (const DictObject::Entry& entry : more.as<DictObject>().entries) {
      if (!runtime_.Step(1 + static_cast<int64_t>(named / 8))) return false;
      if (!entry.key.is_string()) {
        runtime_.TypeError("keywords must be strings");
        return false;
      }
      for (size_t i = 0; i < named; ++i) {
        const std::string& name = arguments->keywords[i].first;
        if (name != Text(entry.key)) continue;
        runtime_.TypeError(fmt::format("got multiple values for keyword argument '{}'", name));
        return false;
      }
      arguments->keywords.emplace_back(Text(entry.key), entry.value);
    }
  }
  return true;
}

Value Interpreter::EvaluateCall(const Expr* expr, EnvObject& env, const Value& caller) {
  const Expr* callee = expr->left;
  const Builtin* method = nullptr;
  Value target;
  if (callee->kind == ExprKind::kGetAttribute) {
    // A method call needs no bound-method object.
    JINJA_TRY(target, Evaluate(callee->left, env));
    method = FindMethod(target.kind(), callee->text);
    if (method == nullptr) {
      JINJA_TRY(target, runtime_.GetAttribute(target, callee->text));
    }
  } else {
    JINJA_TRY(target, Evaluate(callee, env));
  }
  Arguments arguments;
  if (!EvaluateArguments(expr->call, env, &arguments)) return Value::Failed();
  if (!caller.missing()) arguments.keywords.emplace_back("caller", caller);
  if (method != nullptr) return runtime_.InvokeBuiltin(*method, std::move(target), std::move(arguments));
  return runtime_.Invoke(target, std::move(arguments));
}

Value Interpreter::EvaluateFilter(const Expr* expr, EnvObject& env, const Value* captured) {
  Value value;
  if (expr->left == nullptr) {
    value = captured != nullptr ? *captured : Value::None();
  } else if (expr->left->kind == ExprKind::kFilter) {
    DepthGuard depth(runtime_);
    if (!depth.ok) return Value::Failed();
    JINJA_TRY(value, EvaluateFilter(expr->left, env, captured));
  } else {
    JINJA_TRY(value, Evaluate(expr->left, env));
  }
  Arguments arguments;
  if (!EvaluateArguments(expr->call, env, &arguments)) return Value::Failed();
  if (expr->builtin == nullptr) {
    return runtime_.Fail("TemplateRuntimeError", fmt::format("No filter named '{}' found.", expr->text));
  }
  return runtime_.InvokeBuiltin(*expr->builtin, std::move(value), std::move(arguments));
}

Value Interpreter::EvaluateTest(const Expr* expr, EnvObject& env) {
  JINJA_TRY(Value value, Evaluate(expr->left, env));
  Arguments arguments;
  if (!EvaluateArguments(expr->call, env, &arguments)) return Value::Failed();
  if (expr->builtin == nullptr) {
    return runtime_.Fail("TemplateRuntimeError", fmt::format("No test named '{}' found.", expr->text));
  }
  return runtime_.InvokeBuiltin(*expr->builtin, std::move(value), std::move(arguments));
}

}  // namespace nunspark::text::jinja
