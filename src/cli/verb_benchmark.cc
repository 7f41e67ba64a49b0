#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "base/in_range.h"
#include "base/json.h"
#include "base/memory_info.h"
#include "base/parts.h"
#include "cli/bench_plot.h"
#include "cli/cache_sim.h"
#include "cli/engine_flags.h"
#include "cli/interrupt.h"
#include "cli/model_argument.h"
#include "cli/prompt.h"
#include "cli/run_report.h"
#include "cli/synthetic_model.h"
#include "cli/verbs.h"
#include "io/file.h"
#include "nunspark/engine.h"

namespace nunspark::cli {
namespace {

constexpr const char* kDefaultModel = "mlx-community/Qwen3-30B-A3B-4bit";
constexpr int64_t kQuickTokens = 50;
constexpr const char* kMissing = "\u2014";

struct Flags {
  std::string model = kDefaultModel;
  std::string packed_root = "./packed";
  EngineFlags engine;
  int64_t max_tokens = 100;
  std::string out;
  bool quick = false;
  std::string draft;
  int64_t draft_tokens = 24;
  bool no_spec = false, ngram = false, no_ngram_adaptive = false, yes = false;
  std::string synthetic, keep, plot;
  bool model_given = false;
};

struct Workload {
  std::string name;
  std::vector<int32_t> prompt;
};

struct Task {
  const char* name;
  const char* prompt;
};

constexpr Task kTasks[] = {
    {"code",
     "Write a class in TypeScript that is a cache of fixed size and drops what was used least recently. "
     "Add a short note on its cost."},
    {"prose",
     "Write an essay about the design of a system that bills the customers of a phone company: how usage is counted, "
     "how prices change without wrong invoices, and what happens when a part of it fails for a day."},
    {"reasoning",
     "A train leaves Arnheim at 9:10 and goes 90 km/h towards Basel, 540 km away. Another leaves Basel at 10:40 and "
     "goes 120 km/h towards Arnheim, but stands still for 20 minutes after its first hour. When do they meet, and how "
     "far from Arnheim? Work it out step by step and check the result another way."}};
constexpr size_t kQuickTask = 1;
// Of a synthetic model: unrelated places of its cycle, and prompts about as long as those.
constexpr std::pair<int64_t, int64_t> kSyntheticPrompts[] = {{100, 45}, {700, 60}, {1300, 90}};

// One arm of one workload.
struct Run {
  std::string label;
  std::string mode;
  GenerateResult result;
  EngineStats stats;
  PlanSummary plan;
  DrafterOptions drafter;
  bool has_experts = false;
};

double DecodeRate(const Run& run) { return Ratio(static_cast<double>(run.result.ids.size()) - 1, run.result.decode_s); }

int64_t LayerBytes(const Run& run) {
  const CacheStats& cache = run.stats.cache;
  return cache.dense.bytes_read + cache.core.bytes_read + cache.expert.bytes_read;
}

double BytesPerToken(const Run& run) {
  return Ratio(static_cast<double>(LayerBytes(run)), static_cast<double>(run.result.ids.size()));
}

std::optional<double> ExpertHitPercent(const Run& run) {
  const KindStats& expert = run.stats.cache.expert;
  if (!run.has_experts || expert.hits + expert.misses == 0) return std::nullopt;
  return 100 * Ratio(static_cast<double>(expert.hits), static_cast<double>(expert.hits + expert.misses));
}

// The peak of the next engine, not that of one before. Where this is refused the peaks are those of all runs so far.
void ForgetPeak() { std::ofstream("/proc/self/clear_refs") << "5"; }

std::string ModeOf(const DrafterOptions& drafter) {
  return drafter.ngram ? "ngram-spec" : drafter.any() ? "spec" : "greedy";
}

Result<std::vector<Workload>> MakeWorkloads(const Flags& flags, const ModelFiles& files,
                                            const std::optional<SyntheticShape>& shape) {
  std::vector<Workload> workloads;
  for (size_t i = 0; i < std::size(kTasks); ++i) {
    if (flags.quick && i != kQuickTask) continue;
    if (shape) {
      const auto [start, count] = kSyntheticPrompts[i];
      workloads.push_back({fmt::format("cycle-{}", start), SyntheticTokens(*shape, start, count)});
    } else {
      ASSIGN_OR_RETURN(std::vector<int32_t> prompt, ChatPrompt(files, {Message("user", kTasks[i].prompt)}));
      workloads.push_back({kTasks[i].name, std::move(prompt)});
    }
  }
  return workloads;
}

// A fresh engine, and so a fresh drafter, for each.
Result<Run> RunOne(const ModelFiles& files, EngineOptions options, const Workload& workload, int64_t max_tokens) {
  const std::vector<int32_t>& prompt = workload.prompt;
  options.context = static_cast<int64_t>(prompt.size()) + max_tokens - 1;
  ForgetPeak();
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Start(files, options));
  ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, engine->NewSession());
  const InterruptsSession interrupts(*session);
  Run run{.label = workload.name,
          .mode = ModeOf(options.drafter),
          .result = {},
          .stats = {},
          .plan = {},
          .drafter = options.drafter,
          .has_experts = false};
  std::fprintf(stderr, "%s, %s: %zu prompt tokens ...\n", workload.name.c_str(), run.mode.c_str(), prompt.size());
  ASSIGN_OR_RETURN(run.result, session->Generate(prompt, {.max_tokens = static_cast<int32_t>(max_tokens)},
                                                 [](int32_t) { return true; }));
  if (run.result.finish_reason == FinishReason::kCancelled) return CancelledError("stopped");
  run.stats = engine->stats();
  run.plan = engine->plan();
  run.has_experts = run.stats.cache.expert.hits + run.stats.cache.expert.misses > 0;
  return run;
}

