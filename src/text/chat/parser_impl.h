// The recursive-descent parser, split over parser.cc (statements) and parser_expressions.cc.
#ifndef NUNSPARK_TEXT_CHAT_PARSER_IMPL_H_
#define NUNSPARK_TEXT_CHAT_PARSER_IMPL_H_

#include <string>
#include <string_view>
#include <vector>

#include "text/chat/lexer.h"
#include "text/chat/parser.h"

namespace nunspark::text::jinja {

// After the first error every method returns at once: the position is then at the end.
class Parser {
 public:
  Parser(std::vector<Token> tokens, Template& tree, TemplateError& error)
      : tokens_(std::move(tokens)), tree_(tree), error_(error) {}
  bool Run();

 private:
  enum class Conditional : uint8_t { kAllowed, kNotAllowed };
  using Words = std::vector<std::string_view>;

  // --- Tokens ---
  const Token& current() const { return tokens_[position_]; }
  const Token& ahead() const { return tokens_[std::min(position_ + 1, tokens_.size() - 1)]; }
  bool IsName(std::string_view word) const { return current().kind == TokenKind::kName && current().text == word; }
  bool IsOperator(std::string_view op) const { return current().kind == TokenKind::kOperator && current().text == op; }
  bool AheadIsName(std::string_view word) const { return ahead().kind == TokenKind::kName && ahead().text == word; }
  bool IsAnyName(const Words& words) const;
  void Skip() {
    if (position_ + 1 < tokens_.size()) ++position_;
  }
  bool SkipName(std::string_view word);
  bool SkipOperator(std::string_view op);
  bool ExpectOperator(std::string_view op);
  bool ExpectName(std::string* text);
  bool ExpectKind(TokenKind kind);
  static std::string Describe(const Token& token);
  static std::string Describe(TokenKind kind);
  Expr* Fail(std::string message, std::string_view type = "TemplateSyntaxError");
  bool failed() const { return failed_; }

  // --- Statements (parser.cc) ---
  // Until a block whose tag is in `ends` (which is left current) or the end of the template.
  std::vector<Stmt*> Body(const Words& ends);
  // After a tag's own expressions: its end, then its body, up to one of `ends`.
  std::vector<Stmt*> Block(const Words& ends);
  Stmt* Statement();
  Stmt* For();
  Stmt* If();
  Stmt* Set();
  Stmt* Macro();
  Stmt* CallBlock();
  Stmt* Generation();
  Stmt* FilterBlock();
  Stmt* With();
  Stmt* Autoescape();
  Stmt* NamedBlock();
  Stmt* Print();
  Stmt* Include();
  Stmt* Import();
  Stmt* FromImport();
  void ImportContext();
  void Signature(Stmt* stmt);
  void UnknownTag(const std::string& name);

  // --- Expressions (parser_expressions.cc) ---
  Expr* Target(const Words& ends, bool with_namespace);
  bool MarkStored(Expr* target, NameUse use);
  Expr* Tuple(Conditional conditional, const Words& ends = {}, bool parenthesised = false, bool primaries_only = false);
  Expr* Expression(Conditional conditional = Conditional::kAllowed);
  Expr* Condition();
  Expr* Or();
  Expr* And();
  Expr* Not();
  Expr* Comparison();
  Expr* Sum();
  Expr* Concat();
  Expr* Product();
  Expr* Power();
  Expr* Unary(bool with_filter);
  Expr* Primary();
  Expr* ListLiteral();
  Expr* DictLiteral();
  Expr* Postfix(Expr* expr);
  Expr* FilterExpression(Expr* expr);
  Expr* Subscript(Expr* expr);
  Expr* Subscribed();
  Expr* CallOf(Expr* expr);
  Expr* Filter(Expr* expr, bool name_is_next);
  Expr* Test(Expr* expr);
  bool CallParentheses(CallArguments* call);

  Expr* NewExpr(ExprKind kind, int line);
  Expr* NewBinary(ExprKind kind, Expr* left, Expr* right, int line);
  Expr* Constant(Value value, int line);
  Stmt* NewStmt(StmtKind kind, int line);
  void AddPrinted(Expr* expr, Stmt* output);
  EscapeMode escape_mode() const {
    return escape_varies_ ? EscapeMode::kWhenPrinting : escapes_ ? EscapeMode::kOn : EscapeMode::kOff;
  }
  template <typename T>
  Value Keep(T* object);

  // Counts one level of nesting while it lives.
  class Level {
   public:
    explicit Level(Parser& parser);
    ~Level() { --parser_.level_; }
    const bool ok;

   private:
    Parser& parser_;
  };

  std::vector<Token> tokens_;
  Template& tree_;
  TemplateError& error_;
  size_t position_ = 0;
  int level_ = 0;
  bool failed_ = false;
  bool escapes_ = false;        // by the innermost autoescape block whose condition is a constant
  bool escape_varies_ = false;  // some block around has another condition
  std::vector<std::string> open_tags_;
  std::vector<Words> awaited_ends_;
};

}  // namespace nunspark::text::jinja

#endif  // NUNSPARK_TEXT_CHAT_PARSER_IMPL_H_
