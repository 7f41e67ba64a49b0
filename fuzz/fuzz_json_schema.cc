// JSON schemas: no crash, no hang, bounded memory; and what one that is taken writes is JSON.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "text/grammar/automaton.h"
#include "text/grammar/json_schema.h"
#include "text/grammar/matcher.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nunspark::text;
  Grammar grammar;
  const auto root = AddJsonSchema({reinterpret_cast<const char*>(data), size}, grammar);
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
  std::string text;
  for (size_t step = 0; step < 200 && matcher.work() < 100'000; ++step) {
    if (matcher.accepts(state)) {
      CHECK(nunspark::ParseJson("[" + text + "]", "output").ok());
      if (step % 2 == 0) return 0;
    }
    // Marks that end things first, so that most texts do end.
    constexpr std::string_view kOrder = "\"}]:0n,\\1truefalsn";
    Matcher::State next = Matcher::kDead;
    for (uint32_t i = 0; i < kOrder.size() + 256 && next == Matcher::kDead; ++i) {
      const auto byte = i < kOrder.size() ? static_cast<uint8_t>(kOrder[i])
                                          : static_cast<uint8_t>(data[step % size] + i - kOrder.size());
      next = matcher.Step(state, byte);
      if (next != Matcher::kDead) text += static_cast<char>(byte);
    }
    if (next == Matcher::kDead) {
      CHECK(matcher.accepts(state));
      return 0;
    }
    state = next;
  }
  return 0;
}
