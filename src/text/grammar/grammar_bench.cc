#include <algorithm>
#include <cstdio>
#include <ctime>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "text/bench_grammar.h"
#include "text/grammar/compiled_grammar.h"

namespace nunspark::text {
namespace {

struct Sample {
  const char* name;
  const char* schema;  // nullptr: any object
  const char* text;
};

constexpr Sample kSamples[] = {
    {"person",
     R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer","minimum":0,"maximum":150},
         "email":{"type":"string","format":"email"},"tags":{"type":"array","items":{"type":"string","maxLength":40},"maxItems":8},
         "address":{"type":"object","properties":{"street":{"type":"string"},"city":{"type":"string"},
         "country":{"enum":["DE","FR","US"]}},"required":["street","city","country"]}},
         "required":["name","age","email","tags","address"],"additionalProperties":false})",
     R"({"name": "Ada Lovelace", "age": 36, "email": "ada@example.org", "tags": ["mathematics", "first programmer", "London"], "address": {"street": "12 St James's Square, second floor", "city": "London", "country": "US"}})"},
    {"summary",
     R"({"type":"object","properties":{"summary":{"type":"string","maxLength":400}},"required":["summary"]})",
     R"({"summary": "The committee met on Tuesday and agreed that the bridge over the river would be rebuilt before the end of next year, if the city finds the money; otherwise the ferry stays in service, with two more boats."})"},
    {"any object", nullptr,
     R"({"items": [{"id": 1, "label": "first \"quoted\" item", "price": 12.5}, {"id": 2, "label": "second", "price": null}], "total": {"count": 2, "sum": 12.5}, "ok": true})"},
};

double ProcessorSeconds() {
  timespec now{};
  CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now) == 0);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

void Figure(const std::string& name, double value, std::string_view unit) {
  fmt::print("{}\t{:.4g}\t{}\n", name, value, unit);
  std::fflush(stdout);
}

// Microseconds per token, on average and at most.
void Follow(CompiledGrammar& grammar, const std::vector<TokenId>& ids, TokenId vocab_size, const std::string& name) {
  const std::shared_ptr<TokenConstraint> constraint = grammar.NewConstraint();
  std::vector<uint32_t> bits(static_cast<size_t>(vocab_size + 31) / 32);
  double sum = 0;
  double most = 0;
  for (const TokenId id : ids) {
    const double begin = ProcessorSeconds();
    constraint->Allowed(bits);
    CHECK((bits[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0);
    constraint->Advance(id);
    const double seconds = ProcessorSeconds() - begin;
    sum += seconds;
    most = std::max(most, seconds);
  }
  Figure(name + ", mean per token", 1e6 * sum / static_cast<double>(ids.size()), "us");
  Figure(name + ", slowest token", 1e6 * most, "us");
}

}  // namespace

void BenchGrammar(const std::vector<std::string>& tokenizer_paths) {
  for (const std::string& path : tokenizer_paths) {
    const Result<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Load(path);
    if (!tokenizer.ok()) {
      fmt::print("# {}\n", tokenizer.status().message());
      continue;
    }
    const TokenId size = (*tokenizer)->vocab_size();
    fmt::print("# {}: {} tokens\n", path, size);
    double begin = ProcessorSeconds();
    const auto vocabulary = GrammarVocabulary::Create(**tokenizer, {.end_tokens = {size - 1}}).value();
    Figure("vocabulary", 1e3 * (ProcessorSeconds() - begin), "ms");
    Figure("vocabulary", static_cast<double>(vocabulary->memory_bytes()) / 1e6, "MB");
    for (const Sample& sample : kSamples) {
      begin = ProcessorSeconds();
      const GrammarPart part =
          sample.schema == nullptr ? GrammarPart::JsonObject() : GrammarPart::JsonSchema(sample.schema);
      const auto grammar = CompiledGrammar::Compile(vocabulary, part).value();
      Figure(fmt::format("{}, compile", sample.name), 1e3 * (ProcessorSeconds() - begin), "ms");
      const std::vector<TokenId> ids = (*tokenizer)->Encode(sample.text, AddSpecials::kNo).value();
      Follow(*grammar, ids, size, fmt::format("{}, new", sample.name));
      Follow(*grammar, ids, size, fmt::format("{}, again", sample.name));
      Figure(fmt::format("{}, memory", sample.name), static_cast<double>(grammar->memory_bytes()) / 1e6, "MB");
    }
  }
}

}  // namespace nunspark::text
