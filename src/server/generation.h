// One request on its way through the scheduler: a prompt, and one or several answers to it as they are written.
#ifndef NUNSPARK_SERVER_GENERATION_H_
#define NUNSPARK_SERVER_GENERATION_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "nunspark/engine.h"
#include "server/prometheus.h"
#include "server/request.h"
#include "text/chat/output_format.h"
#include "text/chat/output_parser.h"
#include "text/grammar/compiled_grammar.h"
#include "text/stop_strings.h"

namespace nunspark::server {

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;  // of all answers, EOS counted
  int64_t cached_tokens = 0;      // of the prompt
  DraftStats drafts{};            // of all answers: what was proposed and accepted
};

struct TokenProbability {
  GeneratedToken token;
  std::vector<TokenLogprob> best;
};

// Why an answer ended: at an end token or a stop string, at its limit, with a tool call; or because somebody left.
enum class AnswerEnd : uint8_t { kStop, kStopString, kToolCalls, kLength, kCancelled };

// What an API makes of a generation. Called by the scheduler's thread, one call at a time.
class AnswerSink {
 public:
  virtual ~AnswerSink() = default;
  // The request has its place, in the queue at least. By the thread that submitted it, while other calls come.
  virtual void OnQueued() {}
  virtual void OnPrompt(int64_t done, int64_t total) = 0;
  // What became certain with some tokens; `probabilities` where they were asked for, of tokens of the content.
  virtual void OnDeltas(int32_t choice, const std::vector<text::OutputDelta>& deltas,
                        const std::vector<TokenProbability>& probabilities) = 0;
  virtual void OnAnswerEnd(int32_t choice, AnswerEnd end, const std::string& stop) = 0;
  // The last call, whatever happened.
  virtual void OnEnd(const Status& status, const Usage& usage) = 0;
  // Nobody listens any more.
  virtual bool closed() const = 0;
};

// What the server measures of all generations. Thread-safe.
class GenerationMetrics {
 public:
  void Started() { started_.fetch_add(1, std::memory_order_relaxed); }
  void Ended(const Status& status, const Usage& usage, double first_token_s, double token_s);

  void AddTo(PrometheusText& text) const;

 private:
  struct Histogram {
    static constexpr double kBounds[] = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300};
    int64_t counts[std::size(kBounds) + 1] = {};
    double sum = 0;

    void Add(double value);
  };

  std::atomic<int64_t> started_{0};
  mutable std::mutex mutex_;
  int64_t succeeded_ = 0, failed_ = 0, cancelled_ = 0;
  int64_t prompt_tokens_ = 0, cached_tokens_ = 0, completion_tokens_ = 0;
  int64_t drafted_tokens_ = 0, accepted_tokens_ = 0, off_path_tokens_ = 0;
  Histogram first_token_, per_token_;
};

struct GenerationTarget {
  const ModelFiles& files;
  const text::Tokenizer& tokenizer;  // of files
  Scheduler& scheduler;
  GenerationMetrics& metrics;
  double timeout_s = 0;  // of one request; 0: none
  Urgency urgency = Urgency::kNormal;
};

// How its text is to be read.
struct OutputReading {
  text::OutputFormat format{};  // default: everything is content
  Json tools{};                 // that may be called
  text::OutputStart start = text::OutputStart::kMessage;
  int64_t reasoning_budget = -1;         // in tokens; negative: none
  std::vector<int32_t> reasoning_end{};  // tokens that close reasoning; empty: nothing does
};

class Generation : public std::enable_shared_from_this<Generation> {
 public:
  // Submits a request. `form`: what each answer has to look like; nullptr: anything. `sink` gets nothing when this
  // fails. Errors: Scheduler::Submit's.
  static Result<std::shared_ptr<Generation>> Start(const GenerationTarget& target, const TextRequest& request,
                                                   OutputReading reading, std::vector<int32_t> prompt,
                                                   std::shared_ptr<text::CompiledGrammar> form,
                                                   std::unique_ptr<AnswerSink> sink);

  // Ends it before the next step. Thread-safe.
  void Cancel();

 private:
  using Clock = std::chrono::steady_clock;

  // From tokens to deltas.
  struct Answer {
    text::OutputDecoder decoder;
    text::StopStrings stops;
    text::OutputParser parser;
    std::vector<TokenProbability> probabilities{};  // of tokens whose text is held back
  };

  Generation(const GenerationTarget& target, const TextRequest& request, OutputReading reading,
             std::unique_ptr<AnswerSink> sink)
      : target_(target), options_(request.text), reading_(std::move(reading)), sink_(std::move(sink)) {}

  Status Submit(int32_t choice);
  void SubmitRest();
  Scheduler::TimePoint Deadline() const;
  bool GoesOn() const;
  bool OnToken(int32_t choice, const GeneratedToken& token);
  void OnAnswerEnd(int32_t choice, Result<GenerateResult> result);
  void EndAtStops(Answer& answer);
  void Tell(int32_t choice);

  const GenerationTarget target_;
  const TextOptions options_;
  const OutputReading reading_;
  const std::unique_ptr<AnswerSink> sink_;
  const Clock::time_point start_ = Clock::now();
  std::vector<Answer> answers_;
  std::vector<int32_t> prompt_;
  std::shared_ptr<text::CompiledGrammar> form_;
  std::atomic<bool> cancelled_{false};
  std::mutex ids_mutex_;
  std::vector<uint64_t> ids_;

  // Of the scheduler's thread.
  std::vector<text::OutputDelta> deltas_;
  int32_t left_ = 0;
  int32_t under_way_ = 0;    // submitted and not ended
  int32_t next_choice_ = 1;  // not submitted yet
  bool ended_ = false;
  Usage usage_;
  Status status_;
  double first_token_s_ = 0;
  Clock::time_point last_token_{};
  int64_t tokens_ = 0;
};

}  // namespace nunspark::server

#endif  // NUNSPARK_SERVER_GENERATION_H_
