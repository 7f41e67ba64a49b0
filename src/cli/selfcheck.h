// Runs a model in ways that must not change its output, and compares.
#ifndef NUNSPARK_CLI_SELFCHECK_H_
#define NUNSPARK_CLI_SELFCHECK_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/model_files.h"
#include "nunspark/options.h"
#include "nunspark/status.h"

namespace nunspark::cli {

// What one prompt gave. The logarithms of probabilities come from the logits, so they show differences that no token
// shows.
struct CheckOutput {
  std::vector<int32_t> ids;
  std::vector<float> logprobs;  // [ids]
};

// The first place in which two runs differ, and what each had there; empty where its output had ended.
struct Difference {
  struct Token {
    int32_t id;
    float logprob;
  };
  size_t prompt = 0;
  size_t token = 0;
  std::optional<Token> expected;
  std::optional<Token> found;
};

// Compares ids, and the bits of the logarithms. REQUIRES: expected.size() == found.size().
std::optional<Difference> FirstDifference(std::span<const CheckOutput> expected, std::span<const CheckOutput> found);

struct Check {
  std::string name;       // "streamed, budget 1.20 GB"
  std::string against;    // "resident, budget 17.1 GB"
  int64_t tokens = 0;     // compared
  std::string note{};     // "12 of 40 drafted tokens taken"
  std::string skipped{};  // why it was not made; empty: it was
  Status status{};        // of the run
  std::optional<Difference> difference{};

  bool passed() const { return skipped.empty() && status.ok() && !difference; }
  bool failed() const { return skipped.empty() && !passed(); }
};

struct SelfcheckOptions {
  EngineOptions engine;                   // with its drafter, if there is one, which is a check of its own
  std::vector<SequenceRequest> requests;  // that are run, with room for logarithms of probabilities
  int32_t isa_tokens = 8;                 // of the first request, which each other instruction set has to give
  std::vector<std::string> isa_flags;     // of `generate`, for the same model, options and first request
};

// What it takes of options.engine: everything but the budget, which it chooses where it is not given: all weights in
// memory, if they fit, against the least that the model takes.
//
// on_check: each check when it is done. on_token: after each token, of all that will come. Errors: those of the first,
// plain run, with which the others are compared; kCancelled.
Result<std::vector<Check>> RunSelfcheck(const ModelFilesImpl& files, const SelfcheckOptions& options,
                                        const std::function<void(const Check&)>& on_check,
                                        const std::function<void(int64_t done, int64_t total)>& on_token);

}  // namespace nunspark::cli

#endif  // NUNSPARK_CLI_SELFCHECK_H_
