#include "text/grammar/grammar_part.h"

#include <algorithm>

#include <fmt/format.h>

#include "text/grammar/gbnf.h"
#include "text/grammar/json_grammar.h"
#include "text/grammar/json_schema.h"

namespace nunspark::text {
namespace {

constexpr int kMostDepth = 32;
constexpr size_t kMostTriggerBytes = 256;

ExprId AddLiteral(std::string_view text, const GrammarVocabulary& vocabulary, Grammar& grammar) {
  std::vector<ExprId> parts;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const auto special = vocabulary.SpecialAt(text.substr(at));
    if (!special.has_value()) {
      ++at;
      continue;
    }
    if (at > begin) parts.push_back(grammar.Literal(text.substr(begin, at - begin)));
    parts.push_back(grammar.Token(special->first));
    begin = at += special->second;
  }
  if (begin < text.size()) parts.push_back(grammar.Literal(text.substr(begin)));
  return grammar.Sequence(parts);
}

enum class Trigger : uint8_t { kEnds, kForbidden };

// Text as rules, one for each number of the trigger's bytes that have just been read (Knuth, Morris and Pratt). Every
// rule ends in another, so that no stack grows.
ExprId AddText(const GrammarPart& part, Trigger trigger_role, const GrammarVocabulary& vocabulary, Grammar& grammar) {
  const std::string& trigger = part.text;
  const auto special = vocabulary.SpecialAt(trigger);
  const bool by_token = special.has_value() && special->second == trigger.size();
  const size_t states = by_token ? 1 : trigger.size();
  std::vector<RuleId> rules;
  for (size_t i = 0; i < states; ++i) rules.push_back(grammar.NewRule("text"));

  std::vector<size_t> longest_end(states + 1, 0);  // of the bytes read, that the trigger begins with
  std::vector<std::vector<size_t>> after(states, std::vector<size_t>(256, 0));
  for (size_t i = 0; i < states; ++i) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const bool matches = !by_token && static_cast<uint8_t>(trigger[i]) == byte;
      after[i][byte] = matches ? i + 1 : (i == 0 ? 0 : after[longest_end[i]][byte]);
    }
    if (!by_token) longest_end[i + 1] = i == 0 ? 0 : after[longest_end[i]][static_cast<uint8_t>(trigger[i])];
  }
  for (size_t i = 0; i < states; ++i) {
    std::vector<ExprId> choices;
    std::vector<size_t> targets(after[i]);
    std::sort(targets.begin(), targets.end());
    targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
    for (const size_t target : targets) {
      const bool triggers = !by_token && target == trigger.size();
      if (triggers && trigger_role == Trigger::kForbidden) continue;
      std::vector<CharRange> ranges;
      for (uint32_t byte = 0; byte < 256; ++byte) {
        if (after[i][byte] != target) continue;
        if (!ranges.empty() && ranges.back().last + 1 == byte) {
          ranges.back().last = byte;
        } else {
          ranges.push_back({byte, byte});
        }
      }
      const ExprId read = grammar.Bytes(ranges);
      choices.push_back(triggers ? read : grammar.Sequence({read, grammar.Rule(rules[target])}));
    }
    for (const TokenId token : part.tokens) {
      choices.push_back(grammar.Sequence({grammar.Token(token), grammar.Rule(rules[0])}));
    }
    if (trigger_role == Trigger::kForbidden) choices.push_back(grammar.Empty());
    if (by_token && trigger_role == Trigger::kEnds) choices.push_back(grammar.Token(special->first));
    grammar.Define(rules[i], grammar.Choice(choices));
  }
  return grammar.Rule(rules[0]);
}

Result<ExprId> Add(const GrammarPart& part, const GrammarVocabulary& vocabulary, Grammar& grammar, int depth) {
  using Kind = GrammarPart::Kind;
  if (depth > kMostDepth) {
    return InvalidArgumentError(fmt::format("the parts of a grammar are nested more than {} deep", kMostDepth));
  }
  for (const TokenId token : part.tokens) {
    if (token < 0 || token >= vocabulary.size()) {
      return InvalidArgumentError(
          fmt::format("token {} is outside the vocabulary of {} tokens", token, vocabulary.size()));
    }
  }
  std::vector<ExprId> parts;
  for (const GrammarPart& inner : part.parts) {
    ASSIGN_OR_RETURN(const ExprId id, Add(inner, vocabulary, grammar, depth + 1));
    parts.push_back(id);
  }
  switch (part.kind) {
    case Kind::kLiteral: return AddLiteral(part.text, vocabulary, grammar);
    case Kind::kJsonSchema: return AddJsonSchema(part.text, grammar);
    case Kind::kJsonObject: return JsonGrammar(grammar).object();
    case Kind::kGbnf: return AddGbnf(part.text, grammar);
    case Kind::kTextUntil:
    case Kind::kTextWithout:
      if (part.text.empty() || part.text.size() > kMostTriggerBytes) {
        return InvalidArgumentError(
            fmt::format("a trigger must have from 1 to {} bytes, found {}", kMostTriggerBytes, part.text.size()));
      }
      return AddText(part, part.kind == Kind::kTextUntil ? Trigger::kEnds : Trigger::kForbidden, vocabulary, grammar);
    case Kind::kSequence: return grammar.Sequence(parts);
    case Kind::kOneOf: return grammar.Choice(parts);
    case Kind::kRepeat:
      if (part.min > part.max || part.min > kMaxRepetition || parts.size() != 1) {
        return InvalidArgumentError(fmt::format("a repetition from {} to {} times is none", part.min, part.max));
      }
      return grammar.Repeat(parts[0], part.min, part.max);
  }
  return grammar.Never();
}

}  // namespace

void AppendKey(const GrammarPart& part, std::string& key) {
  fmt::format_to(std::back_inserter(key), "{} {} {} {} {} {}:", static_cast<int>(part.kind), part.min, part.max,
                 part.tokens.size(), part.parts.size(), part.text.size());
  key += part.text;
  for (const TokenId token : part.tokens) fmt::format_to(std::back_inserter(key), "{},", token);
  for (const GrammarPart& inner : part.parts) AppendKey(inner, key);
}

Result<ExprId> AddPart(const GrammarPart& part, const GrammarVocabulary& vocabulary, Grammar& grammar) {
  return Add(part, vocabulary, grammar, 0);
}

}  // namespace nunspark::text
