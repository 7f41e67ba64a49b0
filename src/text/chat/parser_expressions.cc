#include <fmt/format.h>

#include <set>

#include "text/chat/parser_impl.h"

namespace nunspark::text::jinja {
namespace {

bool IsReserved(std::string_view name) {
  return name == "true" || name == "false" || name == "none" || name == "True" || name == "False" || name == "None";
}

}  // namespace

Expr* Parser::NewExpr(ExprKind kind, int line) {
  Expr* expr = &tree_.exprs.emplace_back(kind, line);
  expr->escape = escape_mode();
  return expr;
}

Expr* Parser::NewBinary(ExprKind kind, Expr* left, Expr* right, int line) {
  Expr* expr = NewExpr(kind, line);
  expr->left = left;
  expr->right = right;
  return expr;
}

Expr* Parser::Constant(Value value, int line) {
  Expr* expr = NewExpr(ExprKind::kConst, line);
  expr->constant = std::move(value);
  return expr;
}

template <typename T>
Value Parser::Keep(T* object) {
  tree_.constants.emplace_back(object);
  return Value(static_cast<Object*>(object));
}

bool Parser::MarkStored(Expr* target, NameUse use) {
  if (target->kind == ExprKind::kName) {
    target->use = use;
    if (IsReserved(target->text)) Fail("can't assign to 'name'");
    return !failed_;
  }
  if (target->kind == ExprKind::kTuple) {
    for (Expr* item : target->items) {
      if (!MarkStored(item, use)) return false;
    }
    return true;
  }
  Fail(target->kind == ExprKind::kConst ? "can't assign to 'const'" : "can't assign to this expression");
  return false;
}

Expr* Parser::Target(const Words& ends, bool with_namespace) {
  if (with_namespace && ahead().kind == TokenKind::kOperator && ahead().text == ".") {
    Expr* target = NewExpr(ExprKind::kNamespaceRef, current().line);
    if (!ExpectName(&target->text)) return nullptr;
    Skip();
    if (!ExpectName(&target->attribute)) return nullptr;
    return target;
  }
  Expr* target = Tuple(Conditional::kAllowed, ends, false, /*primaries_only=*/true);
  if (failed_ || !MarkStored(target, NameUse::kStore)) return nullptr;
  return target;
}

Expr* Parser::Tuple(Conditional conditional, const Words& ends, bool parenthesised, bool primaries_only) {
  const int line = current().line;
  std::vector<Expr*> items;
  bool is_tuple = false;
  while (!failed_) {
    if (!items.empty() && !ExpectOperator(",")) return nullptr;
    const TokenKind kind = current().kind;
    if (kind == TokenKind::kVariableEnd || kind == TokenKind::kBlockEnd || IsOperator(")") || IsAnyName(ends)) break;
    items.push_back(primaries_only ? Primary() : Expression(conditional));
    if (!IsOperator(",")) break;
    is_tuple = true;
  }
  if (failed_) return nullptr;
  if (!is_tuple) {
    if (!items.empty()) return items[0];
    if (!parenthesised) return Fail("Expected an expression, got " + Describe(current()));
  }
  Expr* tuple = NewExpr(ExprKind::kTuple, line);
  tuple->items = std::move(items);
  return tuple;
}

Expr* Parser::Expression(Conditional conditional) {
  Level level(*this);
  if (!level.ok) return nullptr;
  return conditional == Conditional::kAllowed ? Condition() : Or();
}

Expr* Parser::Condition() {
  Expr* expr = Or();
  while (!failed_ && IsName("if")) {
    Expr* condition = NewExpr(ExprKind::kCondition, current().line);
    Skip();
    condition->left = expr;
    condition->test = Or();
    if (SkipName("else")) {
      Level level(*this);
      if (!level.ok) return nullptr;
      condition->right = Condition();
    }
    expr = condition;
  }
  return failed_ ? nullptr : expr;
}

// Chains of one operator grow to the left without recursion here; each link counts as a level of the tree all the same.
Expr* Parser::Or() {
  Expr* left = And();
  while (!failed_ && IsName("or")) {
    const int line = current().line;
    Skip();
    left = NewBinary(ExprKind::kOr, left, And(), line);
  }
  return left;
}

Expr* Parser::And() {
  Expr* left = Not();
  while (!failed_ && IsName("and")) {
    const int line = current().line;
    Skip();
    left = NewBinary(ExprKind::kAnd, left, Not(), line);
  }
  return left;
}

Expr* Parser::Not() {
  if (!IsName("not")) return Comparison();
  Level level(*this);
  if (!level.ok) return nullptr;
  const int line = current().line;
  Skip();
  return NewBinary(ExprKind::kNot, Not(), nullptr, line);
}

Expr* Parser::Comparison() {
  const int line = current().line;
  Expr* left = Sum();
  Expr* comparison = nullptr;
  while (!failed_) {
    struct Op {
      std::string_view text;
      CompareOp op;
    };
    static constexpr Op kOps[] = {{"==", CompareOp::kEq}, {"!=", CompareOp::kNe}, {"<", CompareOp::kLt},
                                  {"<=", CompareOp::kLe}, {">", CompareOp::kGt},  {">=", CompareOp::kGe}};
    CompareOp found = CompareOp::kEq;
    bool any = false;
    for (const Op& op : kOps) {
      if (!IsOperator(op.text)) continue;
      found = op.op;
      any = true;
    }
    if (any) {
      Skip();
    } else if (SkipName("in")) {
      found = CompareOp::kIn;
    } else if (IsName("not") && AheadIsName("in")) {
      Skip();
      Skip();
      found = CompareOp::kNotIn;
    } else {
      break;
    }
    if (comparison == nullptr) comparison = NewBinary(ExprKind::kCompare, left, nullptr, line);
    comparison->compare_ops.push_back(found);
    comparison->items.push_back(Sum());
  }
  if (failed_) return nullptr;
  return comparison != nullptr ? comparison : left;
}

Expr* Parser::Sum() {
  Expr* left = Concat();
  while (!failed_ && (IsOperator("+") || IsOperator("-"))) {
    const BinaryOp op = IsOperator("+") ? BinaryOp::kAdd : BinaryOp::kSub;
    const int line = current().line;
    Skip();
    left = NewBinary(ExprKind::kBinary, left, Concat(), line);
    left->binary_op = op;
  }
  return left;
}

Expr* Parser::Concat() {
  Expr* first = Product();
  if (failed_ || !IsOperator("~")) return first;
  Expr* concat = NewExpr(ExprKind::kConcat, current().line);
  concat->items.push_back(first);
  while (!failed_ && SkipOperator("~")) concat->items.push_back(Product());
  return concat;
}

Expr* Parser::Product() {
  Expr* left = Power();
  while (!failed_ && (IsOperator("*") || IsOperator("/") || IsOperator("//") || IsOperator("%"))) {
    const std::string& text = current().text;
    const BinaryOp op = text == "*"    ? BinaryOp::kMul
                        : text == "/"  ? BinaryOp::kDiv
                        : text == "//" ? BinaryOp::kFloorDiv
                                       : BinaryOp::kMod;
    const int line = current().line;
    Skip();
    left = NewBinary(ExprKind::kBinary, left, Power(), line);
    left->binary_op = op;
  }
  return left;
}

Expr* Parser::Power() {
  Expr* left = Unary(true);
  while (!failed_ && IsOperator("**")) {
    const int line = current().line;
    Skip();
    left = NewBinary(ExprKind::kBinary, left, Unary(true), line);
    left->binary_op = BinaryOp::kPow;
  }
  return left;
}

Expr* Parser::Unary(bool with_filter) {
  Level level(*this);
  if (!level.ok) return nullptr;
  Expr* expr = nullptr;
  const int line = current().line;
  if (IsOperator("-") || IsOperator("+")) {
    const ExprKind kind = IsOperator("-") ? ExprKind::kNegate : ExprKind::kPlus;
    Skip();
    expr = NewBinary(kind, Unary(false), nullptr, line);
  } else {
    expr = Primary();
  }
  if (!failed_) expr = Postfix(expr);
  if (!failed_ && with_filter) expr = FilterExpression(expr);
  return failed_ ? nullptr : expr;
}

Expr* Parser::Primary() {
  const Token& token = current();
  const int line = token.line;
  switch (token.kind) {
    case TokenKind::kName: {
      const std::string name = token.text;
      Skip();
      if (name == "true" || name == "True") return Constant(Value::Bool(true), line);
      if (name == "false" || name == "False") return Constant(Value::Bool(false), line);
      if (name == "none" || name == "None") return Constant(Value::None(), line);
      Expr* expr = NewExpr(ExprKind::kName, line);
      expr->text = name;
      return expr;
    }
    case TokenKind::kString: {
      std::string text;
      for (; current().kind == TokenKind::kString; Skip()) text += current().text;
      return Constant(Keep(new StringObject(std::move(text))), line);
    }
    case TokenKind::kInteger: {
      BigInt number;
      if (!ParseInteger(token.text, 0, &number)) return Fail("integer literal of more than 4300 digits");
      Skip();
      if (auto small = number.ToInt64()) return Constant(Value::Int(*small), line);
      return Constant(Keep(new BigObject(number)), line);
    }
    case TokenKind::kFloat: {
      double number = 0;
      if (!ParseFloat(token.text, &number)) return Fail("malformed number");
      Skip();
      return Constant(Value::Float(number), line);
    }
    case TokenKind::kOperator:
      if (token.text == "(") {
        Level level(*this);
        if (!level.ok) return nullptr;
        Skip();
        Expr* expr = Tuple(Conditional::kAllowed, {}, /*parenthesised=*/true);
        return ExpectOperator(")") ? expr : nullptr;
      }
      if (token.text == "[") return ListLiteral();
      if (token.text == "{") return DictLiteral();
      return Fail("unexpected " + Describe(token));
    case TokenKind::kData:
    case TokenKind::kBlockBegin:
    case TokenKind::kBlockEnd:
    case TokenKind::kVariableBegin:
    case TokenKind::kVariableEnd:
    case TokenKind::kEnd: return Fail("unexpected " + Describe(token));
  }
  return Fail("unexpected token");
}

Expr* Parser::ListLiteral() {
  Expr* list = NewExpr(ExprKind::kList, current().line);
  Skip();
  while (!failed_ && !IsOperator("]")) {
    if (!list->items.empty() && !ExpectOperator(",")) return nullptr;
    if (IsOperator("]")) break;
    list->items.push_back(Expression());
  }
  return ExpectOperator("]") ? list : nullptr;
}

Expr* Parser::DictLiteral() {
  Expr* dict = NewExpr(ExprKind::kDict, current().line);
  Skip();
  while (!failed_ && !IsOperator("}")) {
    if (!dict->items.empty() && !ExpectOperator(",")) return nullptr;
    if (IsOperator("}")) break;
    dict->items.push_back(Expression());
    if (failed_ || !ExpectOperator(":")) return nullptr;
    dict->items.push_back(Expression());
  }
  return ExpectOperator("}") ? dict : nullptr;
}

Expr* Parser::Postfix(Expr* expr) {
  while (!failed_) {
    if (IsOperator(".") || IsOperator("[")) {
      expr = Subscript(expr);
    } else if (IsOperator("(")) {
      expr = CallOf(expr);
    } else {
      break;
    }
  }
  return expr;
}

Expr* Parser::FilterExpression(Expr* expr) {
  while (!failed_) {
    if (IsOperator("|")) {
      expr = Filter(expr, false);
    } else if (IsName("is")) {
      expr = Test(expr);
    } else if (IsOperator("(")) {
      expr = CallOf(expr);
    } else {
      break;
    }
  }
  return expr;
}

Expr* Parser::Subscript(Expr* expr) {
  const int line = current().line;
  if (SkipOperator(".")) {
    if (current().kind == TokenKind::kName) {
      Expr* attribute = NewBinary(ExprKind::kGetAttribute, expr, nullptr, line);
      attribute->text = current().text;
      // A constant string to use as a key: most attributes are items of a dict.
      attribute->constant = Keep(new StringObject(current().text));
      Skip();
      return attribute;
    }
    if (current().kind != TokenKind::kInteger) return Fail("expected name or number");
    return NewBinary(ExprKind::kGetItem, expr, Primary(), line);
  }
  Skip();
  std::vector<Expr*> keys;
  while (!failed_ && !IsOperator("]")) {
    if (!keys.empty() && !ExpectOperator(",")) return nullptr;
    keys.push_back(Subscribed());
  }
  if (!ExpectOperator("]")) return nullptr;
  if (keys.size() == 1) return NewBinary(ExprKind::kGetItem, expr, keys[0], line);
  Expr* tuple = NewExpr(ExprKind::kTuple, line);
  tuple->items = std::move(keys);
  return NewBinary(ExprKind::kGetItem, expr, tuple, line);
}

Expr* Parser::Subscribed() {
  const int line = current().line;
  Expr* start = nullptr;
  if (!IsOperator(":")) {
    start = Expression();
    if (failed_ || !IsOperator(":")) return start;
  }
  Skip();
  Expr* slice = NewExpr(ExprKind::kSlice, line);
  slice->items = {start, nullptr, nullptr};
  auto at_end = [this] { return IsOperator(":") || IsOperator("]") || IsOperator(","); };
  if (!at_end()) slice->items[1] = Expression();
  if (!failed_ && SkipOperator(":") && !at_end()) slice->items[2] = Expression();
  return failed_ ? nullptr : slice;
}

bool Parser::CallParentheses(CallArguments* call) {
  if (!ExpectOperator("(")) return false;
  bool first = true;
  auto ensure = [this](bool condition) {
    if (!condition) Fail("invalid syntax for function call expression");
    return condition;
  };
  std::set<std::string> names;
  while (!failed_ && !IsOperator(")")) {
    if (!first) {
      if (!ExpectOperator(",")) return false;
      if (IsOperator(")")) break;
    }
    first = false;
    if (IsOperator("*")) {
      if (!ensure(call->star == nullptr && call->star_star == nullptr)) return false;
      Skip();
      call->star = Expression();
    } else if (IsOperator("**")) {
      if (!ensure(call->star_star == nullptr)) return false;
      Skip();
      call->star_star = Expression();
    } else if (current().kind == TokenKind::kName && ahead().kind == TokenKind::kOperator && ahead().text == "=") {
      if (!ensure(call->star_star == nullptr)) return false;
      std::string name = current().text;
      if (!names.insert(name).second) Fail("keyword argument repeated: " + name, "SyntaxError");
      Skip();
      Skip();
      call->keywords.emplace_back(std::move(name), Expression());
    } else {
      if (!ensure(call->star == nullptr && call->star_star == nullptr && call->keywords.empty())) return false;
      call->positional.push_back(Expression());
    }
  }
  return ExpectOperator(")");
}

Expr* Parser::CallOf(Expr* expr) {
  Expr* call = NewBinary(ExprKind::kCall, expr, nullptr, current().line);
  return CallParentheses(&call->call) ? call : nullptr;
}

Expr* Parser::Filter(Expr* expr, bool name_is_next) {
  while (!failed_ && (name_is_next || IsOperator("|"))) {
    if (!name_is_next) Skip();
    name_is_next = false;
    Expr* filter = NewBinary(ExprKind::kFilter, expr, nullptr, current().line);
    if (!ExpectName(&filter->text)) return nullptr;
    while (SkipOperator(".")) {
      std::string part;
      if (!ExpectName(&part)) return nullptr;
      filter->text += "." + part;
    }
    if (IsOperator("(") && !CallParentheses(&filter->call)) return nullptr;
    filter->builtin = FindFilter(filter->text);
    expr = filter;
  }
  return expr;
}

Expr* Parser::Test(Expr* expr) {
  const int line = current().line;
  Skip();
  const bool negated = SkipName("not");
  Expr* test = NewBinary(ExprKind::kTest, expr, nullptr, line);
  if (!ExpectName(&test->text)) return nullptr;
  while (SkipOperator(".")) {
    std::string part;
    if (!ExpectName(&part)) return nullptr;
    test->text += "." + part;
  }
  const TokenKind kind = current().kind;
  if (IsOperator("(")) {
    if (!CallParentheses(&test->call)) return nullptr;
  } else if ((kind == TokenKind::kName || kind == TokenKind::kString || kind == TokenKind::kInteger ||
              kind == TokenKind::kFloat || IsOperator("[") || IsOperator("{")) &&
             !IsName("else") && !IsName("or") && !IsName("and")) {
    if (IsName("is")) return Fail("You cannot chain multiple tests with is");
    Expr* argument = Primary();
    if (!failed_) argument = Postfix(argument);
    test->call.positional.push_back(argument);
  }
  if (failed_) return nullptr;
  test->builtin = FindTest(test->text);
  return negated ? NewBinary(ExprKind::kNot, test, nullptr, line) : test;
}

}  // namespace nunspark::text::jinja
