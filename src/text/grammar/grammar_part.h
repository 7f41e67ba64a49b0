// What an output shall look like, put together from texts, schemas and grammars: the input of CompiledGrammar.
//
// A tool call that the model may make, as Qwen writes it:
//
//   using P = GrammarPart;
//   const P call = P::OneOf({P::Sequence({P::Literal("\n{\"name\": \"weather\", \"arguments\": "),
//                                         P::JsonSchema(weather_parameters), P::Literal("}\n</tool_call>")}),
//                            ...});
//   P::Sequence({P::Repeat(P::Sequence({P::TextUntil("<tool_call>"), call}), 0, kUnlimited),
//                P::TextWithout("<tool_call>")});
//
// One that it must make: P::Sequence({P::Literal("<tool_call>"), call}).
#ifndef NUNSPARK_TEXT_GRAMMAR_GRAMMAR_PART_H_
#define NUNSPARK_TEXT_GRAMMAR_GRAMMAR_PART_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "nunspark/status.h"
#include "text/grammar/grammar.h"
#include "text/grammar/grammar_vocabulary.h"

namespace nunspark::text {

struct GrammarPart {
  enum class Kind : uint8_t {
    kLiteral,
    kJsonSchema,
    kJsonObject,
    kGbnf,
    kTextUntil,
    kTextWithout,
    kSequence,
    kOneOf,
    kRepeat
  };

  // `text` as it stands. The special tokens that occur in it are those tokens ("[TOOL_CALLS]").
  static GrammarPart Literal(std::string text) { return {Kind::kLiteral, std::move(text)}; }
  // JSON that a schema (JSON text) allows; docs/structured-output.md says what schemas may hold.
  static GrammarPart JsonSchema(std::string schema) { return {Kind::kJsonSchema, std::move(schema)}; }
  // Any JSON object.
  static GrammarPart JsonObject() { return {Kind::kJsonObject}; }
  // What a grammar in llama.cpp's notation allows.
  static GrammarPart Gbnf(std::string grammar) { return {Kind::kGbnf, std::move(grammar)}; }
  // Any text up to and with the first `trigger`, a text or the text of a special token. The special tokens of
  // `tokens` may occur in it; it need not be valid UTF-8.
  static GrammarPart TextUntil(std::string trigger, std::vector<TokenId> tokens = {}) {
    return {Kind::kTextUntil, std::move(trigger), std::move(tokens)};
  }
  // Any text in which `trigger` does not occur.
  static GrammarPart TextWithout(std::string trigger, std::vector<TokenId> tokens = {}) {
    return {Kind::kTextWithout, std::move(trigger), std::move(tokens)};
  }
  static GrammarPart Sequence(std::vector<GrammarPart> parts) { return {Kind::kSequence, {}, {}, std::move(parts)}; }
  static GrammarPart OneOf(std::vector<GrammarPart> parts) { return {Kind::kOneOf, {}, {}, std::move(parts)}; }
  static GrammarPart Repeat(GrammarPart part, uint32_t min, uint32_t max) {
    return {Kind::kRepeat, {}, {}, {std::move(part)}, min, max};
  }

  Kind kind = Kind::kSequence;
  std::string text{};
  std::vector<TokenId> tokens{};
  std::vector<GrammarPart> parts{};
  uint32_t min = 0;
  uint32_t max = 0;
};

// Appends text that is equal for equal parts only.
void AppendKey(const GrammarPart& part, std::string& key);

// Adds a part to a grammar. Errors: kInvalidArgument for texts that are no grammar or no schema, kUnsupported naming
// the keyword for schemas that cannot be honoured, kResourceExhausted for those that are too large.
Result<ExprId> AddPart(const GrammarPart& part, const GrammarVocabulary& vocabulary, Grammar& grammar);

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_GRAMMAR_GRAMMAR_PART_H_
