#include <algorithm>
#include <filesystem>
#include <memory>

#include <fmt/format.h>

#include "base/in_range.h"
#include "cli/engine_flags.h"
#include "cli/interrupt.h"
#include "cli/logits_file.h"
#include "cli/model_argument.h"
#include "cli/progress.h"
#include "cli/verbs.h"
#include "nunspark/engine.h"

namespace nunspark::cli {
namespace {

struct Flags {
  std::string model;
  EngineFlags engine;
  PromptFlags prompt;
  int64_t greedy = 0;
  std::string out;
};

Result<std::vector<int32_t>> PromptIds(const Flags& flags, const ModelFiles& files) {
  const InterruptsExit interrupts;  // a pipe may never end
  if (!flags.prompt.text_given && flags.prompt.ids.empty() && flags.prompt.ids_file.empty()) {
    return InvalidArgumentError("no prompt given; use --prompt TEXT, --prompt-ids 1,2,3 or --prompt-ids-file FILE");
  }
  if (flags.prompt.text_given) return files.Encode(flags.prompt.text);
  return ReadPromptIds(flags.prompt);
}

Result<int> Run(const Flags& flags) {
  ASSIGN_OR_RETURN(EngineOptions options, MakeEngineOptions(flags.engine));
  RETURN_IF_ERROR(InRange("--greedy", flags.greedy, 0, 1 << 28).status());
  ASSIGN_OR_RETURN(const std::unique_ptr<ModelFiles> files, ModelFiles::Open(flags.model));
  ASSIGN_OR_RETURN(const std::vector<int32_t> prompt, PromptIds(flags, *files));
  const int64_t tokens = static_cast<int64_t>(prompt.size());
  // The last token is not processed, so it needs no position.
  options.context = tokens + std::max<int64_t>(flags.greedy - 1, 0);
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Start(*files, options));
  ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, engine->NewSession());
  std::error_code unknown;
  if (std::filesystem::equivalent(std::filesystem::absolute(flags.out).parent_path(), flags.model, unknown)) {
    return InvalidArgumentError(
        fmt::format("--out {} lies in the model's own folder; write somewhere else", flags.out));
  }
  ASSIGN_OR_RETURN(LogitsFile file, LogitsFile::Create(flags.out, tokens, files->vocab_size(), flags.greedy));

  const InterruptsSession interrupts(*session);
  Progress progress("logits", ProgressUnit::kTokens);
  std::vector<float> last(static_cast<size_t>(files->vocab_size()));
  RETURN_IF_ERROR(session->Logits(prompt, [&](int64_t first, int64_t count, const float* logits) {
    progress.Update(first + count, tokens + flags.greedy);
    const float* const last_row = logits + (count - 1) * files->vocab_size();
    std::copy_n(last_row, files->vocab_size(), last.begin());
    return file.AppendRows(count, logits);
  }));
  for (int64_t step = 0; step < flags.greedy; ++step) {
    if (Interrupted()) return CancelledError("stopped");
    const int32_t token = file.AddGreedy(last);
    progress.Update(tokens + step + 1, tokens + flags.greedy);
    if (step + 1 == flags.greedy) break;
    RETURN_IF_ERROR(session->Append(token, [&](int64_t, int64_t, const float* logits) {
      std::copy_n(logits, files->vocab_size(), last.begin());
      return Status();
    }));
  }
  RETURN_IF_ERROR(file.Finish());
  return 0;
}

}  // namespace

void AddLogits(CLI::App& app, Action* action) {
  auto flags = std::make_shared<Flags>();
  CLI::App* const verb = app.add_subcommand("logits", "write the logits of a prompt, to compare with a reference");
  verb->add_option("model", flags->model, kModelArgument)->required();
  CLI::Option* const prompt = verb->add_option("--prompt", flags->prompt.text, "text, encoded as it is");
  AddPromptIdFlags(*verb, flags->prompt);
  verb->add_option("--greedy", flags->greedy, "also continue greedily by N tokens (end tokens do not stop it)");
  verb->add_option("--out", flags->out, "safetensors file: logits [T, V], greedy [N], margin [N]")->required();
  AddEngineFlags(*verb, flags->engine);
  verb->callback([flags, prompt, action] {
    flags->prompt.text_given = prompt->count() > 0;
    *action = OnModel(flags, Run);
  });
}

}  // namespace nunspark::cli