std::string ProcessorName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

std::string SystemName() {
  utsname name = {};
  return ::uname(&name) == 0 ? fmt::format("{} {}", name.sysname, name.release) : "unknown";
}

std::string MemoryText() {
  const int64_t bytes = ReadMachineMemory().total_bytes;
  return bytes > 0 ? fmt::format("{:.0f}", static_cast<double>(bytes) / 1e9) : "unknown";
}

// Of the arms that draft.
std::string SettingsText(const std::vector<Run>& runs) {
  const Run& last = runs.back();
  std::string text = last.drafter.any() ? fmt::format("speculative=on, K={}", last.drafter.tokens) : "speculative=off";
  if (last.drafter.ngram && last.drafter.ngram_adaptive) {
    int32_t shortest = last.drafter.tokens, longest = 0;
    for (const Run& run : runs) {
      if (!run.drafter.ngram) continue;
      shortest = std::min(shortest, run.result.drafts.shortest);
      longest = std::max(longest, run.result.drafts.longest);
    }
    text += fmt::format(", ngram-adaptive=on, k={}-{}", shortest, longest);
  }
  return text;
}

void PrintReport(const std::string& model, const std::vector<Run>& runs, const std::string& isa) {
  std::string text = "----- BEGIN SHAREABLE REPORT -----\n";
  text += fmt::format("### nunspark bench -- {}\n", model);
  text += fmt::format("{}, {} GB RAM, {} -- nunspark {}, {}\n\n", ProcessorName(), MemoryText(), SystemName(),
                      NUNSPARK_VERSION, isa);
  text += "| workload | mode | tok/s | M | expert hit% | MB/token | peak GB |\n|---|---|---|---|---|---|---|\n";
  size_t longest = 0;
  for (const Run& run : runs) {
    const std::optional<double> hit = ExpertHitPercent(run);
    text += fmt::format("| {} | {} | {:.2f} | {} | {} | {:.0f} | {:.2f} |\n", run.label, run.mode, DecodeRate(run),
                        run.drafter.any() ? fmt::format("{:.2f}", Multiplier(run.result.drafts)) : kMissing,
                        hit ? fmt::format("{:.1f}", *hit) : kMissing, BytesPerToken(run) / 1e6,
                        static_cast<double>(run.stats.process_peak_bytes) / 1e9);
    longest = std::max(longest, run.result.ids.size());
  }
  text += fmt::format("\nsettings: budget={:.2f}GB, max_tokens<={}, {}\n",
                      static_cast<double>(runs.front().plan.budget) / 1e9, longest, SettingsText(runs));
  text += "----- END SHAREABLE REPORT -----\n";
  text +=
      "Figures of other machines help everyone who chooses one: share the block above where the project is "
      "discussed.\n";
  std::fputs(text.c_str(), stdout);
}

