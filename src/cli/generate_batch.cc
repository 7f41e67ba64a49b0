#include "cli/generate_batch.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <queue>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/align.h"
#include "base/in_range.h"
#include "base/json.h"
#include "cli/engine_flags.h"
#include "cli/interrupt.h"
#include "cli/line_loop.h"
#include "cli/progress.h"
#include "cli/prompt.h"
#include "cli/run_report.h"
#include "cli/verbs.h"
#include "formats/content_hash.h"
#include "io/file.h"
#include "io/locked_file.h"

namespace nunspark::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kMostParallel = 1024;

// Prompts that wait beside those that run, for each of these: so many are held in memory.
constexpr int64_t kWaitingPerRunning = 2;

// Positions of keys and values come in blocks.
constexpr int64_t kBlock = 64;

struct Line {
  std::vector<int32_t> prompt;
  TextOptions options;
};

Status NotOne(const std::string& name, std::string_view wanted) {
  return InvalidArgumentError(fmt::format("\"{}\" must be {}", name, wanted));
}

Result<std::vector<int32_t>> PromptOf(const Json& line, const ModelFiles& files, const BatchJob& job) {
  const Json* const prompt = line.Find("prompt");
  const Json* const ids = line.Find("prompt_ids");
  const Json* const messages = line.Find("messages");
  if ((prompt != nullptr) + (ids != nullptr) + (messages != nullptr) != 1) {
    return InvalidArgumentError("a line needs one of \"prompt\", \"messages\" and \"prompt_ids\"");
  }
  if (ids != nullptr) return ParseTokenIds(WriteJson(*ids), "\"prompt_ids\"");
  Json::Array conversation;
  if (messages != nullptr) {
    if (!messages->is_array() || messages->as_array().empty()) {
      return NotOne("messages", "a list of messages, at least one");
    }
    conversation = messages->as_array();
    for (const Json& message : conversation) {
      if (!message.is_object() || message.Find("role") == nullptr) {
        return NotOne("messages", "objects with \"role\" and \"content\"");
      }
    }
    return ChatPrompt(files, std::move(conversation));
  }
  if (!prompt->is_string()) return NotOne("prompt", "a string");
  if (!job.chat_template) return files.EncodeWithSpecials(prompt->as_string());
  const Json* const system = line.Find("system");
  if (system != nullptr && !system->is_string()) return NotOne("system", "a string");
  const std::string& text = system != nullptr ? system->as_string() : job.system;
  if (!text.empty()) conversation.push_back(Message("system", text));
  conversation.push_back(Message("user", prompt->as_string()));
  return ChatPrompt(files, std::move(conversation));
}

// `id`: of the line, if it has one, whatever else is wrong with it.
Result<Line> ParseLine(std::string_view text, bool too_long, const ModelFiles& files, const BatchJob& job, Json& id) {
  constexpr std::string_view kLikeThis = R"(a line is an object such as {"prompt": "Hello"})";
  if (too_long) return InvalidArgumentError("the line is longer than 64 MiB");
  Line line{.prompt = {}, .options = job.defaults};
  const Result<Json> json = ParseJson(text, "the line");
  if (!json.ok()) return InvalidArgumentError(fmt::format("{}; {}", json.status().message(), kLikeThis));
  if (!json->is_object()) return InvalidArgumentError(std::string(kLikeThis));
  if (const Json* const found = json->Find("id")) id = *found;
  for (const auto& [name, value] : json->as_object()) {
    if (name == "id" || name == "prompt" || name == "prompt_ids" || name == "messages" || name == "system") continue;
    ASSIGN_OR_RETURN(const bool known, TakeTextField(name, value, line.options));
    if (!known) return InvalidArgumentError(fmt::format("\"{}\" is no field of a line", name));
  }
  ASSIGN_OR_RETURN(line.prompt, PromptOf(*json, files, job));
  return line;
}

std::string HashOf(std::string_view text) {
  ContentHash hash;
  hash.Update(text);
  return hash.Hex().substr(0, 16);
}

// What the results need, found by a first reading of the file.
struct Survey {
  int64_t lines = 0;
  int64_t longest = 1;    // positions of one
  int64_t positions = 0;  // of the `parallel` longest together
};

int64_t PositionsOf(const Line& line) {
  return std::ssize(line.prompt) + std::max<int64_t>(line.options.generate.max_tokens, 1);
}

