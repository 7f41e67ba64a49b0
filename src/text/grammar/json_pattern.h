// Regular expressions of JSON Schema ("pattern") as expressions over the characters of a JSON string.
//
// The part of ECMA-262 that is known: characters, '.', classes, \d \D \w \W \s \S, \t \n \r \f \v \0 \xHH \uHHHH,
// groups without names, '|', * + ? {m} {m,} {m,n} also when lazy, and '^' and '$' at the ends of the whole or of its
// alternatives. Not: look-around, back-references, \b, \p, anchors in groups. As in the standard, a pattern without
// anchors may match anywhere in the string. Each string is written in one way: short escapes where JSON has them, and
// never \u.
#ifndef NUNSPARK_TEXT_GRAMMAR_JSON_PATTERN_H_
#define NUNSPARK_TEXT_GRAMMAR_JSON_PATTERN_H_

#include <string_view>

#include "nunspark/status.h"
#include "text/grammar/grammar.h"
#include "text/grammar/json_grammar.h"

namespace nunspark::text {

struct JsonPattern {
  ExprId expr;  // between the quotes
  // Characters that its strings have; most is kUnlimited for no end.
  uint32_t least;
  uint32_t most;
};

// Errors: kUnsupported for what is not known, kInvalidArgument for what is no pattern; both with the column.
Result<JsonPattern> AddPattern(std::string_view pattern, JsonGrammar& json, Grammar& grammar);

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_GRAMMAR_JSON_PATTERN_H_