template <typename Value>
Json PerKind(const CacheStats& cache, Value KindStats::*member) {
  return Json::Object{{"dense", cache.dense.*member}, {"core", cache.core.*member}, {"expert", cache.expert.*member}};
}

Json SpecJson(const Run& run) {
  const DraftStats& drafts = run.result.drafts;
  Json json(Json::Object{
      {"target_passes", drafts.passes},
      {"tokens_emitted", drafts.tokens},
      {"draft_tokens_proposed", drafts.proposed},
      {"accepted_total", drafts.accepted},
      {"accepted_offpath", drafts.off_path},
      {"multiplier", Multiplier(drafts)},
      {"deviation_rate", Ratio(static_cast<double>(drafts.off_path), static_cast<double>(drafts.accepted))},
      {"draft_tokens_per_sweep", int64_t{run.drafter.tokens}},
      {"near_tie_rows", drafts.near_tie_rows}});
  if (!run.drafter.ngram) return json;
  json.Set("ngram_adaptive", run.drafter.ngram_adaptive);
  json.Set("k_min_seen", int64_t{drafts.shortest});
  json.Set("k_max_seen", int64_t{drafts.longest});
  json.Set("disabled_rounds", drafts.rounds_off);
  json.Set("probes", drafts.probes);
  return json;
}

Json RunJson(const Run& run) {
  const CacheStats& cache = run.stats.cache;
  const PrefetchStats& ahead = cache.expert_prefetch;
  const Json speculative(
      Json::Object{{"issued", ahead.issued}, {"used", ahead.used}, {"wasted_bytes", ahead.wasted_bytes}});
  const auto tokens = static_cast<int64_t>(run.result.ids.size());
  const std::optional<double> hit = ExpertHitPercent(run);
  Json json(Json::Object{{"label", run.label},
                         {"mode", run.mode},
                         {"prompt_tokens", run.result.prompt_tokens},
                         {"tokens_generated", tokens},
                         {"decode_tokens", std::max<int64_t>(tokens - 1, 0)},
                         {"wall_time_prefill_s", run.result.prompt_s},
                         {"wall_time_decode_s", run.result.decode_s},
                         {"wall_time_total_s", run.result.prompt_s + run.result.decode_s},
                         {"tok_s_decode", DecodeRate(run)},
                         {"peak_memory_gb", static_cast<double>(run.stats.process_peak_bytes) / 1e9},
                         {"cache_stats", Json::Object{{"hits", PerKind(cache, &KindStats::hits)},
                                                      {"misses", PerKind(cache, &KindStats::misses)},
                                                      {"bytes_loaded", PerKind(cache, &KindStats::bytes_read)},
                                                      {"resident_bytes", Json::Object{{"all", cache.resident_bytes}}},
                                                      {"speculative", speculative}}},
                         {"prefetch_stats", Json::Object{{"stall_seconds", static_cast<double>(cache.stall_us) / 1e6},
                                                         {"speculative", speculative}}},
                         {"bytes_loaded_total", LayerBytes(run)},
                         {"bytes_per_token", BytesPerToken(run)},
                         {"budget_bytes", run.plan.budget},
                         {"has_experts", run.has_experts},
                         {"expert_hit_pct", hit ? Json(*hit) : Json()}});
  if (run.drafter.any()) json.Set("spec_stats", SpecJson(run));
  return json;
}

Json ReportJson(const Flags& flags, const std::string& folder, const std::vector<Run>& runs) {
  Json::Array array;
  for (const Run& run : runs) array.push_back(RunJson(run));
  return Json::Object{{"meta", Json::Object{{"packed", folder},
                                            {"draft", flags.draft.empty() ? Json() : Json(flags.draft)},
                                            {"ngram", flags.ngram},
                                            {"ngram_adaptive", flags.ngram && !flags.no_ngram_adaptive},
                                            {"draft_tokens", flags.draft_tokens},
                                            {"max_tokens", flags.quick ? kQuickTokens : flags.max_tokens},
                                            {"budget_bytes", runs.front().plan.budget},
                                            {"lookahead", flags.engine.lookahead}}},
                      {"runs", std::move(array)}};
}

