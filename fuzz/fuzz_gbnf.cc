// Grammars in GBNF: no crash, no hang, bounded memory; and from one that is taken a text can be followed to its end,
// byte by byte, without ever getting stuck.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "text/grammar/automaton.h"
#include "text/grammar/gbnf.h"
#include "text/grammar/matcher.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nunspark::text;
  Grammar grammar;
  const auto root = AddGbnf({reinterpret_cast<const char*>(data), size}, grammar);
  if (!root.ok()) {
    CHECK(!root.status().message().empty());
    return 0;
  }
  const RuleId rule = grammar.NewRule("the output");
  grammar.Define(rule, *root);
  const auto automaton = Automaton::Compile(grammar, rule);
  if (!automaton.ok()) return 0;
  Matcher matcher(*automaton);
  Matcher::State state = matcher.start();
  for (size_t step = 0; step < 32 && matcher.work() < 100'000; ++step) {
    Matcher::State next = Matcher::kDead;
    const auto first = static_cast<uint32_t>(size > 0 ? data[step % size] : 0);
    for (uint32_t i = 0; i < 256 && next == Matcher::kDead; ++i) {
      next = matcher.Step(state, static_cast<uint8_t>(first + i));
    }
    if (next == Matcher::kDead) {
      CHECK(matcher.accepts(state));
      return 0;
    }
    CHECK(matcher.Canonical(next, 4) != Matcher::kDead);
    state = next;
  }
  Matcher other(*automaton);
  CHECK(other.accepts(other.Import(matcher, state)) == matcher.accepts(state));
  return 0;
}
