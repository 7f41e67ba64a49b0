#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/in_range.h"
#include "base/json.h"
#include "cli/drafter_flags.h"
#include "cli/engine_flags.h"
#include "cli/interrupt.h"
#include "cli/model_argument.h"
#include "cli/progress.h"
#include "cli/prompt.h"
#include "cli/selfcheck.h"
#include "cli/verbs.h"

namespace nunspark::cli {
namespace {

constexpr int64_t kMostTokens = 1 << 20;

struct Flags {
  std::string model;
  EngineFlags engine;
  DrafterFlags drafter;
  int64_t max_tokens = 32;
  bool json = false;
};

// Short and long, with much that repeats for drafts to find, and one whose tokens are drawn.
constexpr const char* kPrompts[] = {
    "Count: one, two, three, one, two, three, one, two, three,", "Why is the sky blue?",
    ("Write down the numbers from 1 to 20, then the same numbers backwards, then both lists again, with a short remark "
     "between the lists that says what comes next and why somebody would want to see it."),
    "Tell me a story about a cat and a ball."};
constexpr size_t kDrawn = 3;

// Prompts that need no tokenizer.
std::vector<int32_t> NumberedPrompt(size_t index, int64_t vocab_size) {
  std::vector<int32_t> prompt;
  const size_t length = 8 + 13 * index;
  for (size_t i = 0; i < length; ++i) {
    prompt.push_back(static_cast<int32_t>(static_cast<int64_t>(i % 5 * 7919 + index * 104729 + 13) % vocab_size));
  }
  return prompt;
}

Result<std::vector<SequenceRequest>> MakeRequests(const Flags& flags, const ModelFiles& files) {
  std::vector<SequenceRequest> requests;
  for (size_t i = 0; i < std::size(kPrompts); ++i) {
    SequenceRequest request;
    request.options = {.max_tokens = static_cast<int32_t>(flags.max_tokens), .ignore_eos = true, .logprobs = 0};
    if (i == kDrawn && flags.drafter.accept_top_k <= 1) request.options.sampling = {.temperature = 0.8, .seed = 1};
    if (files.has_tokenizer()) {
      ASSIGN_OR_RETURN(request.prompt, ChatPrompt(files, {Message("user", kPrompts[i])}));
    } else {
      request.prompt = NumberedPrompt(i, files.vocab_size());
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

// What makes `generate` run the first request with these options in another process.
std::vector<std::string> FlagsOfGenerate(const EngineFlags& flags, const std::vector<int32_t>& prompt) {
  std::vector<std::string> words = {"--prompt-ids",
                                    fmt::format("{}", fmt::join(prompt, ",")),
                                    "--ignore-eos",
                                    "--numerics",
                                    flags.numerics,
                                    "--kv",
                                    flags.kv,
                                    "--kv-bits",
                                    fmt::format("{}", flags.kv_bits),
                                    "--kv-group-size",
                                    fmt::format("{}", flags.kv_group_size),
                                    "--threads",
                                    fmt::format("{}", flags.threads)};
  if (flags.no_direct_io) words.push_back("--no-direct-io");
  return words;
}

std::string TokenText(const std::optional<Difference::Token>& token) {
  return token ? fmt::format("{} (log probability {})", token->id, token->logprob) : "no token";
}

std::string ResultText(const Check& check) {
  if (!check.skipped.empty()) return "not made: " + check.skipped;
  if (!check.status.ok()) return "FAILED: " + check.status.message();
  if (check.difference) {
    const Difference& d = *check.difference;
    return fmt::format("FAILED: prompt {}, token {}: {} instead of {}", d.prompt + 1, d.token + 1, TokenText(d.found),
                       TokenText(d.expected));
  }
  return check.note.empty() ? "ok" : "ok, " + check.note;
}

void PrintRow(const std::string& name, const std::string& against, const std::string& tokens,
              const std::string& result) {
  std::puts(fmt::format("{:<30}{:<30}{:>7}  {}", name, against, tokens, result).c_str());
  std::fflush(stdout);
}

Json TokenJson(const std::optional<Difference::Token>& token) {
  if (!token) return Json();
  return Json::Object{{"id", int64_t{token->id}}, {"logprob", static_cast<double>(token->logprob)}};
}

Json CheckJson(const Check& check) {
  Json json(Json::Object{{"name", check.name},
                         {"against", check.against},
                         {"result", check.passed()   ? "ok"
                                    : check.failed() ? "failed"
                                                     : "not made"},
                         {"tokens", check.tokens}});
  if (!check.note.empty()) json.Set("note", check.note);
  if (!check.skipped.empty()) json.Set("reason", check.skipped);
  if (!check.status.ok()) json.Set("error", check.status.message());
  if (check.difference) {
    json.Set("difference", Json::Object{{"prompt", static_cast<int64_t>(check.difference->prompt)},
                                        {"token", static_cast<int64_t>(check.difference->token)},
                                        {"expected", TokenJson(check.difference->expected)},
                                        {"found", TokenJson(check.difference->found)}});
  }
  return json;
}

Result<int> Run(const Flags& flags) {
  RETURN_IF_ERROR(InRange("--max-tokens", flags.max_tokens, 1, kMostTokens).status());
  SelfcheckOptions options;
  ASSIGN_OR_RETURN(options.engine, MakeEngineOptions(flags.engine));
  ASSIGN_OR_RETURN(options.engine.drafter, MakeDrafterOptions(flags.drafter));
  ASSIGN_OR_RETURN(const std::unique_ptr<ModelFilesImpl> files, ModelFilesImpl::OpenFolder(flags.model));
  ASSIGN_OR_RETURN(options.requests, MakeRequests(flags, *files));
  options.isa_tokens = std::min(options.isa_tokens, static_cast<int32_t>(flags.max_tokens));
  options.isa_flags = FlagsOfGenerate(flags.engine, options.requests[0].prompt);

  bool first = true;
  Progress progress("checking", ProgressUnit::kTokens);
  ASSIGN_OR_RETURN(const std::vector<Check> checks,
                   RunSelfcheck(
                       *files, options,
                       [&](const Check& check) {
                         progress.Clear();
                         if (flags.json) return;
                         if (first) PrintRow("check", "compared with", "tokens", "result");
                         first = false;
                         PrintRow(check.name, check.against,
                                  check.skipped.empty() ? fmt::format("{}", check.tokens) : "", ResultText(check));
                       },
                       [&](int64_t done, int64_t total) { progress.Update(done, total); }));
  progress.Clear();
  const auto failed = std::count_if(checks.begin(), checks.end(), [](const Check& check) { return check.failed(); });
  if (flags.json) {
    Json::Array array;
    for (const Check& check : checks) array.push_back(CheckJson(check));
    std::puts(WriteJson(Json::Object{{"model", flags.model},
                                     {"model_type", std::string(files->model_type())},
                                     {"version", NUNSPARK_VERSION},
                                     {"ok", failed == 0},
                                     {"checks", std::move(array)}},
                        2)
                  .c_str());
  } else if (failed == 0) {
    std::puts("The same tokens and log probabilities, bit for bit, each time.");
  }
  if (failed == 0) return 0;
  return DataLossError(
      fmt::format("{} of {} checks failed: the output depends on how it is made. With memory and drive in order this "
                  "is a defect of "
                  "nunspark, or a draft that was to change the text (--accept-top-k)",
                  failed, checks.size()));
}

}  // namespace

void AddSelfcheck(CLI::App& app, Action* action) {
  auto flags = std::make_shared<Flags>();
  CLI::App* const verb = app.add_subcommand(
      "selfcheck", "whether a model gives the same output here in whatever way it is run; takes minutes");
  verb->add_option("model", flags->model, kModelArgument)->required();
  verb->add_option("--max-tokens", flags->max_tokens, "tokens of each of four prompts")->capture_default_str();
  verb->add_flag("--json", flags->json, "one JSON object");
  AddDrafterFlags(*verb, flags->drafter);
  AddEngineFlags(*verb, flags->engine);
  verb->footer("Example: nunspark selfcheck ./Qwen3-30B-A3B-4bit --draft-model ./Qwen3-0.6B");
  verb->callback([flags, action] { *action = OnModel(flags, Run); });
}

}  // namespace nunspark::cli