Result<Survey> LookThrough(const ModelFiles& files, int64_t limit, const BatchJob& job) {
  ASSIGN_OR_RETURN(const File file, File::OpenRead(job.file));
  Survey survey;
  Progress progress("reading prompts", ProgressUnit::kBytes);
  ASSIGN_OR_RETURN(const int64_t size, file.Size());
  int64_t bytes = 0;
  std::priority_queue<int64_t, std::vector<int64_t>, std::greater<>> longest;
  RETURN_IF_ERROR(ReadLines(file.fd(), job.file, [&](std::string_view text, bool too_long) {
    ++survey.lines;
    bytes += std::ssize(text);
    progress.Update(bytes, size);
    Json id;
    const Result<Line> line = ParseLine(text, too_long, files, job, id);
    if (!line.ok()) return Status();  // told when it is its turn
    const int64_t positions = PositionsOf(*line);
    if (limit > 0 && positions > limit) return Status();
    survey.longest = std::max(survey.longest, positions);
    longest.push(AlignUp(positions, kBlock));
    survey.positions += AlignUp(positions, kBlock);
    if (std::ssize(longest) <= job.parallel) return Status();
    survey.positions -= longest.top();
    longest.pop();
    return Status();
  }));
  if (survey.lines == 0) return InvalidArgumentError(fmt::format("{} holds no line with a prompt", job.file));
  return survey;
}

// How every result begins.
constexpr std::string_view kResultStart = R"({"index":)";

// Results, each a line written at once, so that a run that is killed leaves whole lines and perhaps part of one.
class Results {
 public:
  // Locks the file, reads what is there and cuts off a line that was not finished.
  static Result<std::unique_ptr<Results>> Open(const std::string& path) {
    std::unique_ptr<Results> results(new Results);
    if (path.empty()) return results;
    ASSIGN_OR_RETURN(std::optional<File> file, OpenLocked(path));
    if (!file) {
      return InvalidArgumentError(fmt::format("another run writes its results to {}; give another --out", path));
    }
    results->file_ = *std::move(file);
    ASSIGN_OR_RETURN(const File reader, File::OpenRead(path));
    ASSIGN_OR_RETURN(const int64_t size, reader.Size());
    // A line is judged when it is known whether another follows.
    std::optional<std::string> last;
    RETURN_IF_ERROR(ReadLines(reader.fd(), path, [&](std::string_view text, bool) {
      const Status status = last ? results->Learn(*last, path, false).status() : Status();
      last = std::string(text);
      return status;
    }));
    bool last_counts = false;
    if (last) {
      ASSIGN_OR_RETURN(last_counts, results->Learn(*last, path, true));
    }
    // The end of the last whole line.
    std::vector<uint8_t> part(1 << 16);
    results->end_ = size;
    while (results->end_ > 0) {
      const int64_t begin = std::max<int64_t>(0, results->end_ - std::ssize(part));
      const size_t count = static_cast<size_t>(results->end_ - begin);
      RETURN_IF_ERROR(reader.ReadAt(begin, {part.data(), count}));
      size_t at = count;
      while (at > 0 && part[at - 1] != '\n') --at;
      results->end_ = begin + static_cast<int64_t>(at);
      if (at > 0) break;
    }
    if (last_counts && results->end_ < size) {
      // All that is missing of it is its line end.
      RETURN_IF_ERROR(results->file_.WriteAt(size, std::array<uint8_t, 1>{'\n'}));
      results->end_ = size + 1;
    }
    RETURN_IF_ERROR(results->file_.Truncate(results->end_));
    return results;
  }

  int64_t known() const { return std::ssize(done_); }

  // Whether line `index` has a result. Errors: of another line.
  Result<bool> Has(int64_t index, const std::string& hash, const BatchJob& job) const {
    const auto found = done_.find(index);
    if (found == done_.end()) return false;
    if (found->second.hash == hash) return true;
    return InvalidArgumentError(fmt::format("line {} of {} is not the one that {} has a result of; give another --out",
                                            index + 1, job.file, job.out));
  }

  // Whether the result of line `index`, which it has, is an error.
  bool Failed(int64_t index) const { return done_.at(index).failed; }

  void Write(const Json& result) {
    const std::string line = WriteJson(result) + "\n";
    const std::lock_guard lock(mutex_);
    if (!status_.ok()) return;
    if (file_.is_open()) {
      status_ = file_.WriteAt(end_, {reinterpret_cast<const uint8_t*>(line.data()), line.size()});
      end_ += std::ssize(line);
    } else if (std::fwrite(line.data(), 1, line.size(), stdout) != line.size() || std::fflush(stdout) != 0) {
      status_ = IoError("standard output cannot be written to any more");
    }
  }

