// Whether a grammar allows a text, for tests.
#ifndef NUNSPARK_TEXT_GRAMMAR_MATCHING_TESTING_H_
#define NUNSPARK_TEXT_GRAMMAR_MATCHING_TESTING_H_

#include <string_view>

#include "text/grammar/automaton.h"
#include "text/grammar/gbnf.h"
#include "text/grammar/json_schema.h"
#include "text/grammar/matcher.h"

namespace nunspark::text::testing {

inline Result<Automaton> AutomatonOf(Grammar& grammar, const Result<ExprId>& body) {
  if (!body.ok()) return body.status();
  const RuleId root = grammar.NewRule("the output");
  grammar.Define(root, *body);
  return Automaton::Compile(grammar, root);
}

inline Result<Automaton> GbnfAutomaton(std::string_view source) {
  Grammar grammar;
  return AutomatonOf(grammar, AddGbnf(source, grammar));
}

inline Result<Automaton> SchemaAutomaton(std::string_view schema) {
  Grammar grammar;
  return AutomatonOf(grammar, AddJsonSchema(schema, grammar));
}

inline bool Matches(const Automaton& automaton, std::string_view text) {
  Matcher matcher(automaton);
  Matcher::State state = matcher.start();
  for (const char c : text) state = matcher.Step(state, static_cast<uint8_t>(c));
  return matcher.accepts(state);
}

inline std::string MessageOf(const Result<Automaton>& automaton) {
  return automaton.ok() ? "ok" : automaton.status().message();
}

}  // namespace nunspark::text::testing

#endif  // NUNSPARK_TEXT_GRAMMAR_MATCHING_TESTING_H_
