#include "cli/selfcheck.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>

#include <fmt/format.h>

#include "base/errno_status.h"
#include "base/json.h"
#include "base/size.h"
#include "cli/interrupt.h"
#include "engine/engine_plan.h"
#include "engine/model_files.h"
#include "kernels/kernels.h"

extern "C" char** environ;

namespace nunspark::cli {
namespace {

constexpr const char* kProgram = "/proc/self/exe";

class Selfcheck {
 public:
  Selfcheck(const ModelFilesImpl& files, const SelfcheckOptions& options,
            const std::function<void(const Check&)>& on_check, const std::function<void(int64_t, int64_t)>& on_token)
      : files_(files), options_(options), on_check_(on_check), on_token_(on_token), plain_(options.engine) {
    plain_.drafter = {};
    plain_.context = 0;
    for (const SequenceRequest& request : options.requests) {
      plain_.context = std::max(plain_.context, std::ssize(request.prompt) + request.options.max_tokens);
    }
  }

  Result<std::vector<Check>> Run() {
    RETURN_IF_ERROR(ChooseBudgets());
    total_ = CountTokens();
    ASSIGN_OR_RETURN(expected_, Alone(plain_));
    RETURN_IF_ERROR(CheckStreaming());
    RETURN_IF_ERROR(CheckThreads());
    RETURN_IF_ERROR(CheckBatch());
    for (const DrafterOptions& drafter : Drafters()) RETURN_IF_ERROR(CheckDrafter(drafter));
    for (const KernelTable* table : AvailableKernels()) {
      if (table != &Kernels()) RETURN_IF_ERROR(CheckIsa(std::string(table->name)));
    }
    return checks_;
  }

 private:
  // The reference has all weights in memory, where that is possible, else as much as the machine leaves.
  Status ChooseBudgets() {
    ASSIGN_OR_RETURN(const EnginePlan given, MakeEnginePlan(files_, plain_));
    floor_ = given.memory.floor_bytes;
    int64_t budget = std::min(given.memory.budget_bytes, given.memory.full_bytes);
    const bool chosen = plain_.budget_bytes.has_value() || plain_.memory_bytes.has_value();
    if (!chosen && budget < given.memory.full_bytes) {
      EngineOptions resident = plain_;
      resident.budget_bytes = given.memory.full_bytes;
      if (MakeEnginePlan(files_, resident).ok()) budget = given.memory.full_bytes;
    }
    plain_.memory_bytes = std::nullopt;
    plain_.budget_bytes = budget;
    reference_ =
        fmt::format("{}, budget {}", budget >= given.memory.full_bytes ? "resident" : "streamed", FormatSize(budget));
    return Status();
  }

  int64_t CountTokens() const {
    int64_t all = 0;
    for (const SequenceRequest& request : options_.requests) all += request.options.max_tokens;
    return all * (4 + std::ssize(Drafters()));
  }

  std::vector<DrafterOptions> Drafters() const {
    DrafterOptions ngram = options_.engine.drafter;
    ngram.ngram = true;
    ngram.eagle_dir.clear();
    ngram.draft_model.clear();
    ngram.tree.clear();
    ngram.accept_top_k = 1;
    ngram.ngram_adaptive = ngram.adaptive = false;
    std::vector<DrafterOptions> drafters = {ngram};
    DrafterOptions given = options_.engine.drafter;
    given.adaptive = false;
    if (!given.eagle_dir.empty() || !given.draft_model.empty()) drafters.push_back(given);
    return drafters;
  }

  bool OnToken() {
    on_token_(++done_, total_);
    return !Interrupted();
  }

  // Each request on its own, in one engine.
  Result<std::vector<CheckOutput>> Alone(const EngineOptions& options, DraftStats* drafts = nullptr) {
    ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Start(files_, options));
    ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, engine->NewSession());
    const InterruptsSession interrupts(*session);
    std::vector<CheckOutput> outputs;
    for (const SequenceRequest& request : options_.requests) {
      ASSIGN_OR_RETURN(GenerateResult result,
                       session->Generate(request.prompt, request.options, [this](int32_t) { return OnToken(); }));
      if (result.finish_reason == FinishReason::kCancelled) return CancelledError("stopped");
      if (drafts != nullptr) {
        drafts->proposed += result.drafts.proposed;
        drafts->accepted += result.drafts.accepted;
      }
      outputs.push_back({std::move(result.ids), std::move(result.logprobs)});
    }
    return outputs;
  }

