#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <limits>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "base/json.h"
#include "base/size.h"
#include "cli/drafter_flags.h"
#include "cli/engine_flags.h"
#include "cli/generate_batch.h"
#include "cli/interrupt.h"
#include "cli/model_argument.h"
#include "cli/progress.h"
#include "cli/prompt.h"
#include "cli/run_report.h"
#include "cli/sampling_flags.h"
#include "cli/step_trace.h"
#include "cli/verbs.h"
#include "io/file.h"
#include "nunspark/engine.h"

namespace nunspark::cli {
namespace {

// Far beyond any context; text of this size is a mistake.
constexpr int64_t kMaxPromptBytes = 64 << 20;

struct Flags {
  std::string model;
  EngineFlags engine;
  DrafterFlags drafter;
  SamplingFlags sampling;
  PromptFlags prompt;
  std::string system;
  bool no_chat_template = false;
  std::string batch, out;
  int64_t parallel = 8;
  std::string prefix_file;
  bool metrics = false;
  bool json = false;
  std::string expert_trace, step_trace;
};

Result<std::string> ReadPromptText(const Flags& flags) {
  if (flags.prompt.text_given) return flags.prompt.text;
  if (!flags.prompt.file.empty())
    return ReadWholeFile(flags.prompt.file,
                         {.max_bytes = kMaxPromptBytes, .limit_reason = "the longest prompt that is taken"});
  if (isatty(STDIN_FILENO) == 1) {
    return InvalidArgumentError(
        "no prompt given; use --prompt TEXT, --prompt-file FILE, --prompt-ids 1,2,3, or pipe text in");
  }
  ASSIGN_OR_RETURN(
      const std::string text,
      ReadWholeFile("/dev/stdin", {.max_bytes = kMaxPromptBytes, .limit_reason = "the longest prompt that is taken"}));
  if (text.empty()) return InvalidArgumentError("no prompt given: standard input is empty; use --prompt TEXT");
  return text;
}

// The prompt's ids: given ones, or the text as one user message through the chat template.
Result<std::vector<int32_t>> PromptIds(const Flags& flags, const ModelFiles& files) {
  const InterruptsExit interrupts;  // a pipe may never end
  const bool ids_given = !flags.prompt.ids.empty() || !flags.prompt.ids_file.empty();
  if (ids_given && !flags.prompt.text_given && flags.prompt.file.empty()) return ReadPromptIds(flags.prompt);
  ASSIGN_OR_RETURN(std::string text, ReadPromptText(flags));
  if (flags.no_chat_template) return files.EncodeWithSpecials(text);
  Json::Array messages;
  if (!flags.system.empty()) messages.push_back(Message("system", flags.system));
  messages.push_back(Message("user", std::move(text)));
  return ChatPrompt(files, std::move(messages));
}

// Writes text as it is decoded; without a tokenizer, the ids.
class Output {
 public:
  explicit Output(bool quiet) : quiet_(quiet) {}

  // Errors: kInvalidArgument for stop strings without a tokenizer.
  Status Open(const ModelFiles& files, const std::vector<std::string>& stops) {
    if (!files.has_tokenizer() && stops.empty()) return Status();
    ASSIGN_OR_RETURN(stream_, files.NewTextStream(stops));
    return Status();
  }

  void Token(int32_t token, bool is_stop) {
    // The token that ends the text is no part of it.
    if (is_stop) return;
    Write(stream_ ? stream_->Push(token) : fmt::format("{}{}", first_ ? "" : ",", token));
    first_ = false;
  }

  void Finish() {
    if (stream_) Write(stream_->Finish());
  }

  bool failed() const { return failed_; }
  bool stopped() const { return stream_ != nullptr && stream_->stopped(); }
  const std::string& text() const { return text_; }

 private:
  void Write(const std::string& piece) {
    text_ += piece;
    if (quiet_ || piece.empty()) return;
    failed_ |= std::fwrite(piece.data(), 1, piece.size(), stdout) != piece.size() || std::fflush(stdout) != 0;
  }

  bool quiet_;
  bool first_ = true;
  bool failed_ = false;
  std::string text_;
  std::unique_ptr<ModelFiles::TextStream> stream_;
};

Result<int> RunPrompts(const Flags& flags, const ModelFiles& files, EngineOptions options, TextOptions text) {
  if (flags.prompt.given() || flags.json || flags.metrics || !flags.step_trace.empty()) {
    return InvalidArgumentError(
        "--batch takes its prompts from the file and tells their figures at the end; drop --prompt, "
        "--prompt-ids, --json, --metrics and --step-trace");
  }
  return RunBatch(files, std::move(options),
                  {.file = flags.batch,
                   .out = flags.out,
                   .parallel = flags.parallel,
                   .system = flags.system,
                   .chat_template = !flags.no_chat_template,
                   .defaults = std::move(text)});
}

Result<int> Run(const Flags& flags) {
  ASSIGN_OR_RETURN(EngineOptions engine_options, MakeEngineOptions(flags.engine));
  ASSIGN_OR_RETURN(engine_options.drafter, MakeDrafterOptions(flags.drafter));
  engine_options.expert_trace = flags.expert_trace;
  engine_options.reuse_prefixes = !flags.prefix_file.empty();
  engine_options.prefix_file = flags.prefix_file;
  ASSIGN_OR_RETURN(TextOptions text, MakeTextOptions(flags.sampling));
  const GenerateOptions& options = text.generate;

  RunClock clock;
  ASSIGN_OR_RETURN(const std::unique_ptr<ModelFiles> files, ModelFiles::Open(flags.model));
  WarnOfContext(flags.engine.context, *files);
  if (!flags.batch.empty()) return RunPrompts(flags, *files, std::move(engine_options), std::move(text));
  if (!flags.out.empty()) return InvalidArgumentError("--out goes with --batch; redirect standard output instead");
  ASSIGN_OR_RETURN(const std::vector<int32_t> prompt, PromptIds(flags, *files));
  // The last token is not processed, so it needs no position.
  engine_options.context = std::ssize(prompt) + options.max_tokens - 1;
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Start(*files, engine_options));
  ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, engine->NewSession());
  std::fprintf(stderr, "Prompt -> %zu tokens\n", prompt.size());
  NoteUnusedPrefixes(*engine, flags.prefix_file);
  clock.Loaded();