  Status status() const {
    const std::lock_guard lock(mutex_);
    return status_;
  }

 private:
  // Whether it counts: the last line does not when it was cut off.
  Result<bool> Learn(std::string_view text, const std::string& path, bool last) {
    const Result<Json> json = ParseJson(text, path);
    if (!json.ok() && last && text.substr(0, kResultStart.size()) == kResultStart.substr(0, text.size())) {
      return false;
    }
    const Json* const index = json.ok() ? json->Find("index") : nullptr;
    const Json* const hash = json.ok() ? json->Find("line") : nullptr;
    if (index == nullptr || !index->is_int() || hash == nullptr || !hash->is_string()) {
      return InvalidArgumentError(fmt::format("{} is there and holds no results of a batch; give another --out", path));
    }
    done_.emplace(index->as_int(), Known{hash->as_string(), json->Find("error") != nullptr});
    return true;
  }

  File file_;
  int64_t end_ = 0;
  struct Known {
    std::string hash;  // of the line
    bool failed = false;
  };
  std::map<int64_t, Known> done_;  // by index
  mutable std::mutex mutex_;
  Status status_;
};

// One prompt on its way.
struct Running {
  int64_t index = 0;
  std::string hash;
  Json id;
  GenerateOptions options;
  std::unique_ptr<ModelFiles::TextStream> stream;  // nullptr: no tokenizer
  std::string text;
};

Json ResultJson(Running& run, const GenerateResult& result) {
  Json::Object object{{"index", run.index}, {"line", run.hash}};
  if (!run.id.is_null()) object.emplace_back("id", run.id);
  const bool stopped = run.stream != nullptr && run.stream->stopped();
  if (run.stream != nullptr) {
    object.emplace_back("text", run.text + run.stream->Finish());
  } else {
    object.emplace_back("ids", IdsJson(result.ids));
  }
  object.emplace_back("finish_reason", FinishName(stopped ? FinishReason::kStop : result.finish_reason));
  object.emplace_back("prompt_tokens", result.prompt_tokens);
  object.emplace_back("tokens", std::ssize(result.ids));
  if (!result.logprobs.empty()) object.emplace_back("logprobs", LogprobsJson(result));
  return object;
}

Json ErrorJson(int64_t index, const std::string& hash, const Json& id, const Status& status) {
  Json::Object object{{"index", index}, {"line", hash}};
  if (!id.is_null()) object.emplace_back("id", id);
  object.emplace_back("error", Json::Object{{"type", StatusCodeName(status.code())}, {"message", status.message()}});
  return object;
}

class Batch {
 public:
  Batch(const ModelFiles& files, const BatchJob& job, Results& results, Survey survey)
      : files_(files), job_(job), results_(results), survey_(survey) {}

  Result<int> Run(Engine& engine) {
    const Clock::time_point start = Clock::now();
    ASSIGN_OR_RETURN(const File file, File::OpenRead(job_.file));
    Status status;
    {
      ASSIGN_OR_RETURN(const std::unique_ptr<Scheduler> scheduler, engine.NewScheduler({}));
      int64_t index = 0;
      status = ReadLines(file.fd(), job_.file, [&](std::string_view text, bool too_long) {
        return Submit(*scheduler, index++, text, too_long);
      });
      if (status.ok()) status = WaitUntil([this] { return waiting_ == 0; });
      // What still runs ends with the scheduler.
    }
    progress_.Clear();
    RETURN_IF_ERROR(results_.status());
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    const int64_t failed = failed_before_ + failed_;
    std::fprintf(stderr, "%s\n",
                 fmt::format("{} of {} prompts done{}, {} tokens in {:.1f} s ({:.2f} tok/s){}", skipped_ + done_,
                             survey_.lines, skipped_ > 0 ? fmt::format(" ({} before)", skipped_) : "", tokens_, seconds,
                             static_cast<double>(tokens_) / std::max(seconds, 1e-9),
                             failed > 0 ? fmt::format("; {} failed, each with its error in the results{}", failed,
                                                      failed_before_ > 0 ? " (another --out asks again)" : "")
                                        : "")
                     .c_str());
    if (status.code() == StatusCode::kCancelled) {
      if (!job_.out.empty()) std::fputs("stopped; the same command goes on from here\n", stderr);
      return kExitInterrupted;
    }
    RETURN_IF_ERROR(status);
    return failed > 0 ? 1 : 0;
  }

