#include <cstdio>
#include <memory>

#include "cli/interrupt.h"
#include "cli/progress.h"
#include "cli/verbs.h"
#include "formats/checkpoint.h"
#include "models/model_layout.h"
#include "pack/packer.h"

namespace nunspark::cli {
namespace {

struct Flags {
  std::string model;
  std::string out;
};

Result<int> Run(const Flags& flags) {
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, OpenCheckpoint(flags.model));
  ASSIGN_OR_RETURN(const ModelLayout layout, ResolveModel(checkpoint));
  Progress progress("packing", ProgressUnit::kBytes);
  PackOptions options;
  options.out_folder = flags.out;
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
  if (report.reused) std::fprintf(stderr, "%s is up to date\n", flags.out.c_str());
  if (report.resumed) std::fputs("resumed an interrupted pack\n", stderr);
  std::fprintf(stderr, "packed %d layers into %s\n", report.layers, flags.out.c_str());
  return 0;
}

}  // namespace

void AddPack(CLI::App& app, Action* action) {
  auto flags = std::make_shared<Flags>();
  CLI::App* const verb = app.add_subcommand("pack", "lay a checkpoint out for streaming: one aligned read per expert");
  verb->add_option("model", flags->model, "checkpoint folder (Hugging Face or MLX)")->required();
  verb->add_option("out", flags->out, "folder for the pack; created, never overwritten")->required();
  verb->footer(
      "An interrupted pack continues when the same command is given again. Packing is optional: generate also\n"
      "streams from the checkpoint folder itself. Check a pack with 'nunspark verify'.");
  verb->callback([flags, action] { *action = [flags] { return Run(*flags); }; });
}

}  // namespace nunspark::cli
