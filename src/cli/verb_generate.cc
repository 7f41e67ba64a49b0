#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <limits>
#include <memory>

#include <fmt/format.h>

#include "base/json.h"
#include "base/size.h"
#include "cli/engine_flags.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "cli/run_report.h"
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
  PromptFlags prompt;
  int64_t max_tokens = 32;
  double temperature = 0;
  int32_t top_k = 0;
  double top_p = 1;
  double min_p = 0;
  std::string seed = "0";
  bool ignore_eos = false;
  bool no_chat_template = false;
  bool metrics = false;
  bool json = false;
  std::string system;
  // Of the original, for features that are not built yet.
  std::string kv_budget = "1TB";
  int64_t kv_bits = 0;
  int64_t kv_group_size = 64;
  std::string draft_model, eagle_drafter;
  bool ngram_draft = false;
  int64_t ngram_max = 3, num_draft_tokens = 16, accept_top_k = 1;
  std::string expert_trace;
  bool no_ngram_adaptive = false;
};

// Flags of the original. Those that cannot change anything here are taken in silence.
void AddOriginalFlags(CLI::App& verb, Flags& flags) {
  const char* const kGroup = "Of the original";
  verb.add_option("--kv-budget", flags.kv_budget, "resident KV before spilling to disk (spilling is not built yet)")
      ->capture_default_str()
      ->group(kGroup);
  verb.add_option("--kv-bits", flags.kv_bits, "quantised KV: not built yet")->group(kGroup);
  verb.add_option("--kv-group-size", flags.kv_group_size, "with --kv-bits")->group(kGroup);
  verb.add_option("--draft-model", flags.draft_model, "not built yet")->group(kGroup);
  verb.add_option("--eagle-drafter", flags.eagle_drafter, "not built yet")->group(kGroup);
  verb.add_flag("--ngram-draft", flags.ngram_draft, "not built yet")->group(kGroup);
  verb.add_option("--ngram-max", flags.ngram_max, "with --ngram-draft")->group(kGroup);
  verb.add_flag("--no-ngram-adaptive", flags.no_ngram_adaptive, "with --ngram-draft")->group(kGroup);
  verb.add_option("--num-draft-tokens", flags.num_draft_tokens, "with a drafter")->group(kGroup);
  verb.add_option("--accept-top-k", flags.accept_top_k, "with a drafter; above 1 not built yet")->group(kGroup);
}

// Errors: what was asked for and is not there yet.
Status CheckOriginalFlags(const Flags& flags) {
  const bool drafter = !flags.draft_model.empty() || !flags.eagle_drafter.empty();
  if (flags.ngram_draft && drafter) {
    return InvalidArgumentError("--ngram-draft cannot be used together with --draft-model or --eagle-drafter");
  }
  const std::pair<bool, const char*> unbuilt[] = {{!flags.draft_model.empty(), "--draft-model"},
                                                  {!flags.eagle_drafter.empty(), "--eagle-drafter"},
                                                  {flags.ngram_draft, "--ngram-draft"},
                                                  {flags.kv_bits != 0, "--kv-bits"},
                                                  {flags.accept_top_k > 1, "--accept-top-k above 1"}};
  for (const auto& [asked, name] : unbuilt) {
    if (asked) return UnsupportedError(fmt::format("{} is not built yet; drop the flag", name));
  }
  const Result<int64_t> kv_budget = ParseSize(flags.kv_budget);
  if (!kv_budget.ok()) return kv_budget.status().WithContext("--kv-budget");
  return Status();
}

// The whole 64-bit range and nothing beyond it.
Result<uint64_t> ParseSeed(const std::string& text) {
  uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error == std::errc() && end == text.data() + text.size()) return seed;
  return InvalidArgumentError(
      fmt::format("--seed must be from 0 to {}, found '{}'", std::numeric_limits<uint64_t>::max(), text));
}

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
  if (!flags.no_chat_template) {
    Json::Array messages;
    if (!flags.system.empty()) messages.push_back(Json::Object{{"role", "system"}, {"content", flags.system}});
    messages.push_back(Json::Object{{"role", "user"}, {"content", text}});
    const Json context(Json::Object{
        {"messages", std::move(messages)}, {"tools", Json()}, {"documents", Json()}, {"add_generation_prompt", true}});
    const Result<std::string> formatted = files.FormatChat(WriteJson(context));
    if (formatted.ok()) return files.Encode(*formatted);
    if (formatted.status().code() != StatusCode::kNotFound) {
      std::fprintf(stderr, "Note: the chat template cannot be applied, the prompt is used as it is (%s)\n",
                   formatted.status().message().c_str());
    }
  }
  return files.EncodeWithSpecials(text);
}

// Writes text as it is decoded; without a tokenizer, the ids.
class Output {
 public:
  explicit Output(bool quiet) : quiet_(quiet) {}

