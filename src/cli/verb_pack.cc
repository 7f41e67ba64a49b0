#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/size.h"
#include "cli/interrupt.h"
#include "cli/model_argument.h"
#include "cli/progress.h"
#include "cli/verbs.h"
#include "engine/model_text.h"
#include "formats/checkpoint.h"
#include "formats/gguf_model.h"
#include "models/model_layout.h"
#include "pack/packer.h"

namespace nunspark::cli {
namespace {

struct Flags {
  std::string model;
  std::string out;
  std::vector<std::string> quantize;
  std::string layout = "lanes";
  int threads = 0;
};

// What became of the weights. Long lists are shown by their beginning.
void PrintQuantized(const PackReport& report) {
  constexpr size_t kShown = 5;
  const auto say = [](const std::string& line) { std::fputs((line + "\n").c_str(), stderr); };
  if (!report.reused) {
    say(fmt::format("encoded {} modules: weights {} -> {} ({:.1f} %)", report.encoded,
                    FormatSize(report.source_weight_bytes), FormatSize(report.weight_bytes),
                    100.0 * static_cast<double>(report.weight_bytes) /
                        static_cast<double>(std::max<int64_t>(report.source_weight_bytes, 1))));
  }
  if (report.already_encoded > 0) {
    say(fmt::format("kept {} modules that the source has quantised already", report.already_encoded));
  }
  for (size_t i = 0; i < std::min(report.kept_floats.size(), kShown); ++i) {
    say(fmt::format("kept {} as it is: {}", report.kept_floats[i].module, report.kept_floats[i].reason));
  }
  if (report.kept_floats.size() > kShown) {
    say(fmt::format("kept {} more modules as they are, for such reasons", report.kept_floats.size() - kShown));
  }
}

Result<int> Run(const Flags& flags) {
  PackOptions options;
  options.out_folder = flags.out;
  options.threads = flags.threads;
  options.layout = flags.layout == "rows" ? PackLayout::kRows : PackLayout::kLanes;
  for (const std::string& text : flags.quantize) {
    Result<QuantizeRule> rule = ParseQuantizeRule(text);
    if (!rule.ok()) return rule.status().WithContext("--quantize");
    options.quantize.push_back(std::move(rule).value());
  }
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, OpenCheckpoint(flags.model));
  ASSIGN_OR_RETURN(const ModelLayout layout, ResolveModel(checkpoint));
  if (checkpoint.is_gguf) {
    if (IsGgufName(flags.model)) options.side_files = SideFiles::kGenerated;
    ASSIGN_OR_RETURN(options.generated_files, ReadGgufTextFiles(checkpoint.gguf_path));
  }
  Progress progress("packing", ProgressUnit::kBytes);
  options.progress = [&](int64_t done, int64_t total) {
    progress.Update(done, total);
    return !Interrupted();
  };
  ASSIGN_OR_RETURN(const PackReport report, Pack(checkpoint, layout, options));
  progress.Clear();
  if (!report.dropped.empty()) {
    std::fprintf(stderr, "left out %zu tensors that the model does not use, such as %s\n", report.dropped.size(),
                 report.dropped.front().c_str());
  }
  if (!options.quantize.empty()) PrintQuantized(report);
  if (report.reused) std::fprintf(stderr, "%s is up to date\n", flags.out.c_str());
  if (report.resumed) std::fputs("resumed an interrupted pack\n", stderr);
  std::fprintf(stderr, "packed %d layers into %s\n", report.layers, flags.out.c_str());
  return 0;
}

}  // namespace

void AddPack(CLI::App& app, Action* action) {
  auto flags = std::make_shared<Flags>();
  CLI::App* const verb = app.add_subcommand("pack", "lay a checkpoint out for streaming: one aligned read per expert");
  verb->add_option("model", flags->model,
                   "checkpoint folder (Hugging Face or MLX), GGUF file, or pack of the original Nunspark")
      ->required();
  verb->add_option("out", flags->out, "folder for the pack; created, never overwritten")->required();
  verb->add_option(
          "--quantize", flags->quantize,
          "encode float weights: affine:BITS[:GROUP] (2-6, 8 bits; groups of 32, 64, 128), mxfp4, mxfp8 or none,\n"
          "for modules that match a pattern if one stands before it: 'lm_head=affine:8:64',\n"
          "'*.mlp.down_proj=affine:6:64'. Repeatable; the last rule that matches a module counts")
      ->allow_extra_args(false)
      ->type_name("[PATTERN=]ENCODING");
  verb->add_option(
          "--layout", flags->layout,
          "lanes: weights that are multiplied faster with sixteen outputs side by side are stored so;\n"
          "rows: as the source has them. 'pack PACK OUT --layout rows' gives back the tensors of a pack's source")
      ->check(CLI::IsMember({"lanes", "rows"}))
      ->capture_default_str();
  verb->add_option("--threads", flags->threads, "threads that encode; 0 = all CPUs this process may use")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  verb->footer(
      "--quantize never touches norms, biases, sinks and single numbers, nor what the source has quantised already; a\n"
      "module whose inputs are no multiple of the group size stays as it is. Routers become affine:8:64 under rules\n"
      "without a pattern, as in MLX's conversions; a rule with a pattern that names them decides otherwise. Patterns\n"
      "match the weight's name in the pack without '.weight': '*' stands for any characters, '?' for one.\n\n"
      "An interrupted pack continues when the same command is given again. Packing is optional: generate also\n"
      "streams from the checkpoint folder itself. Check a pack with 'nunspark verify'.");
  verb->callback([flags, action] { *action = OnModel(flags, Run); });
}

}  // namespace nunspark::cli