  std::optional<StepTrace> steps;
  if (!flags.step_trace.empty()) {
    ASSIGN_OR_RETURN(steps, StepTrace::Create(flags.step_trace));
  }
  Output output(flags.json);
  RETURN_IF_ERROR(output.Open(*files, text.stops));
  Progress progress("prompt", ProgressUnit::kTokens);
  const InterruptsSession interrupts(*session);
  Result<GenerateResult> result = session->Generate(
      prompt, options,
      [&](int32_t token) {
        progress.Clear();
        if (steps) steps->Add(engine->stats().cache);
        output.Token(token, EndsText(options, files->stop_ids(), token));
        return !output.failed() && !output.stopped();
      },
      [&](int64_t done, int64_t total) {
        progress.Update(done, total);
        return true;
      });
  progress.Clear();
  if (!result.ok()) {
    if (!output.text().empty() && !flags.json) std::fputs("\n", stdout);
    return result.status();
  }
  output.Finish();
  if (output.stopped()) result->finish_reason = FinishReason::kStop;
  if (steps) RETURN_IF_ERROR(steps->Flush());
  if (output.failed()) return IoError("standard output cannot be written to any more");
  if (const Status saved = engine->SavePrefixes(); !saved.ok()) {
    std::fprintf(stderr, "Note: the prompt's keys and values are not kept: %s\n", saved.message().c_str());
  }

  const RunReport report{.result = *result,
                         .prompt = prompt,
                         .text = output.text(),
                         .stats = engine->stats(),
                         .pages = engine->pages(),
                         .plan = engine->plan(),
                         .load_s = clock.load_s(),
                         .budget_text = flags.engine.budget,
                         .kv_budget_text = flags.engine.kv_budget,
                         .kv_budget_bytes = *engine_options.kv_budget_bytes,
                         .drafter = engine_options.drafter,
                         .prefetch = !flags.engine.no_prefetch,
                         .lookahead = flags.engine.lookahead,
                         .model_bytes = files->weight_bytes(),
                         .isa = std::string(engine->isa()),
                         .threads = engine->threads(),
                         .io = engine->io_description(),
                         .warm_start_note = std::string(engine->warm_start_note()),
                         .numerics = std::string(engine->numerics()),
                         .model_folder = files->folder(),
                         .io_choice = engine_options.io,
                         .direct_io = engine_options.direct_io};
  if (flags.json) {
    std::puts(ReportJson(report).c_str());
  } else {
    std::puts("");
    if (flags.metrics) std::fputs(ReportText(report).c_str(), stdout);
  }
  std::fflush(stdout);
  return result->finish_reason == FinishReason::kCancelled ? kExitInterrupted : 0;
}

}  // namespace

void AddGenerate(CLI::App& app, Action* action) {
  auto flags = std::make_shared<Flags>();
  CLI::App* const verb = app.add_subcommand("generate", "generate text, streaming the weights under a budget");
  verb->add_option("model", flags->model, kModelArgument)->required();
  CLI::Option* const prompt = verb->add_option("--prompt", flags->prompt.text, "text, sent as one user message");
  verb->add_option("--prompt-file", flags->prompt.file, "file with the text (else standard input)");
  verb->add_option("--system", flags->system, "system message before the prompt");
  AddPromptIdFlags(*verb, flags->prompt);
  verb->add_flag("--no-chat-template", flags->no_chat_template, "encode the text as it is");
  AddSamplingFlags(*verb, flags->sampling);
  verb->add_option("--batch", flags->batch,
                   "a file of prompts instead, a line of JSON each: {\"prompt\": \"..\", \"max_tokens\": 100}")
      ->group("Many prompts");
  verb->add_option("--out", flags->out, "with --batch: add the results to this file, and go on where it ends")
      ->group("Many prompts");
  verb->add_option("--prefix-file", flags->prefix_file,
                   "keep what is computed for this prompt here, and begin with what an earlier run kept");
  verb->add_option("--parallel", flags->parallel, "with --batch: prompts at once")
      ->capture_default_str()
      ->group("Many prompts");
  verb->add_flag("--metrics", flags->metrics, "statistics after the text");
  verb->add_flag("--json", flags->json, "one JSON object at the end instead of text");
  verb->add_option("--expert-trace", flags->expert_trace,
                   "write which experts each layer chose to this file (for bench cache-sim and plan --trace)");
  verb->add_option("--step-trace", flags->step_trace,
                   "write what each token took to this file: time, waiting, bytes, hits, memory");
  AddDrafterFlags(*verb, flags->drafter);
  AddContextFlag(*verb, flags->engine);
  AddEngineFlags(*verb, flags->engine);
  verb->footer(
      "Example: nunspark generate ./Qwen3-30B-A3B-4bit --prompt \"Why is the sky blue?\" --budget 6GB --max-tokens 200 "
      "--metrics");
  verb->callback([flags, prompt, action] {
    flags->prompt.text_given = prompt->count() > 0;
    *action = OnModel(flags, Run);
  });
}

}  // namespace nunspark::cli
