#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/size.h"
#include "cli/model_argument.h"
#include "cli/progress.h"
#include "cli/pull_pack.h"
#include "cli/verbs.h"
#include "hub/cache.h"
#include "hub/environment.h"
#include "hub/pull.h"

namespace nunspark::cli {
namespace {

struct Flags {
  std::string repo;
  std::string file;
  std::string endpoint;
  std::string cache;
  std::string pack;
  int parallel = 4;
  bool offline = false;
};

Result<int> RunPack(const PullOptions& options, const PullPlan& plan, const std::string& out) {
  if (!plan.model_file.empty()) {
    const std::string model = fmt::format("{}:{}", options.ref.id, plan.model_file);
    return UnsupportedError(fmt::format(
        "--pack takes checkpoints of safetensors, and {0} is a GGUF file, which is packed when all of it is "
        "there: 'nunspark pull {0}', then 'nunspark pack {0} {1}'; it also runs without a pack",
        model, out));
  }
  std::fprintf(stderr, "%s@%.12s: %zu files, %s to download and pack into %s\n", options.ref.id.c_str(),
               plan.commit.c_str(), plan.files.size(), FormatSize(plan.total_bytes).c_str(), out.c_str());
  Progress progress("downloading", ProgressUnit::kBytes);
  const Result<PackReport> report =
      PullIntoPack(options, plan, out, [&](int64_t done, int64_t total) { progress.Update(done, total); });
  progress.Clear();
  RETURN_IF_ERROR(report.status());
  if (report->reused) std::fprintf(stderr, "%s is up to date\n", out.c_str());
  std::fprintf(stderr, "packed %d layers into %s\n", report->layers, out.c_str());
  std::puts(out.c_str());
  return 0;
}

Result<int> Run(const Flags& flags) {
  ASSIGN_OR_RETURN(RepoRef ref, ParseRepoRef(flags.repo));
  if (!flags.file.empty()) {
    if (!ref.file.empty()) return InvalidArgumentError("a file is named twice: after ':' and with --file");
    ref.file = flags.file;
  }
  ASSIGN_OR_RETURN(HubEnvironment hub, ReadHubEnvironment());
  if (!flags.cache.empty()) hub.cache = flags.cache;
  if (!flags.endpoint.empty()) {
    ASSIGN_OR_RETURN(hub.endpoint, CheckEndpoint(flags.endpoint, "--endpoint"));
  }
  if (flags.offline || hub.offline) {
    if (!flags.pack.empty()) return InvalidArgumentError("--pack downloads; without a network use 'nunspark pack'");
    ASSIGN_OR_RETURN(const std::optional<CachedModel> cached, FindCached(hub.cache, ref));
    if (!cached) {
      return NotFoundError(fmt::format("{} is not in {}, and {} forbids to download it", ref.Text(), hub.cache,
                                       flags.offline ? "--offline" : "HF_HUB_OFFLINE"));
    }
    std::puts(cached->path.c_str());
    return 0;
  }
  PullOptions options = PullOptionsFor(hub, ref);
  options.parallel = flags.parallel;
  ASSIGN_OR_RETURN(const PullPlan plan, PlanPullWithNotice(options));
  if (!flags.pack.empty()) return RunPack(options, plan, flags.pack);
  ASSIGN_OR_RETURN(const PullReport report, PullWithProgress(std::move(options), plan));
  if (report.downloaded_bytes == 0) std::fputs("everything was there already\n", stderr);
  std::puts(report.path.c_str());
  return 0;
}

}  // namespace

void AddPull(CLI::App& app, Action* action) {
  auto flags = std::make_shared<Flags>();
  CLI::App* const verb = app.add_subcommand("pull", "download a model from a hub into the Hugging Face cache");
  verb->add_option("repo", flags->repo, "org/name[@revision][:file]")->required();
  verb->add_option("--file", flags->file,
                   "of a repository of GGUF files the one to get: its name, a pattern with * and ?, or a quantisation\n"
                   "such as Q4_K_M; the same as :file");
  verb->add_option("--endpoint", flags->endpoint,
                   "address of the hub, or of a mirror; default: HF_ENDPOINT, else https://huggingface.co");
  verb->add_option("--cache", flags->cache,
                   "folder of the cache; default: HF_HUB_CACHE, HF_HOME/hub or ~/.cache/huggingface/hub");
  verb->add_option("--pack", flags->pack,
                   "write a pack into this new folder instead, while the files arrive: there is no second copy on the\n"
                   "drive, and nothing goes into the cache. Resumes like a pull")
      ->type_name("DIR");
  verb->add_option("--parallel", flags->parallel, "files that are downloaded at once")
      ->check(CLI::Range(1, kMaxParallelDownloads))
      ->capture_default_str();
  verb->add_flag("--offline", flags->offline,
                 "no network: only say where the model is, if it is there (HF_HUB_OFFLINE)");
  verb->footer(
      "Prints the path that opens the model; every verb also takes org/name itself. Only what a model needs is "
      "fetched:\n"
      "configuration, tokenizer, templates and safetensors, or one GGUF file. Every file is verified by its hash. The\n"
      "cache is shared with other tools. An interrupted download goes on when the command is given again.\n"
      "A token is taken from HF_TOKEN or the file that 'hf auth login' writes, and goes to the hub alone.\n\n"
      "Example: nunspark pull mlx-community/Qwen3-30B-A3B-4bit");
  verb->callback([flags, action] { *action = [flags] { return Run(*flags); }; });
}

}  // namespace nunspark::cli
