// Template source to tokens, with Jinja2's white-space rules (trim_blocks and lstrip_blocks on, one trailing newline
// dropped).
#ifndef NUNSPARK_TEXT_CHAT_LEXER_H_
#define NUNSPARK_TEXT_CHAT_LEXER_H_

#include <string>
#include <string_view>
#include <vector>

#include "text/chat/chat_template.h"

namespace nunspark::text::jinja {

enum class TokenKind : uint8_t {
  kData,        // text to print
  kBlockBegin,  // {%
  kBlockEnd,
  kVariableBegin,  // {{
  kVariableEnd,
  kName,
  kString,   // text is unescaped
  kInteger,  // text is as written, without underscores
  kFloat,
  kOperator,  // text is the operator
  kEnd,
};

struct Token {
  TokenKind kind;
  std::string text;
  int line;
};

// Splits `source` (UTF-8). False with *error filled (TemplateSyntaxError). The last token is kEnd.
bool Tokenize(std::string_view source, std::vector<Token>* tokens, TemplateError* error);

}  // namespace nunspark::text::jinja

#endif  // NUNSPARK_TEXT_CHAT_LEXER_H_