std::string PlotOf(const std::string& model, const std::vector<Run>& runs) {
  std::vector<BenchBar> bars;
  for (const Run& run : runs) {
    const double tokens = static_cast<double>(run.result.ids.size()) - 1;
    const PassStats &one = run.stats.cache.decode, &several = run.stats.cache.prompt;
    // Drafts make decoding passes of several rows too; a plain run's are all of one.
    const PassStats& decode = run.drafter.any() && several.wall_us > one.wall_us ? several : one;
    bars.push_back({.label = run.label + ", " + run.mode,
                    .ms_per_token = Ratio(run.result.decode_s * 1e3, tokens),
                    .stall_share = Ratio(static_cast<double>(decode.stall_us), static_cast<double>(decode.wall_us)),
                    .tokens_per_s = DecodeRate(run),
                    .read_mb_per_token = Ratio(static_cast<double>(run.result.decode_bytes_read) / 1e6, tokens)});
  }
  return BenchPlot(fmt::format("nunspark bench -- {}", model),
                   fmt::format("{}, {} GB RAM, budget {:.2f} GB, nunspark {}", ProcessorName(), MemoryText(),
                               static_cast<double>(runs.front().plan.budget) / 1e9, NUNSPARK_VERSION),
                   bars);
}

// What follows the prompt on the cycle is what a synthetic model writes; anything else is a defect.
Status CheckSynthetic(const SyntheticShape& shape, const Workload& workload, const std::vector<int32_t>& ids) {
  const int64_t start = std::stoll(workload.name.substr(workload.name.find('-') + 1)) + std::ssize(workload.prompt);
  if (ids == SyntheticTokens(shape, start, std::ssize(ids))) return Status();
  return DataLossError(
      fmt::format("{}: the output is not the one that is built into the synthetic model {}; with "
                  "memory and drive in order this is a defect of nunspark",
                  workload.name, shape.name));
}

// A pack of the model if there is one, else the model itself: a checkpoint is streamed as it is.
Result<std::string> FolderOf(const Flags& flags) {
  const Consent consent = flags.yes ? Consent::kGiven : Consent::kTerminal;
  if (FileExists(JoinPath(flags.model, "manifest.json"))) return flags.model;
  std::string name(WithoutEndSlashes(flags.model));
  if (FolderExists(name)) {
    name = LastPathPart(name);
  } else {
    for (size_t at = name.find('/'); at != std::string::npos; at = name.find('/')) name.replace(at, 1, "__");
  }
  const std::string packed = JoinPath(flags.packed_root, name);
  if (!FileExists(JoinPath(packed, "manifest.json"))) return ResolveModel(flags.model, consent);
  std::fprintf(stderr, "using the pack %s\n", packed.c_str());
  return packed;
}

// Whether a report can be put there, asked before what may take hours. An empty path is none.
Status CheckReportPath(const std::string& path) {
  if (path.empty()) return Status();
  std::error_code error;
  if (std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error)) {
    return InvalidArgumentError(fmt::format("{} is there and is no regular file; name a new file", path));
  }
  const std::string folder = std::filesystem::path(path).parent_path().string();
  if (::access(folder.empty() ? "." : folder.c_str(), W_OK) == 0) return Status();
  return ErrnoStatus(errno, "creating", path);
}