 private:
  Status Submit(Scheduler& scheduler, int64_t index, std::string_view text, bool too_long) {
    const std::string hash = HashOf(text);
    ASSIGN_OR_RETURN(const bool has, results_.Has(index, hash, job_));
    if (has) {
      ++(results_.Failed(index) ? failed_before_ : skipped_);
      return Status();
    }
    RETURN_IF_ERROR(WaitUntil([this] { return waiting_ < job_.parallel * (1 + kWaitingPerRunning); }));
    Json id;
    Result<Line> line = ParseLine(text, too_long, files_, job_, id);
    if (!line.ok()) {
      Fail(index, hash, id, line.status());
      return Status();
    }
    auto run = std::make_shared<Running>(Running{.index = index,
                                                 .hash = hash,
                                                 .id = std::move(id),
                                                 .options = line->options.generate,
                                                 .stream = {},
                                                 .text = {}});
    if (files_.has_tokenizer()) {
      ASSIGN_OR_RETURN(run->stream, files_.NewTextStream(line->options.stops));
    }
    {
      const std::lock_guard lock(mutex_);
      ++waiting_;
    }
    const Result<uint64_t> submitted =
        scheduler.Submit({.prompt = std::move(line->prompt), .options = line->options.generate},
                         {.on_token = [this, run](const GeneratedToken& token) { return Token(*run, token.token); },
                          .on_prompt = {},
                          .on_end = [this, run](Result<GenerateResult> result) { End(*run, result); }});
    if (submitted.ok()) return Status();
    {
      const std::lock_guard lock(mutex_);
      --waiting_;
    }
    Fail(index, hash, run->id, submitted.status());
    return Status();
  }

  bool Token(Running& run, int32_t token) {
    if (run.stream == nullptr || EndsText(run.options, files_.stop_ids(), token)) return true;
    run.text += run.stream->Push(token);
    return !run.stream->stopped();
  }

  void End(Running& run, const Result<GenerateResult>& result) {
    if (!result.ok()) {
      Fail(run.index, run.hash, run.id, result.status());
    } else if (result->finish_reason != FinishReason::kCancelled || (run.stream != nullptr && run.stream->stopped())) {
      results_.Write(ResultJson(run, *result));
      const std::lock_guard lock(mutex_);
      ++done_;
      tokens_ += std::ssize(result->ids);
      progress_.Update(skipped_ + failed_before_ + done_ + failed_, survey_.lines);
    }
    const std::lock_guard lock(mutex_);
    --waiting_;
    changed_.notify_one();
  }

  void Fail(int64_t index, const std::string& hash, const Json& id, const Status& status) {
    results_.Write(ErrorJson(index, hash, id, status));
    const std::lock_guard lock(mutex_);
    ++failed_;
  }

  // Errors: kCancelled on Ctrl-C; those of writing results.
  template <typename Condition>
  Status WaitUntil(const Condition& condition) {
    constexpr std::chrono::milliseconds kLook{100};
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, kLook, condition)) {
      if (Interrupted()) return CancelledError("stopped");
      RETURN_IF_ERROR(results_.status());
    }
    return Interrupted() ? CancelledError("stopped") : results_.status();
  }

  const ModelFiles& files_;
  const BatchJob& job_;
  Results& results_;
  const Survey survey_;
  int64_t skipped_ = 0;  // done before
  int64_t failed_before_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t waiting_ = 0;  // submitted and not ended
  int64_t done_ = 0;
  int64_t failed_ = 0;
  int64_t tokens_ = 0;
  Progress progress_{"batch", ProgressUnit::kPrompts};
};

}  // namespace

Result<int> RunBatch(const ModelFiles& files, EngineOptions options, const BatchJob& job) {
  RETURN_IF_ERROR(InRange("--parallel", job.parallel, 1, kMostParallel).status());
  ASSIGN_OR_RETURN(const std::unique_ptr<Results> results, Results::Open(job.out));
  const int64_t limit = options.context_limit > 0 ? options.context_limit : files.max_context();
  ASSIGN_OR_RETURN(const Survey survey, LookThrough(files, limit, job));
  const int64_t at_once = std::min(job.parallel, survey.lines);
  options.context = survey.longest;
  options.max_sequences = static_cast<int32_t>(at_once);
  options.reuse_prefixes = true;
  options.kv_tokens = std::max(survey.positions, survey.longest);
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Start(files, options));
  std::fprintf(stderr, "Batch -> %s\n",
               fmt::format("{} prompts, {} at once{}", survey.lines, at_once,
                           results->known() > 0 ? fmt::format(", {} done before", results->known()) : "")
                   .c_str());
  return Batch(files, job, *results, survey).Run(*engine);
}

}  // namespace nunspark::cli
