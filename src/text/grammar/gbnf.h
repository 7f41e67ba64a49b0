// Grammars in llama.cpp's notation (GBNF).
//
//   root  ::= "yes" | list            # the output
//   list  ::= item ("," item){0,5}
//   item  ::= [a-z0-9_]+ | [^\x00-\x7F]
//
// Rule names of letters, digits, '-' and '_'; strings and classes with the escapes \n \r \t \\ \" \] \[ \xHH \uHHHH
// \UHHHHHHHH; '.' for any character; groups; * + ? {m} {m,} {m,n}; comments. A rule goes on until the next `name ::=`.
#ifndef NUNSPARK_TEXT_GRAMMAR_GBNF_H_
#define NUNSPARK_TEXT_GRAMMAR_GBNF_H_

#include <string_view>

#include "nunspark/status.h"
#include "text/grammar/grammar.h"

namespace nunspark::text {

// Adds the rules of `source` to `grammar` and gives that of `root`.
// Errors: kInvalidArgument with line, column and what was expected; kResourceExhausted beyond the limits.
Result<ExprId> AddGbnf(std::string_view source, Grammar& grammar);

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_GRAMMAR_GBNF_H_
