// JSON Schema as a grammar. docs/structured-output.md says what is honoured, narrowed and refused.
#ifndef NUNSPARK_TEXT_GRAMMAR_JSON_SCHEMA_H_
#define NUNSPARK_TEXT_GRAMMAR_JSON_SCHEMA_H_

#include <string_view>

#include "nunspark/status.h"
#include "text/grammar/grammar.h"

namespace nunspark::text {

// Adds what `schema`, the text of one, allows. Every text that matches is a value that the schema allows; the reverse
// holds but for what the document names.
// Errors: kInvalidArgument for what is no schema, kUnsupported for one that cannot be honoured, both naming keyword and
// place (a JSON pointer); kResourceExhausted for one that is too large.
Result<ExprId> AddJsonSchema(std::string_view schema, Grammar& grammar);

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_GRAMMAR_JSON_SCHEMA_H_