  // All requests at once.
  Result<std::vector<CheckOutput>> Together(EngineOptions options) {
    options.max_sequences = static_cast<int32_t>(options_.requests.size());
    ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Start(files_, options));
    std::vector<CheckOutput> outputs(options_.requests.size());
    std::mutex mutex;
    std::condition_variable changed;
    size_t left = outputs.size();
    Status failure;
    // Declared last: its end is that of all callbacks.
    ASSIGN_OR_RETURN(const std::unique_ptr<Scheduler> scheduler, engine->NewScheduler({}));
    for (size_t i = 0; i < outputs.size(); ++i) {
      const auto end = [&, i](Result<GenerateResult> result) {
        const std::lock_guard lock(mutex);
        if (result.ok()) {
          outputs[i] = {std::move(result->ids), std::move(result->logprobs)};
        } else {
          failure = result.status();
        }
        --left;
        changed.notify_all();
      };
      const Result<uint64_t> id = scheduler->Submit(
          options_.requests[i],
          {.on_token = [this](const GeneratedToken&) { return OnToken(); }, .on_prompt = {}, .on_end = end});
      RETURN_IF_ERROR(id.status());
    }
    constexpr std::chrono::milliseconds kLook{100};
    std::unique_lock lock(mutex);
    while (!changed.wait_for(lock, kLook, [&] { return left == 0; })) {
      if (Interrupted()) return CancelledError("stopped");
    }
    if (Interrupted()) return CancelledError("stopped");
    RETURN_IF_ERROR(failure);
    return outputs;
  }

  Status CheckStreaming() {
    Check check{.name = fmt::format("streamed, budget {}", FormatSize(floor_)), .against = reference_};
    if (*plain_.budget_bytes <= floor_) {
      check.skipped = "the budget is the least that the model takes already";
      return Add(std::move(check), expected_);
    }
    EngineOptions options = plain_;
    options.budget_bytes = floor_;
    return Add(std::move(check), Alone(options));
  }

  Status CheckThreads() {
    ASSIGN_OR_RETURN(const EnginePlan plan, MakeEnginePlan(files_, plain_));
    EngineOptions options = plain_;
    options.threads = plan.threads > 1 ? 1 : 2;
    return Add({.name = fmt::format("{} thread{}", options.threads, options.threads == 1 ? "" : "s"),
                .against = fmt::format("{} thread{}", plan.threads, plan.threads == 1 ? "" : "s")},
               Alone(options));
  }

  Status CheckBatch() {
    return Add({.name = fmt::format("batched, {} at once", options_.requests.size()), .against = "one at a time"},
               Together(plain_));
  }

  Status CheckDrafter(const DrafterOptions& drafter) {
    EngineOptions options = plain_;
    options.drafter = drafter;
    DraftStats drafts;
    const Result<std::vector<CheckOutput>> outputs = Alone(options, &drafts);
    return Add({.name = drafter.ngram               ? "drafts by prompt lookup"
                        : drafter.eagle_dir.empty() ? "drafts of --draft-model"
                                                    : "drafts of --eagle-drafter",
                .against = "no drafts",
                .note = fmt::format("{} of {} drafted tokens taken", drafts.accepted, drafts.proposed)},
               outputs);
  }

  // The table of kernels is chosen once for a process, so another one needs another process.
  Status CheckIsa(const std::string& isa) {
    Check check{.name = isa, .against = std::string(Kernels().name)};
    std::vector<CheckOutput> expected = {expected_.front()};
    const size_t tokens = std::min(expected[0].ids.size(), static_cast<size_t>(options_.isa_tokens));
    expected[0].ids.resize(tokens);
    expected[0].logprobs.resize(tokens);
    if (::access(kProgram, X_OK) != 0) {
      check.skipped = "the program cannot start itself again: /proc is not mounted";
      return Add(std::move(check), expected, expected);
    }
    return Add(std::move(check), OutputOfIsa(isa), expected);
  }

  Result<std::vector<CheckOutput>> OutputOfIsa(const std::string& isa) {
    std::vector<std::string> arguments = {"nunspark", "generate", files_.folder()};
    arguments.insert(arguments.end(), options_.isa_flags.begin(), options_.isa_flags.end());
    for (const std::string& more :
         {std::string("--budget"), fmt::format("{}", *plain_.budget_bytes), std::string("--max-tokens"),
          fmt::format("{}", options_.isa_tokens), std::string("--logprobs"), std::string("0"), std::string("--json")}) {
      arguments.push_back(more);
    }
    ASSIGN_OR_RETURN(const std::string text, RunItself(arguments, "NUNSPARK_ISA=" + isa));
    ASSIGN_OR_RETURN(const Json json, ParseJson(text, isa));
    CheckOutput output;
    const Json* const logprobs = json.Find("logprobs");
    if (logprobs == nullptr || !logprobs->is_array()) return DataLossError(isa + ": no logprobs in the output");
    for (const Json& token : logprobs->as_array()) {
      output.ids.push_back(static_cast<int32_t>(token.Find("id")->as_int()));
      output.logprobs.push_back(static_cast<float>(token.Find("logprob")->as_double()));
    }
    return std::vector<CheckOutput>{std::move(output)};
  }

  // Standard output of this very program. Errors: kIo with the end of what it wrote to standard error.
  static Result<std::string> RunItself(const std::vector<std::string>& arguments, const std::string& variable);

  // `outputs` fill in the check, which is told and kept. Errors: kCancelled; other failures are the check's own.
  Status Add(Check check, const Result<std::vector<CheckOutput>>& outputs) {
    return Add(std::move(check), outputs, expected_);
  }

  Status Add(Check check, const Result<std::vector<CheckOutput>>& outputs, const std::vector<CheckOutput>& expected) {
    if (Interrupted()) return CancelledError("stopped");
    if (check.skipped.empty()) {
      check.status = outputs.status();
      if (outputs.ok()) check.difference = FirstDifference(expected, *outputs);
      for (const CheckOutput& output : expected) check.tokens += std::ssize(output.ids);
    }
    on_check_(check);
    checks_.push_back(std::move(check));
    return Status();
  }

  const ModelFilesImpl& files_;
  const SelfcheckOptions& options_;
  const std::function<void(const Check&)>& on_check_;
  const std::function<void(int64_t, int64_t)>& on_token_;
  EngineOptions plain_;  // of all runs, but for what a check is about
  std::string reference_;
  int64_t floor_ = 0, total_ = 0, done_ = 0;
  std::vector<CheckOutput> expected_;
  std::vector<Check> checks_;
};

