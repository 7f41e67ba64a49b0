#include "server/generation.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "server/answers.h"
#include "text/chat/reasoning_limit.h"

namespace nunspark::server {
namespace {

double Seconds(std::chrono::steady_clock::duration d) { return std::chrono::duration<double>(d).count(); }

}  // namespace

void GenerationMetrics::Histogram::Add(double value) {
  size_t at = 0;
  while (at < std::size(kBounds) && value > kBounds[at]) ++at;
  ++counts[at];
  sum += value;
}

void GenerationMetrics::Ended(const Status& status, const Usage& usage, double first_token_s, double token_s) {
  const std::lock_guard lock(mutex_);
  if (status.ok()) {
    ++succeeded_;
  } else if (status.code() == StatusCode::kCancelled) {
    ++cancelled_;
  } else {
    ++failed_;
  }
  prompt_tokens_ += usage.prompt_tokens;
  cached_tokens_ += usage.cached_tokens;
  completion_tokens_ += usage.completion_tokens;
  drafted_tokens_ += usage.drafts.proposed;
  accepted_tokens_ += usage.drafts.accepted;
  off_path_tokens_ += usage.drafts.off_path;
  if (first_token_s > 0) first_token_.Add(first_token_s);
  if (token_s > 0) per_token_.Add(token_s);
}

void GenerationMetrics::AddTo(PrometheusText& text) const {
  const std::lock_guard lock(mutex_);
  text.Counter("requests_started_total", "Requests that were taken.", started_.load(std::memory_order_relaxed));
  text.Counter("requests_succeeded_total", "Requests that were answered.", succeeded_);
  text.Counter("requests_failed_total", "Requests that failed while they ran.", failed_);
  text.Counter("requests_cancelled_total", "Requests whose client left, or that were stopped.", cancelled_);
  text.Counter("prompt_tokens_total", "Tokens of prompts.", prompt_tokens_);
  text.Counter("prompt_tokens_cached_total", "Tokens of prompts that did not have to be computed.", cached_tokens_);
  text.Counter("completion_tokens_total", "Tokens generated.", completion_tokens_);
  text.Counter("drafted_tokens_total", "Drafted tokens that were checked.", drafted_tokens_);
  text.Counter("drafted_tokens_accepted_total", "Of them, accepted.", accepted_tokens_);
  text.Counter("drafted_tokens_off_path_total", "Of the accepted, not what the model would have picked.",
               off_path_tokens_);
  text.Histogram("first_token_seconds", "From a request to its first token.", Histogram::kBounds, first_token_.counts,
                 first_token_.sum);
  text.Histogram("token_seconds", "Mean time of a token after the first, by request.", Histogram::kBounds,
                 per_token_.counts, per_token_.sum);
}

Result<std::shared_ptr<Generation>> Generation::Start(const GenerationTarget& target, const TextRequest& request,
                                                      OutputReading reading, std::vector<int32_t> prompt,
                                                      std::shared_ptr<text::CompiledGrammar> form,
                                                      std::unique_ptr<AnswerSink> sink) {
  static std::atomic<uint64_t> next_id{UnixTime() * uint64_t{1000003}};
  std::shared_ptr<Generation> generation(new Generation(target, request, std::move(reading), std::move(sink)));
  generation->left_ = request.choices;
  for (int32_t choice = 0; choice < request.choices; ++choice) {
    const OutputReading& its = generation->reading_;
    generation->answers_.push_back(
        {.decoder = text::OutputDecoder(target.tokenizer, its.format),
         .stops = text::StopStrings(request.text.stops),
         .parser = text::OutputParser(its.format,
                                      {.tools = its.tools, .start = its.start, .id_seed = next_id.fetch_add(1)})});
  }
  generation->prompt_ = std::move(prompt);
  generation->form_ = std::move(form);
  generation->under_way_ = 1;
  RETURN_IF_ERROR(generation->Submit(0));
  target.metrics.Started();
  generation->sink_->OnQueued();
  return generation;
}

// The other answers follow once the first has its first token: the prompt is known then, and is computed once.
Status Generation::Submit(int32_t choice) {
  SequenceRequest sequence{.prompt = prompt_, .options = options_.generate};
  sequence.options.sampling.choice = static_cast<uint32_t>(choice);
  if (form_ != nullptr) sequence.options.constraint = form_->NewConstraint();
  if (!reading_.reasoning_end.empty()) {
    sequence.options.token_override = std::make_shared<text::ReasoningLimit>(
        target_.tokenizer, reading_.format, text::OutputOptions{.tools = reading_.tools, .start = reading_.start},
        text::ReasoningLimitOptions{
            .budget = reading_.reasoning_budget,
            .end_text = reading_.reasoning_end,
            .end_tokens = options_.generate.ignore_eos ? std::vector<int32_t>() : target_.files.stop_ids()});
  }
  const std::shared_ptr<Generation> self = shared_from_this();
  RequestCallbacks callbacks{
      .on_token = [self, choice](const GeneratedToken& token) { return self->OnToken(choice, token); },
      .on_prompt = {},
      .on_end =
          [self, choice](Result<GenerateResult> result) {
            --self->under_way_;
            self->OnAnswerEnd(choice, std::move(result));
          }};
  if (choice == 0) {
    callbacks.on_prompt = [self](int64_t done, int64_t total) {
      self->sink_->OnPrompt(done, total);
      return self->GoesOn();
    };
  }
  ASSIGN_OR_RETURN(const uint64_t id,
                   target_.scheduler.Submit(std::move(sequence), std::move(callbacks), target_.urgency, Deadline()));
  const std::lock_guard lock(ids_mutex_);
  ids_.push_back(id);
  return Status();
}

void Generation::SubmitRest() {
  while (next_choice_ < std::ssize(answers_)) {
    Status status = status_;
    if (status.ok()) status = Submit(next_choice_);
    // Those that the queue has no place for come when one of these ends.
    if (status.code() == StatusCode::kResourceExhausted && under_way_ > 0) return;
    const int32_t choice = next_choice_++;
    if (status.ok()) {
      ++under_way_;
    } else {
      OnAnswerEnd(choice, status);
    }
  }
}

void Generation::Cancel() {
  cancelled_.store(true, std::memory_order_relaxed);
  const std::lock_guard lock(ids_mutex_);
  for (const uint64_t id : ids_) target_.scheduler.Cancel(id);
}

Scheduler::TimePoint Generation::Deadline() const {
  if (target_.timeout_s <= 0) return Scheduler::TimePoint::max();
  return start_ + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(target_.timeout_s));
}