  Status Open(const ModelFiles& files) {
    if (!files.has_tokenizer()) return Status();
    ASSIGN_OR_RETURN(stream_, files.NewTextStream());
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

Result<int> Run(const Flags& flags) {
  RETURN_IF_ERROR(CheckOriginalFlags(flags));
  ASSIGN_OR_RETURN(EngineOptions engine_options, MakeEngineOptions(flags.engine));
  if (flags.max_tokens < 1 || flags.max_tokens > (1 << 28)) {
    return InvalidArgumentError(fmt::format("--max-tokens must be from 1 to 2^28, found {}", flags.max_tokens));
  }
  ASSIGN_OR_RETURN(const uint64_t seed, ParseSeed(flags.seed));
  const GenerateOptions options{.max_tokens = static_cast<int32_t>(flags.max_tokens),
                                .sampling = {.temperature = flags.temperature,
                                             .top_k = flags.top_k,
                                             .top_p = flags.top_p,
                                             .min_p = flags.min_p,
                                             .seed = seed},
                                .ignore_eos = flags.ignore_eos};

  RunClock clock;
  ASSIGN_OR_RETURN(const std::unique_ptr<ModelFiles> files, ModelFiles::Open(flags.model));
  ASSIGN_OR_RETURN(const std::vector<int32_t> prompt, PromptIds(flags, *files));
  // The last token is not processed, so it needs no position.
  engine_options.context = static_cast<int64_t>(prompt.size()) + flags.max_tokens - 1;
  engine_options.expert_trace = flags.expert_trace;
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Start(*files, engine_options));
  ASSIGN_OR_RETURN(const int64_t kv_budget, ParseSize(flags.kv_budget));
  if (engine->plan().kv > kv_budget) {
    return UnsupportedError(
        fmt::format("--kv-budget {} is less than the {} of keys and values; spilling them is not built yet",
                    flags.kv_budget, FormatSize(engine->plan().kv)));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, engine->NewSession());
  std::fprintf(stderr, "Prompt -> %zu tokens\n", prompt.size());
  clock.Loaded();

  Output output(flags.json);
  RETURN_IF_ERROR(output.Open(*files));
  Progress progress("prompt", ProgressUnit::kTokens);
  const InterruptsSession interrupts(*session);
  const std::vector<int32_t>& stop_ids = files->stop_ids();
  Result<GenerateResult> result = session->Generate(
      prompt, options,
      [&](int32_t token) {
        progress.Clear();
        output.Token(token, !flags.ignore_eos && std::binary_search(stop_ids.begin(), stop_ids.end(), token));
        return !output.failed();
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
  if (output.failed()) return IoError("standard output cannot be written to any more");

  const RunReport report{.result = *result,
                         .prompt = prompt,
                         .text = output.text(),
                         .stats = engine->stats(),
                         .pages = engine->pages(),
                         .plan = engine->plan(),
                         .load_s = clock.load_s(),
                         .budget_text = flags.engine.budget,
                         .kv_budget_text = flags.kv_budget,
                         .kv_budget_bytes = kv_budget,
                         .prefetch = !flags.engine.no_prefetch,
                         .lookahead = flags.engine.lookahead,
                         .model_bytes = files->weight_bytes(),
                         .isa = std::string(engine->isa()),
                         .threads = engine->threads(),
                         .io = engine->io_description(),
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
  verb->add_option("model", flags->model, "pack, or checkpoint folder (Hugging Face or MLX)")->required();
  CLI::Option* const prompt = verb->add_option("--prompt", flags->prompt.text, "text, sent as one user message");
  verb->add_option("--prompt-file", flags->prompt.file, "file with the text (else standard input)");
  verb->add_option("--system", flags->system, "system message before the prompt");
  AddPromptIdFlags(*verb, flags->prompt);
  verb->add_flag("--no-chat-template", flags->no_chat_template, "encode the text as it is");
  verb->add_option("--max-tokens", flags->max_tokens, "tokens to generate at most")->capture_default_str();
  verb->add_option("--temp", flags->temperature, "temperature; 0 = always the most probable token")
      ->capture_default_str();
  verb->add_option("--top-k", flags->top_k, "sample among the k most probable; 0 = off")->capture_default_str();
  verb->add_option("--top-p", flags->top_p, "sample among the most probable that reach p")->capture_default_str();
  verb->add_option("--min-p", flags->min_p, "drop tokens less probable than this share of the best")
      ->capture_default_str();
  verb->add_option("--seed", flags->seed, "same seed, same text")->capture_default_str();
  verb->add_flag("--ignore-eos", flags->ignore_eos, "do not stop at end tokens");
  verb->add_flag("--metrics", flags->metrics, "statistics after the text");
  verb->add_flag("--json", flags->json, "one JSON object at the end instead of text");
  verb->add_option("--expert-trace", flags->expert_trace,
                   "write which experts each layer chose to this file (for bench cache-sim and plan --trace)");
  AddEngineFlags(*verb, flags->engine);
  AddOriginalFlags(*verb, *flags);
  verb->footer(
      "Example: nunspark generate ./Qwen3-30B-A3B-4bit --prompt \"Why is the sky blue?\" --budget 6GB --max-tokens 200 "
      "--metrics");
  verb->callback([flags, prompt, action] {
    flags->prompt.text_given = prompt->count() > 0;
    *action = [flags] { return Run(*flags); };
  });
}

}  // namespace nunspark::cli
