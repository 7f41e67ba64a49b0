// Tokens to syntax tree: Jinja2's grammar with break, continue and `generation` blocks.
#ifndef NUNSPARK_TEXT_CHAT_PARSER_H_
#define NUNSPARK_TEXT_CHAT_PARSER_H_

#include <memory>
#include <string_view>

#include "text/chat/ast.h"

namespace nunspark::text::jinja {

// Parses and resolves `source`. nullptr with *error filled: TemplateSyntaxError, TemplateAssertionError (unknown filter
// or test, a block defined twice), SyntaxError (break outside a loop), LimitError (nested too deeply).
std::unique_ptr<Template> ParseTemplate(std::string_view source, TemplateError* error);

// The next step of ParseTemplate: gives every variable its slot (scope.cc). False with *error filled.
bool ResolveScopes(Template& tree, TemplateError* error);

}  // namespace nunspark::text::jinja

#endif  // NUNSPARK_TEXT_CHAT_PARSER_H_
