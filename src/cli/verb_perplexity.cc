#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>

#include <fmt/format.h>

#include "base/json.h"
#include "base/math.h"
#include "cli/engine_flags.h"
#include "cli/interrupt.h"
#include "cli/model_argument.h"
#include "cli/progress.h"
#include "cli/verbs.h"
#include "io/file.h"
#include "kernels/kernels.h"
#include "nunspark/engine.h"

namespace nunspark::cli {
namespace {

constexpr int64_t kMaxTextBytes = 256 << 20;

struct Flags {
  std::string model;
  EngineFlags engine;
  std::string file;
  int64_t window = 512;
  bool json = false;
};

// Sums -log p of known tokens over rows of logits.
class NllSum {
 public:
  explicit NllSum(int64_t vocab_size) : probabilities_(static_cast<size_t>(vocab_size)) {}

  void Add(const float* logits, int32_t target) {
    // log of the normaliser = best logit + log(sum of p / p of the best). The target's own p may underflow, and summing
    // p again in double takes out the rounding of the float32 sum.
    const int64_t n = static_cast<int64_t>(probabilities_.size());
    std::copy_n(logits, n, probabilities_.begin());
    const int64_t best = Kernels().argmax(logits, n);
    Kernels().softmax(probabilities_.data(), n);
    double total = 0;
    for (const float p : probabilities_) total += p;
    const double log_normaliser = double{logits[best]} + Log(total / probabilities_[static_cast<size_t>(best)]);
    sum_ += log_normaliser - logits[target];
    ++count_;
  }

  double mean() const { return count_ > 0 ? sum_ / static_cast<double>(count_) : 0; }
  int64_t count() const { return count_; }

 private:
  std::vector<float> probabilities_;
  double sum_ = 0;
  int64_t count_ = 0;
};

Result<int> Run(const Flags& flags) {
  ASSIGN_OR_RETURN(EngineOptions options, MakeEngineOptions(flags.engine));
  if (flags.window < 0 || flags.window == 1 || flags.window > (1 << 28)) {
    return InvalidArgumentError(
        fmt::format("--window must be 0 (the whole text) or at least 2, found {}", flags.window));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<ModelFiles> files, ModelFiles::Open(flags.model));
  ASSIGN_OR_RETURN(
      const std::string text,
      ReadWholeFile(flags.file, {.max_bytes = kMaxTextBytes, .limit_reason = "the longest text that is taken"}));
  ASSIGN_OR_RETURN(const std::vector<int32_t> ids, files->Encode(text));
  const int64_t total = static_cast<int64_t>(ids.size());
  const int64_t window = flags.window == 0 ? total : flags.window;
  if (total < 2 || window > total) {
    return InvalidArgumentError(
        fmt::format("{}: {} tokens are too few for a window of {}; use a longer text or a smaller --window", flags.file,
                    total, std::max<int64_t>(window, 2)));
  }
  options.context = window;
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Start(*files, options));
  ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, engine->NewSession());
  const InterruptsSession interrupts(*session);
  Progress progress("perplexity", ProgressUnit::kTokens);
  NllSum nll(files->vocab_size());
  const auto start = std::chrono::steady_clock::now();
  // Whole windows only; every token after a window's first is predicted.
  for (int64_t begin = 0; begin + window <= total; begin += window) {
    if (Interrupted()) return CancelledError("stopped");
    const std::span<const int32_t> part(ids.data() + begin, static_cast<size_t>(window));
    RETURN_IF_ERROR(session->Logits(part, [&](int64_t first, int64_t count, const float* logits) {
      for (int64_t i = 0; i < count && first + i + 1 < window; ++i) {
        nll.Add(logits + i * files->vocab_size(), part[static_cast<size_t>(first + i + 1)]);
      }
      progress.Update(begin + first + count, total);
      return Status();
    }));
  }
  progress.Clear();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const double perplexity = Exp(nll.mean());
  if (flags.json) {
    std::puts(WriteJson(Json::Object{{"mean_nll", nll.mean()},
                                     {"perplexity", perplexity},
                                     {"tokens", total},
                                     {"predicted", nll.count()},
                                     {"window", flags.window},
                                     {"seconds", seconds},
                                     {"isa", std::string(engine->isa())},
                                     {"numerics", std::string(engine->numerics())}})
                  .c_str());
  } else {
    std::puts(fmt::format("mean NLL   {:.6f}\nperplexity {:.4f}\ntokens     {} ({} predicted)\ntime       {:.1f} s",
                          nll.mean(), perplexity, total, nll.count(), seconds)
                  .c_str());
  }
  return 0;
}

}  // namespace

void AddPerplexity(CLI::App& app, Action* action) {
  auto flags = std::make_shared<Flags>();
  CLI::App* const verb = app.add_subcommand("perplexity", "how well the model predicts a text");
  verb->add_option("model", flags->model, kModelArgument)->required();
  verb->add_option("--file", flags->file, "text")->required();
  verb->add_option("--window", flags->window,
                   "tokens a window; the incomplete last one is dropped; 0 = the whole text as one")
      ->capture_default_str();
  verb->add_flag("--json", flags->json, "one JSON object");
  AddEngineFlags(*verb, flags->engine);
  verb->callback([flags, action] { *action = OnModel(flags, Run); });
}

}  // namespace nunspark::cli