Result<int> RunBench(const Flags& flags) {
  RETURN_IF_ERROR(CheckReportPath(flags.plot));
  RETURN_IF_ERROR(CheckReportPath(flags.out));
  RETURN_IF_ERROR(InRange("--max-tokens", flags.max_tokens, 2, 1 << 20).status());
  ASSIGN_OR_RETURN(const int32_t draft_tokens, InRange("--draft-tokens", flags.draft_tokens, 1, 1 << 20));
  ASSIGN_OR_RETURN(const EngineOptions options, MakeEngineOptions(flags.engine));
  EngineOptions drafting = options;
  drafting.drafter = {.ngram = flags.ngram,
                      .ngram_adaptive = !flags.no_ngram_adaptive,
                      .draft_model = flags.ngram ? std::string() : flags.draft,
                      .tokens = draft_tokens};
  const bool drafts = drafting.drafter.any() && !flags.no_spec && !flags.quick;
  if (!flags.keep.empty() && flags.synthetic.empty()) return InvalidArgumentError("--keep goes with --synthetic");
  std::optional<SyntheticShape> shape;
  std::optional<SyntheticPack> made;
  if (!flags.synthetic.empty()) {
    if (flags.model_given) return InvalidArgumentError("--synthetic takes the place of a model; give one of them");
    ASSIGN_OR_RETURN(shape, FindSyntheticShape(flags.synthetic));
    ASSIGN_OR_RETURN(made, SyntheticPack::Make(*shape, flags.keep));
  }
  ASSIGN_OR_RETURN(const std::string folder, made ? Result<std::string>(made->folder()) : FolderOf(flags));
  RETURN_IF_ERROR(ResolveModelIn(drafting.drafter.draft_model, flags.yes ? Consent::kGiven : Consent::kTerminal));
  ASSIGN_OR_RETURN(const std::unique_ptr<ModelFiles> files, ModelFiles::Open(folder));
  ASSIGN_OR_RETURN(const std::vector<Workload> workloads, MakeWorkloads(flags, *files, shape));
  std::vector<Run> runs;
  for (const Workload& workload : workloads) {
    for (const EngineOptions& arm : drafts ? std::vector{options, drafting} : std::vector{options}) {
      ASSIGN_OR_RETURN(Run run, RunOne(*files, arm, workload, flags.quick ? kQuickTokens : flags.max_tokens));
      if (shape) RETURN_IF_ERROR(CheckSynthetic(*shape, workload, run.result.ids));
      runs.push_back(std::move(run));
    }
  }
  const std::string version = VersionText();
  const size_t sets = version.rfind(": ");
  const std::string best = version.substr(sets + 2, version.find(',', sets) - sets - 2);
  const std::string name = shape ? "synthetic " + flags.synthetic : flags.model;
  PrintReport(name, runs, best);
  if (!flags.plot.empty()) RETURN_IF_ERROR(WriteFileAtomically(flags.plot, PlotOf(name, runs)));
  if (!flags.out.empty()) {
    RETURN_IF_ERROR(WriteFileAtomically(flags.out, WriteJson(ReportJson(flags, folder, runs), 2) + "\n"));
  }
  return 0;
}

}  // namespace

void AddBench(CLI::App& app, Action* action) {
  auto flags = std::make_shared<Flags>();
  CLI::App* const verb = app.add_subcommand("bench", "measure a model: three workloads, and a report to share");
  CLI::Option* const model = verb->add_option("model", flags->model, kModelArgument)->capture_default_str();
  std::vector<std::string> shapes;
  for (const SyntheticShape& shape : SyntheticShapes()) shapes.emplace_back(shape.name);
  verb->add_option(
          "--synthetic", flags->synthetic,
          "instead of a model one made of random numbers, with the sizes of a real one and its experts' habits")
      ->check(CLI::IsMember(shapes));
  verb->add_option("--keep", flags->keep, "with --synthetic: keep it in this folder, and use it from there next time");
  verb->add_option("--plot", flags->plot,
                   "draw the runs into this file (SVG): time of a token, and what it waited for");
  verb->add_option("--packed-root", flags->packed_root, "where packs are looked for")->capture_default_str();
  verb->add_option("--max-tokens", flags->max_tokens, "tokens to generate at most")->capture_default_str();
  verb->add_option("--out", flags->out, "write the raw figures to this file (JSON)");
  verb->add_flag("--quick", flags->quick, "one workload, 50 tokens");
  const char* const kDrafts = "Speculative decoding, a second run of each workload";
  verb->add_option("--draft", flags->draft, "folder of a draft model with the same tokenizer")->group(kDrafts);
  verb->add_flag("--ngram", flags->ngram, "draft by prompt lookup instead")->group(kDrafts);
  verb->add_option("--draft-tokens", flags->draft_tokens, "tokens of a draft, at most")
      ->capture_default_str()
      ->group(kDrafts);
  verb->add_flag("--no-ngram-adaptive", flags->no_ngram_adaptive, "with --ngram: always that many")->group(kDrafts);
  verb->add_flag("--no-spec", flags->no_spec, "no such runs, whatever else is given")->group(kDrafts);
  const char* const kGroup = "Of the original";
  verb->add_flag("--yes", flags->yes, "do not ask before a download")->group(kGroup);
  AddEngineFlags(*verb, flags->engine);
  verb->require_subcommand(0, 1);
  verb->callback([verb, model, flags, action] {
    flags->model_given = model->count() > 0;
    if (verb->get_subcommands().empty()) *action = [flags] { return RunBench(*flags); };
  });
  AddCacheSim(*verb, action);
}

}  // namespace nunspark::cli