bool Generation::GoesOn() const {
  if (cancelled_.load(std::memory_order_relaxed) || sink_->closed()) return false;
  return Clock::now() < Deadline();
}

bool Generation::OnToken(int32_t choice, const GeneratedToken& token) {
  Answer& answer = answers_[static_cast<size_t>(choice)];
  const Clock::time_point now = Clock::now();
  if (tokens_++ == 0) {
    first_token_s_ = Seconds(now - start_);
    SubmitRest();
  }
  last_token_ = now;
  if (!EndsText(options_.generate, target_.files.stop_ids(), token.token)) {
    if (options_.generate.logprobs >= 0) {
      answer.probabilities.push_back({.token = token, .best = {token.best.begin(), token.best.end()}});
    }
    answer.parser.Push(answer.decoder.Push(token.token), deltas_);
    EndAtStops(answer);
    Tell(choice);
  }
  return !answer.stops.matched() && GoesOn();
}

// Stop strings end the content; inside reasoning and calls they are text like any other.
void Generation::EndAtStops(Answer& answer) {
  std::vector<text::OutputDelta> kept;
  const auto add_content = [&kept](std::string content) {
    if (content.empty()) return;
    kept.push_back({.kind = text::OutputDelta::Kind::kContent, .text = std::move(content), .id = {}});
  };
  for (text::OutputDelta& delta : deltas_) {
    if (answer.stops.matched()) break;
    if (delta.kind == text::OutputDelta::Kind::kContent) {
      add_content(answer.stops.Push(delta.text));
    } else {
      add_content(answer.stops.Finish());
      kept.push_back(std::move(delta));
    }
  }
  deltas_ = std::move(kept);
}

void Generation::Tell(int32_t choice) {
  if (deltas_.empty()) return;
  std::vector<TokenProbability> probabilities = std::exchange(answers_[static_cast<size_t>(choice)].probabilities, {});
  const auto is_content = [](const text::OutputDelta& delta) {
    return delta.kind == text::OutputDelta::Kind::kContent;
  };
  if (std::none_of(deltas_.begin(), deltas_.end(), is_content)) probabilities.clear();
  sink_->OnDeltas(choice, deltas_, probabilities);
  deltas_.clear();
}

void Generation::OnAnswerEnd(int32_t choice, Result<GenerateResult> result) {
  Answer& answer = answers_[static_cast<size_t>(choice)];
  if (result.ok()) {
    usage_.prompt_tokens = std::max(usage_.prompt_tokens, result->prompt_tokens);
    usage_.cached_tokens = std::max(usage_.cached_tokens, result->cached_tokens);
    usage_.completion_tokens += std::ssize(result->ids);
    usage_.drafts.proposed += result->drafts.proposed;
    usage_.drafts.accepted += result->drafts.accepted;
    usage_.drafts.off_path += result->drafts.off_path;
    answer.parser.Push(answer.decoder.Finish(), deltas_);
    answer.parser.Finish(
        deltas_, result->finish_reason == FinishReason::kStop ? text::OutputEnd::kComplete : text::OutputEnd::kCut);
    EndAtStops(answer);
    if (std::string last = answer.stops.Finish(); !last.empty()) {
      deltas_.push_back({.kind = text::OutputDelta::Kind::kContent, .text = std::move(last), .id = {}});
    }
    Tell(choice);
    AnswerEnd end = AnswerEnd::kLength;
    if (answer.stops.matched()) {
      end = AnswerEnd::kStopString;
    } else if (result->finish_reason == FinishReason::kStop) {
      end = answer.parser.call_count() > 0 ? AnswerEnd::kToolCalls : AnswerEnd::kStop;
    } else if (result->finish_reason == FinishReason::kCancelled) {
      end = AnswerEnd::kCancelled;
      if (status_.ok()) {
        const bool late = Clock::now() >= Deadline();
        status_ = CancelledError(late ? fmt::format("the request took longer than {} s", target_.timeout_s)
                                      : std::string("the request was cancelled"));
      }
    }
    sink_->OnAnswerEnd(choice, end, answer.stops.matched() ? answer.stops.match() : std::string());
  } else if (status_.ok() || status_.code() == StatusCode::kCancelled) {
    status_ = result.status();
  }
  --left_;
  SubmitRest();
  if (left_ > 0 || std::exchange(ended_, true)) return;
  const double token_s =
      tokens_ > 1 ? (Seconds(last_token_ - start_) - first_token_s_) / static_cast<double>(tokens_ - 1) : 0;
  target_.metrics.Ended(status_, usage_, first_token_s_, token_s);
  sink_->OnEnd(status_, usage_);
}

}  // namespace nunspark::server
