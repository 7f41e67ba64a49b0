#include "text/chat/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "text/chat/parser_impl.h"
#include "text/chat/unicode.h"

namespace nunspark::text::jinja {
namespace {

// A pair of brackets takes three levels. Far more than templates need, little enough for any stack.
constexpr int kMaxLevel = 400;

// The longest published template has some 30 KB.
constexpr size_t kMaxSourceBytes = 256 << 10;

// Whether Jinja2's optimizer knows the value when it compiles an autoescape block with a condition at run time: filters
// and tests are not evaluated there. Long chains of operators are deep trees, so this does not call itself.
bool IsConstant(const Expr& root) {
  std::vector<const Expr*> open = {&root};
  const auto add_items = [&](const Expr& expr) {
    std::copy_if(expr.items.begin(), expr.items.end(), std::back_inserter(open),
                 [](const Expr* item) { return item != nullptr; });
  };
  while (!open.empty()) {
    const Expr& expr = *open.back();
    open.pop_back();
    switch (expr.kind) {
      case ExprKind::kText:
      case ExprKind::kConst: break;
      case ExprKind::kTuple:
      case ExprKind::kList:
      case ExprKind::kDict:
      case ExprKind::kConcat:
      case ExprKind::kSlice: add_items(expr); break;
      case ExprKind::kNot:
      case ExprKind::kNegate:
      case ExprKind::kPlus:
      case ExprKind::kGetAttribute: open.push_back(expr.left); break;
      case ExprKind::kBinary:
      case ExprKind::kAnd:
      case ExprKind::kOr:
      case ExprKind::kGetItem: open.insert(open.end(), {expr.left, expr.right}); break;
      case ExprKind::kCompare:
        open.push_back(expr.left);
        add_items(expr);
        break;
      case ExprKind::kCondition:
        if (expr.right == nullptr) return false;
        open.insert(open.end(), {expr.test, expr.left, expr.right});
        break;
      case ExprKind::kName:
      case ExprKind::kNamespaceRef:
      case ExprKind::kCall:
      case ExprKind::kFilter:
      case ExprKind::kTest: return false;
    }
  }
  return true;
}

// The truth of a literal; nullopt for other expressions.
std::optional<bool> ConstantTruth(const Expr& expr) {
  if (expr.kind != ExprKind::kConst) return std::nullopt;
  const Value& value = expr.constant;
  switch (value.kind()) {
    case Kind::kNone: return false;
    case Kind::kBool:
    case Kind::kInt: return value.small_int() != 0;
    case Kind::kFloat: return value.float_value() != 0;
    case Kind::kString: return !Text(value).empty();
    default: return std::nullopt;
  }
}

}  // namespace

std::unique_ptr<Template> ParseTemplate(std::string_view source, TemplateError* error) {
  *error = {};
  if (source.size() > kMaxSourceBytes) {
    *error = {"LimitError",
              fmt::format("a template of {} bytes is above the limit of {}", source.size(), kMaxSourceBytes)};
    return nullptr;
  }
  std::vector<Token> tokens;
  if (!Tokenize(source, &tokens, error)) return nullptr;
  auto tree = std::make_unique<Template>();
  if (!Parser(std::move(tokens), *tree, *error).Run()) return nullptr;
  if (!ResolveScopes(*tree, error)) return nullptr;
  return tree;
}

Parser::Level::Level(Parser& parser) : ok(++parser.level_ <= kMaxLevel), parser_(parser) {
  if (!ok) parser.Fail(fmt::format("blocks or expressions are nested deeper than {} levels", kMaxLevel), "LimitError");
}

bool Parser::Run() {
  tree_.body = Body({});
  if (!failed_ && current().kind != TokenKind::kEnd) Fail("unexpected " + Describe(current()));
  return !failed_;
}

// --- Tokens ---

bool Parser::IsAnyName(const Words& words) const {
  return current().kind == TokenKind::kName && std::find(words.begin(), words.end(), current().text) != words.end();
}

bool Parser::SkipName(std::string_view word) {
  if (!IsName(word)) return false;
  Skip();
  return true;
}

bool Parser::SkipOperator(std::string_view op) {
  if (!IsOperator(op)) return false;
  Skip();
  return true;
}

bool Parser::ExpectOperator(std::string_view op) {
  if (SkipOperator(op)) return true;
  Fail(fmt::format("expected token '{}', got {}", op, Describe(current())));
  return false;
}

bool Parser::ExpectName(std::string* text) {
  if (current().kind != TokenKind::kName) {
    Fail("expected token 'name', got " + Describe(current()));
    return false;
  }
  *text = current().text;
  Skip();
  return true;
}

bool Parser::ExpectKind(TokenKind kind) {
  if (current().kind == kind) {
    Skip();
    return true;
  }
  Fail(fmt::format("expected token {}, got {}", Describe(kind), Describe(current())));
  return false;
}

std::string Parser::Describe(TokenKind kind) {
  switch (kind) {
    case TokenKind::kData: return "'template data / text'";
    case TokenKind::kBlockBegin: return "'begin of statement block'";
    case TokenKind::kBlockEnd: return "'end of statement block'";
    case TokenKind::kVariableBegin: return "'begin of print statement'";
    case TokenKind::kVariableEnd: return "'end of print statement'";
    case TokenKind::kName: return "'name'";
    case TokenKind::kString: return "'string'";
    case TokenKind::kInteger: return "'integer'";
    case TokenKind::kFloat: return "'float'";
    case TokenKind::kOperator: return "'operator'";
    case TokenKind::kEnd: return "'end of template'";
  }
  return "'token'";
}

std::string Parser::Describe(const Token& token) {
  const bool has_text = token.kind == TokenKind::kName || token.kind == TokenKind::kOperator;
  return has_text ? "'" + token.text + "'" : Describe(token.kind);
}

Expr* Parser::Fail(std::string message, std::string_view type) {
  if (!failed_) {
    failed_ = true;
    error_ = {std::string(type), fmt::format("{} (line {})", message, current().line)};
    position_ = tokens_.size() - 1;
  }
  return nullptr;
}

void Parser::UnknownTag(const std::string& name) {
  std::string message =
      name.empty() ? "Unexpected end of template." : fmt::format("Encountered unknown tag '{}'.", name);
  if (!awaited_ends_.empty()) {
    std::string ends;
    for (std::string_view end : awaited_ends_.back()) ends += fmt::format("{}'{}'", ends.empty() ? "" : " or ", end);
    message += fmt::format(" Jinja was looking for the following tags: {}.", ends);
  }
  if (!open_tags_.empty()) {
    message += fmt::format(" The innermost block that needs to be closed is '{}'.", open_tags_.back());
  }
  Fail(message);
}

Stmt* Parser::NewStmt(StmtKind kind, int line) {
  Stmt* stmt = &tree_.stmts.emplace_back(kind, line);
  stmt->escape = escape_mode();
  return stmt;
}

// --- Statements ---

std::vector<Stmt*> Parser::Body(const Words& ends) {
  std::vector<Stmt*> body;
  Level level(*this);
  if (!level.ok) return body;
  if (!ends.empty()) awaited_ends_.push_back(ends);
  auto output = [&]() -> Stmt* {
    if (body.empty() || body.back()->kind != StmtKind::kOutput) {
      body.push_back(NewStmt(StmtKind::kOutput, current().line));
    }
    return body.back();
  };
  bool at_end = false;
  while (!failed_ && !at_end && current().kind != TokenKind::kEnd) {
    const Token& token = current();
    if (token.kind == TokenKind::kData) {
      Expr* text = NewExpr(ExprKind::kText, token.line);
      text->text = token.text;
      output()->exprs.push_back(text);
      Skip();
    } else if (token.kind == TokenKind::kVariableBegin) {
      Skip();
      Expr* expr = Tuple(Conditional::kAllowed);
      if (expr != nullptr && ExpectKind(TokenKind::kVariableEnd)) AddPrinted(expr, output());
    } else if (token.kind == TokenKind::kBlockBegin) {
      Skip();
      if (IsAnyName(ends)) {
        at_end = true;
        continue;
      }
      Stmt* stmt = Statement();
      if (stmt != nullptr && ExpectKind(TokenKind::kBlockEnd)) body.push_back(stmt);
    } else {
      Fail("unexpected " + Describe(token));
    }
  }
  if (!failed_ && !at_end && !ends.empty()) UnknownTag("");
  if (!ends.empty()) awaited_ends_.pop_back();
  return body;
}

std::vector<Stmt*> Parser::Block(const Words& ends) {
  SkipOperator(":");  // allowed before a body, as in Python
  if (!ExpectKind(TokenKind::kBlockEnd)) return {};
  return Body(ends);
}

Stmt* Parser::Statement() {
  const Token& token = current();
  if (token.kind != TokenKind::kName) {
    Fail("tag name expected");
    return nullptr;
  }
  struct Tag {
    std::string_view name;
    Stmt* (Parser::*parse)();
  };
  static constexpr Tag kTags[] = {
      {"for", &Parser::For},
      {"if", &Parser::If},
      {"set", &Parser::Set},
      {"macro", &Parser::Macro},
      {"call", &Parser::CallBlock},
      {"generation", &Parser::Generation},
      {"filter", &Parser::FilterBlock},
      {"with", &Parser::With},
      {"autoescape", &Parser::Autoescape},
      {"block", &Parser::NamedBlock},
      {"print", &Parser::Print},
      {"include", &Parser::Include},
      {"import", &Parser::Import},
      {"from", &Parser::FromImport},
  };
  const std::string name = token.text;
  const int line = token.line;
  for (const Tag& tag : kTags) {
    if (tag.name != name) continue;
    open_tags_.push_back(name);
    Stmt* stmt = (this->*tag.parse)();
    open_tags_.pop_back();
    return failed_ ? nullptr : stmt;
  }
  if (name == "break" || name == "continue") {
    Skip();
    return NewStmt(name == "break" ? StmtKind::kBreak : StmtKind::kContinue, line);
  }
  if (name == "extends") {
    Skip();
    Stmt* stmt = NewStmt(StmtKind::kExtends, line);
    stmt->value = Expression();
    return stmt;
  }
  UnknownTag(name);
  return nullptr;
}

Stmt* Parser::For() {
  Stmt* stmt = NewStmt(StmtKind::kFor, current().line);
  Skip();
  stmt->target = Target({"in"}, false);
  if (failed_) return nullptr;
  if (!SkipName("in")) {
    Fail("expected token 'in', got " + Describe(current()));
    return nullptr;
  }
  stmt->value = Tuple(Conditional::kNotAllowed, {"recursive"});
  if (SkipName("if")) stmt->test = Expression();
  stmt->recursive = SkipName("recursive");
  stmt->body = Block({"endfor", "else"});
  if (failed_) return nullptr;
  const bool has_else = IsName("else");
  Skip();
  if (has_else) {
    stmt->else_body = Block({"endfor"});
    Skip();
  }
  return stmt;
}

Stmt* Parser::If() {
  Stmt* stmt = NewStmt(StmtKind::kIf, current().line);
  Skip();
  Stmt* branch = stmt;
  while (!failed_) {
    branch->test = Tuple(Conditional::kNotAllowed);
    branch->body = Block({"elif", "else", "endif"});
    if (failed_) return nullptr;
    const std::string end = current().text;
    Skip();
    if (end == "elif") {
      branch = NewStmt(StmtKind::kIf, current().line);
      stmt->elifs.push_back(branch);
      continue;
    }
    if (end == "else") {
      stmt->else_body = Block({"endif"});
      Skip();
    }
    break;
  }
  return stmt;
}

Stmt* Parser::Set() {
  const int line = current().line;
  Skip();
  Expr* target = Target({}, true);
  if (failed_) return nullptr;
  if (SkipOperator("=")) {
    Stmt* stmt = NewStmt(StmtKind::kSet, line);
    stmt->target = target;
    stmt->value = Tuple(Conditional::kAllowed);
    return stmt;
  }
  Stmt* stmt = NewStmt(StmtKind::kSetBlock, line);
  stmt->target = target;
  stmt->filter = Filter(nullptr, false);
  stmt->body = Block({"endset"});
  Skip();
  return stmt;
}

void Parser::Signature(Stmt* stmt) {
  if (!ExpectOperator("(")) return;
  while (!failed_ && !IsOperator(")")) {
    if (!stmt->macro.parameter_names.empty() && !ExpectOperator(",")) return;
    std::string name;
    if (!ExpectName(&name)) return;
    if (name == "true" || name == "false" || name == "none" || name == "True" || name == "False" || name == "None") {
      Fail("can't assign to 'name'");
      return;
    }
    stmt->macro.parameter_names.push_back(std::move(name));
    if (SkipOperator("=")) {
      stmt->macro.defaults.push_back(Expression());
    } else if (!stmt->macro.defaults.empty()) {
      Fail("non-default argument follows default argument");
    }
  }
  ExpectOperator(")");
}

Stmt* Parser::Macro() {
  Stmt* stmt = NewStmt(StmtKind::kMacro, current().line);
  Skip();
  if (!ExpectName(&stmt->text)) return nullptr;
  stmt->macro.name = stmt->text;
  Signature(stmt);
  stmt->body = Block({"endmacro"});
  Skip();
  return stmt;
}

Stmt* Parser::CallBlock() {
  Stmt* stmt = NewStmt(StmtKind::kCallBlock, current().line);
  Skip();
  stmt->macro.anonymous = true;
  if (IsOperator("(")) Signature(stmt);
  stmt->value = Expression();
  if (failed_) return nullptr;
  if (stmt->value->kind != ExprKind::kCall) {
    Fail("expected call");
    return nullptr;
  }
  stmt->body = Block({"endcall"});
  Skip();
  return stmt;
}

// transformers' extension: a call block of a function that returns what its caller renders.
Stmt* Parser::Generation() {
  Stmt* stmt = NewStmt(StmtKind::kCallBlock, current().line);
  Skip();
  stmt->macro.anonymous = true;
  stmt->body = Block({"endgeneration"});
  Skip();
  return stmt;
}

Stmt* Parser::FilterBlock() {
  Stmt* stmt = NewStmt(StmtKind::kFilterBlock, current().line);
  Skip();
  stmt->filter = Filter(nullptr, true);
  stmt->body = Block({"endfilter"});
  Skip();
  return stmt;
}

Stmt* Parser::With() {
  Stmt* stmt = NewStmt(StmtKind::kWith, current().line);
  Skip();
  while (!failed_ && current().kind != TokenKind::kBlockEnd) {
    if (!stmt->targets.empty() && !ExpectOperator(",")) return nullptr;
    Expr* target = Target({}, false);
    if (failed_ || !MarkStored(target, NameUse::kParameter) || !ExpectOperator("=")) return nullptr;
    stmt->targets.push_back(target);
    stmt->exprs.push_back(Expression());
  }
  stmt->body = Block({"endwith"});
  Skip();
  return stmt;
}

Stmt* Parser::Autoescape() {
  Stmt* stmt = NewStmt(StmtKind::kAutoescape, current().line);
  Skip();
  stmt->value = Expression();
  const bool outer_escapes = escapes_, outer_varies = escape_varies_;
  if (!failed_) {
    const std::optional<bool> on = ConstantTruth(*stmt->value);
    escapes_ = on.value_or(escapes_);
    escape_varies_ = escape_varies_ || !on.has_value();
  }
  stmt->body = Block({"endautoescape"});
  escapes_ = outer_escapes;
  escape_varies_ = outer_varies;
  Skip();
  return stmt;
}

Stmt* Parser::NamedBlock() {
  Stmt* stmt = NewStmt(StmtKind::kBlock, current().line);
  Skip();
  if (!ExpectName(&stmt->text)) return nullptr;
  stmt->scoped = SkipName("scoped");
  stmt->required = SkipName("required");
  if (IsOperator("-")) {
    Fail(
        "Block names in Jinja have to be valid Python identifiers and may not contain hyphens, use an underscore "
        "instead.");
    return nullptr;
  }
  // A block is a function of its own, as if it stood outside of everything.
  const bool outer_escapes = std::exchange(escapes_, false), outer_varies = std::exchange(escape_varies_, false);
  stmt->body = Block({"endblock"});
  escapes_ = outer_escapes;
  escape_varies_ = outer_varies;
  Skip();
  SkipName(stmt->text);
  if (stmt->required) {
    for (const Stmt* child : stmt->body) {
      for (const Expr* expr : child->exprs) {
        const bool blank = expr->kind == ExprKind::kText && StripLeft(expr->text, IsSpace).empty();
        if (!blank) Fail("Required blocks can only contain comments or whitespace");
      }
      if (child->kind != StmtKind::kOutput) Fail("Required blocks can only contain comments or whitespace");
    }
  }
  return stmt;
}

void Parser::AddPrinted(Expr* expr, Stmt* output) {
  // Constants are escaped when the template is compiled, which is why conditions at run time do not reach them.
  if (expr->escape == EscapeMode::kWhenPrinting && IsConstant(*expr))
    expr->escape = escapes_ ? EscapeMode::kOn : EscapeMode::kOff;
  output->exprs.push_back(expr);
}

Stmt* Parser::Print() {
  Stmt* stmt = NewStmt(StmtKind::kOutput, current().line);
  Skip();
  while (!failed_ && current().kind != TokenKind::kBlockEnd) {
    if (!stmt->exprs.empty() && !ExpectOperator(",")) return nullptr;
    Expr* expr = Expression();
    if (!failed_) AddPrinted(expr, stmt);
  }
  return stmt;
}

void Parser::ImportContext() {
  if ((IsName("with") || IsName("without")) && AheadIsName("context")) {
    Skip();
    Skip();
  }
}

Stmt* Parser::Include() {
  Stmt* stmt = NewStmt(StmtKind::kImport, current().line);
  Skip();
  stmt->value = Expression();
  if (IsName("ignore") && AheadIsName("missing")) {
    Skip();
    Skip();
  }
  ImportContext();
  return stmt;
}

Stmt* Parser::Import() {
  Stmt* stmt = NewStmt(StmtKind::kImport, current().line);
  Skip();
  stmt->value = Expression();
  if (!failed_ && !SkipName("as")) Fail("expected token 'as', got " + Describe(current()));
  std::string name;
  if (failed_ || !ExpectName(&name)) return nullptr;
  stmt->names.push_back(name);
  ImportContext();
  return stmt;
}

Stmt* Parser::FromImport() {
  Stmt* stmt = NewStmt(StmtKind::kImport, current().line);
  Skip();
  stmt->value = Expression();
  if (!failed_ && !SkipName("import")) Fail("expected token 'import', got " + Describe(current()));
  while (!failed_) {
    if (!stmt->names.empty() && !ExpectOperator(",")) return nullptr;
    if ((IsName("with") || IsName("without")) && AheadIsName("context")) {
      ImportContext();
      break;
    }
    std::string name;
    if (!ExpectName(&name)) return nullptr;
    if (name[0] == '_') {
      Fail("names starting with an underline can not be imported", "TemplateAssertionError");
      return nullptr;
    }
    if (SkipName("as") && !ExpectName(&name)) return nullptr;
    stmt->names.push_back(name);
    if ((IsName("with") || IsName("without")) && AheadIsName("context")) {
      ImportContext();
      break;
    }
    if (!IsOperator(",")) break;
  }
  return stmt;
}

}  // namespace nunspark::text::jinja