Result<std::string> Selfcheck::RunItself(const std::vector<std::string>& arguments, const std::string& variable) {
  int out[2], err[2];
  if (::pipe2(out, O_CLOEXEC) != 0) return ErrnoStatus(errno, "opening", "a pipe");
  if (::pipe2(err, O_CLOEXEC) != 0) {
    const int error = errno;
    ::close(out[0]);
    ::close(out[1]);
    return ErrnoStatus(error, "opening", "a pipe");
  }
  std::vector<char*> argv, environment;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const std::string name = variable.substr(0, variable.find('=') + 1);
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!std::string_view(*entry).starts_with(name)) environment.push_back(*entry);
  }
  environment.push_back(const_cast<char*>(variable.c_str()));
  environment.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err[1], STDERR_FILENO);
  pid_t child = 0;
  const int started = ::posix_spawn(&child, kProgram, &actions, nullptr, argv.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  ::close(out[1]);
  ::close(err[1]);
  // What it says on standard error is shorter than a pipe holds, so reading one after the other cannot block it.
  const auto read_all = [](int fd) {
    std::string text;
    char buffer[4096];
    for (ssize_t n; (n = ::read(fd, buffer, sizeof buffer)) != 0;) {
      if (n > 0) text.append(buffer, static_cast<size_t>(n));
      if (n < 0 && errno != EINTR) break;
    }
    ::close(fd);
    return text;
  };
  const std::string text = read_all(out[0]), messages = read_all(err[0]);
  if (started != 0) return ErrnoStatus(started, "starting", kProgram);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return text;
  const size_t error = messages.rfind("Error: ");
  return IoError(error != messages.npos ? messages.substr(error + 7, messages.find('\n', error) - error - 7)
                                        : fmt::format("{} ended with status {}", arguments[1], status));
}

}  // namespace

std::optional<Difference> FirstDifference(std::span<const CheckOutput> expected, std::span<const CheckOutput> found) {
  const auto at = [](const CheckOutput& output, size_t token) {
    return token < output.ids.size() ? std::optional<Difference::Token>({output.ids[token], output.logprobs[token]})
                                     : std::nullopt;
  };
  for (size_t prompt = 0; prompt < expected.size(); ++prompt) {
    const size_t count = std::max(expected[prompt].ids.size(), found[prompt].ids.size());
    for (size_t token = 0; token < count; ++token) {
      const auto want = at(expected[prompt], token), got = at(found[prompt], token);
      const bool same = want && got && want->id == got->id &&
                        std::bit_cast<uint32_t>(want->logprob) == std::bit_cast<uint32_t>(got->logprob);
      if (!same) return Difference{.prompt = prompt, .token = token, .expected = want, .found = got};
    }
  }
  return std::nullopt;
}

Result<std::vector<Check>> RunSelfcheck(const ModelFilesImpl& files, const SelfcheckOptions& options,
                                        const std::function<void(const Check&)>& on_check,
                                        const std::function<void(int64_t, int64_t)>& on_token) {
  return Selfcheck(files, options, on_check, on_token).Run();
}

}  // namespace nunspark::cli
