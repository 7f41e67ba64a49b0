#include <memory>

#include "cli/line_loop.h"
#include "cli/model_argument.h"
#include "cli/verbs.h"
#include "engine/model_text.h"
#include "text/tokenizer/tokenize_lines.h"
#include "text/tokenizer/tokenizer.h"

namespace nunspark::cli {
namespace {

struct Flags {
  std::string model;
};

Result<int> Run(const Flags& flags) {
  ASSIGN_OR_RETURN(const std::unique_ptr<text::Tokenizer> tokenizer, OpenTokenizer(flags.model));
  RETURN_IF_ERROR(LoopOverLines([&](std::string_view line) { return text::TokenizeLine(*tokenizer, line); }));
  return 0;
}

}  // namespace

void AddTokenize(CLI::App& app, Action* action) {
  auto flags = std::make_shared<Flags>();
  CLI::App* const verb = app.add_subcommand("tokenize", "text to token ids and back, JSON lines from stdin to stdout");
  verb->add_option("tokenizer", flags->model,
                   "model folder, tokenizer.json, tokenizer.json.gz, tokenizer.model, tiktoken ranks or .gguf file")
      ->required();
  verb->footer(
      "In:  {\"text\": S} or {\"bytes_hex\": H}, optional \"special\": true; or {\"ids\": [...]}, optional "
      "\"skip_special\": true\n"
      "Out: {\"ids\": [...], \"tokens\": [...]} or {\"text\": S}; else {\"error\": {\"type\": T, \"message\": M}}");
  verb->callback([flags, action] { *action = OnModel(flags, Run); });
}

}  // namespace nunspark::cli
