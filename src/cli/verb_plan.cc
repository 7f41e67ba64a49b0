#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "base/json.h"
#include "base/memory_info.h"
#include "base/memory_rate.h"
#include "base/size.h"
#include "cli/drafter_flags.h"
#include "cli/engine_flags.h"
#include "cli/model_argument.h"
#include "cli/verbs.h"
#include "engine/drive_probe.h"
#include "engine/engine_plan.h"
#include "engine/model_files.h"
#include "weights/expert_trace.h"
#include "weights/speed_estimate.h"

namespace nunspark::cli {
namespace {

constexpr int64_t kMemoryProbeBytes = 256 << 20;

// A budget that gains less than this over a smaller one is not suggested.
constexpr double kWorthwhile = 1.1;

struct Flags {
  std::string model;
  EngineFlags engine;
  DrafterFlags drafter;
  int32_t parallel = 1;
  std::string trace;
  bool json = false;
};

struct Part {
  std::string name;
  int64_t bytes = 0;
  std::string what;
};

// One row of the table of budgets. `plan` holds an error where the machine has no room for it.
struct Row {
  std::string name;
  int64_t budget_bytes = 0;
  Result<MemoryPlan> plan;
  SpeedEstimate speed;
};

struct Planned {
  const ModelFilesImpl& files;
  EngineOptions options;
  EnginePlan engine;
  std::optional<ExpertTrace> trace;
  MachineRates rates;
  std::string drive_text;  // how it was read, or why it could not be
  int64_t program_bytes = 0;
  int64_t knee_bytes = 0;
  SpeedEstimate speed;
  std::vector<Row> rows;

  const ModelLayout& layout() const { return files.layout(); }
  const MemoryPlan& memory() const { return engine.memory; }
};

int64_t ExpertCount(const ModelLayout& layout) {
  return std::count_if(layout.pieces.begin(), layout.pieces.end(),
                       [](const PieceLayout& piece) { return piece.kind == PieceKind::kExpert; });
}

// Of keys and values beyond --kv-budget.
std::string SpillText(const EnginePlan& plan) {
  const int64_t all = KvPool::PlanBytes(plan.kv_shapes, plan.kv_room);
  return plan.memory.kv_bytes < all ? fmt::format(", {} in all, what is beyond it in a file", FormatSize(all)) : "";
}

std::vector<Part> PartsOf(const Planned& p) {
  const MemoryPlan& m = p.memory();
  const auto layers = static_cast<int32_t>(p.layout().core.size());
  const int64_t experts = ExpertCount(p.layout());
  const int64_t program = std::min(p.program_bytes, m.process_bytes);
  std::string cores = fmt::format("{} of {} layers stay", m.pinned_cores, layers);
  if (m.ring_slots > 0) cores += fmt::format(", the others pass through {} slots", m.ring_slots);
  std::vector<Part> parts = {
      {"process", program, "code and tables of the program"},
      {"tokenizer", m.process_bytes - program, "and the index of the model's files"},
      {"embedding", m.embed_bytes, p.layout().hparams.tied ? "also the head: stays" : "rows on demand"},
      {"head", m.norm_head_bytes, p.layout().hparams.tied ? "its norm" : "stays"},
      {"cores", m.core_region_bytes, std::move(cores)}};
  if (experts > 0) {
    parts.push_back({"expert slots", m.expert_region_bytes, fmt::format("{} of {} experts", m.expert_slots, experts)});
  }
  parts.insert(
      parts.end(),
      {{"read buffers", m.read_buffer_bytes, "the drive's queue"},
       {"activations", m.scratch_bytes, fmt::format("{} rows a pass, {} threads", p.engine.max_rows, p.engine.threads)},
       {"KV", m.kv_bytes,
        fmt::format("{} positions x {} sequence{}, {}{}", p.options.context, p.options.max_sequences,
                    p.options.max_sequences == 1 ? "" : "s", KvFormatName(KvFormatOf(p.options)), SpillText(p.engine))},
       {"drafter", m.drafter_bytes, m.drafter_bytes > 0 ? "weights, KV, activations" : "none"},
       {"reserve", m.reserve_bytes, "page tables, allocator, growth"}});
  return parts;
}

// The hit rate comes from the trace where there is one. Errors: those of its replay.
Result<SpeedEstimate> Estimate(const Planned& p, const MemoryPlan& plan) {
  std::optional<double> hit_rate;
  if (p.trace) {
    ASSIGN_OR_RETURN(const ReplayedTrace replayed, ReplayLru(p.layout(), p.engine.index, plan, *p.trace));
    hit_rate = (replayed.decode.tokens > 0 ? replayed.decode : replayed.all).hit_rate();
  }
  return EstimateSpeed(p.layout(), p.engine.index, plan, p.rates, hit_rate);
}

// Budgets from the floor to all weights; those below the floor are left out.
Result<std::vector<Row>> MakeRows(const Planned& p) {
  const MemoryPlan& m = p.memory();
  const std::pair<std::string, int64_t> budgets[] = {{"floor", m.floor_bytes},
                                                     {"1/3", m.full_bytes / 3},
                                                     {"1/2", m.full_bytes / 2},
                                                     {"2/3", m.full_bytes / 3 * 2},
                                                     {"full", m.full_bytes}};
  std::vector<Row> rows;
  for (const auto& [name, bytes] : budgets) {
    if (bytes < m.floor_bytes || (!rows.empty() && bytes <= rows.back().budget_bytes)) continue;
    EngineOptions options = p.options;
    options.memory_bytes = std::nullopt;
    options.budget_bytes = bytes;
    const Result<EnginePlan> plan = MakeEnginePlan(p.files, options);
    Row row{.name = name,
            .budget_bytes = bytes,
            .plan = plan.ok() ? Result<MemoryPlan>(plan->memory) : plan.status(),
            .speed = {}};
    if (row.plan.ok()) {
      ASSIGN_OR_RETURN(row.speed, Estimate(p, *row.plan));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

// The model as it would run: what binds, and what would help.
std::vector<std::string> Advice(const Planned& p) {
  const MemoryPlan& m = p.memory();
  std::vector<std::string> advice;
  if (p.speed.tokens_per_s <= 0) {
    advice.push_back("no speed can be said: " + p.drive_text);
    return advice;
  }
  const bool drive_binds = p.speed.bound == "drive";
  if (p.speed.read_bytes_per_token <= 0) {
    advice.push_back("the processor's memory binds: more memory for weights changes nothing");
    return advice;
  }
  advice.push_back(fmt::format("{}: {} a token take {:.1f} ms of reading, {:.1f} ms of computing",
                               drive_binds ? "the drive binds" : "the processor's memory binds",
                               FormatSize(static_cast<int64_t>(p.speed.read_bytes_per_token)), p.speed.drive_s * 1e3,
                               p.speed.compute_s * 1e3));
  const Row* better = nullptr;
  for (const Row& row : p.rows) {
    if (row.plan.ok() && row.speed.tokens_per_s > kWorthwhile * p.speed.tokens_per_s) {
      better = &row;
      break;
    }
  }
  if (better != nullptr) {
    advice.push_back(
        fmt::format("--budget {} would give {:.1f} x ({} for the whole process)", SizeFlagAtLeast(better->budget_bytes),
                    better->speed.tokens_per_s / p.speed.tokens_per_s, FormatSize(better->plan->total_bytes)));
  } else if (m.budget_bytes < p.knee_bytes) {
    advice.push_back(fmt::format("more memory would help, up to a budget of {}; this machine leaves {} ({})",
                                 FormatSize(p.knee_bytes), FormatSize(m.ceiling_bytes), m.ceiling_bound));
  }
  if (m.kv_bytes > m.budget_bytes / 10) {
    advice.push_back(
        fmt::format("keys and values take {}: a shorter --context leaves more to weights", FormatSize(m.kv_bytes)));
  }
  if (drive_binds) advice.push_back("a drive with twice the rate would give up to twice the speed");
  return advice;
}

std::string FloorText(const Planned& p) {
  const ModelLayout& layout = p.layout();
  const auto moe =
      std::count_if(layout.first_expert.begin(), layout.first_expert.end(), [](PieceId id) { return id >= 0; });
  if (moe == 0) return "two layers: one computes while the next arrives";
  return fmt::format(
      "the {} experts of one token in all {} layers, and two layers' other weights; with less, an expert would always "
      "be replaced before it is used again",
      layout.hparams.experts_per_token, moe);
}

void Print(const std::string& line) { std::puts(line.c_str()); }

std::string SpeedText(double tokens_per_s) {
  return tokens_per_s > 0 ? fmt::format("{:.{}f}", tokens_per_s, tokens_per_s < 10 ? 2 : 1) : "?";
}

void PrintText(const Planned& p) {
  const MemoryPlan& m = p.memory();
  Print(fmt::format("{} ({}), {} of weights\n", p.files.folder(), p.files.model_type(),
                    FormatSize(p.layout().total_bytes)));
  for (const Part& part : PartsOf(p)) {
    Print(fmt::format("  {:<14}{:>12}   {}", part.name, FormatSize(part.bytes), part.what));
  }
  Print(fmt::format("  {:<14}{:>12}   {}", "total", FormatSize(m.total_bytes),
                    m.ceiling_bytes > 0 ? fmt::format("of {} ({})", FormatSize(m.ceiling_bytes), m.ceiling_bound)
                                        : std::string("of an unknown amount of memory")));
  Print(fmt::format("\nbudget {} for weights, set by {}", FormatSize(m.budget_bytes), m.budget_bound));
  Print(fmt::format("  floor {}: {}", FormatSize(m.floor_bytes), FloorText(p)));
  if (p.knee_bytes > 0) {
    Print(fmt::format("  knee  {}: from here on it runs at {:.0f} % of what all weights in memory give, or more",
                      FormatSize(p.knee_bytes), kKneeShare * 100));
  }
  Print(fmt::format("  full  {}: every weight stays in memory", FormatSize(m.full_bytes)));
  Print(fmt::format("\ndrive {}; memory {}/s with {} threads", p.drive_text,
                    FormatSize(static_cast<int64_t>(p.rates.memory)), p.engine.threads));
  const bool moe = ExpertCount(p.layout()) > 0;
  if (moe) {
    Print(p.trace
              ? "hits: what the trace would have found in memory"
              : "hits: as models with this many experts usually have them; --trace with one of your texts says more");
  }
  Print(fmt::format("\n  {:<8}{:>12}{:>14}{:>8}{:>14}{:>12}  {}", "", "budget", "process", "hits", "read/token",
                    "tokens/s", "bound by"));
  const auto line = [&](const std::string& name, int64_t budget, const Result<MemoryPlan>& plan,
                        const SpeedEstimate& speed) {
    if (!plan.ok()) {
      Print(fmt::format("  {:<8}{:>12}  more than this machine leaves", name, FormatSize(budget)));
      return;
    }
    Print(fmt::format("  {:<8}{:>12}{:>14}{:>8}{:>14}{:>12}  {}", name, FormatSize(budget),
                      FormatSize(plan->total_bytes), moe ? fmt::format("{:.0f} %", speed.expert_hit_rate * 100) : "-",
                      FormatSize(static_cast<int64_t>(speed.read_bytes_per_token)), SpeedText(speed.tokens_per_s),
                      speed.bound));
  };
  for (const Row& row : p.rows) line(row.name, row.budget_bytes, row.plan, row.speed);
  line("this", m.budget_bytes, m, p.speed);
  Print("");
  for (const std::string& advice : Advice(p)) Print(advice);
}

Json SpeedJson(const SpeedEstimate& speed) {
  return Json::Object{{"expert_hit_rate", speed.expert_hit_rate},
                      {"bytes_per_token", speed.read_bytes_per_token},
                      {"drive_s", speed.drive_s},
                      {"compute_s", speed.compute_s},
                      {"tokens_per_s", speed.tokens_per_s},
                      {"bound", std::string(speed.bound)}};
}

Json ToJson(const Planned& p) {
  const MemoryPlan& m = p.memory();
  Json::Object parts;
  for (const Part& part : PartsOf(p)) parts.emplace_back(part.name, part.bytes);
  Json::Array rows, advice;
  for (const Row& row : p.rows) {
    Json entry(Json::Object{{"name", row.name}, {"budget_bytes", row.budget_bytes}});
    if (row.plan.ok()) {
      entry.Set("total_bytes", row.plan->total_bytes);
      entry.Set("expected", SpeedJson(row.speed));
    } else {
      entry.Set("refused", row.plan.status().message());
    }
    rows.push_back(std::move(entry));
  }
  for (const std::string& text : Advice(p)) advice.emplace_back(text);
  return Json::Object{{"model_type", std::string(p.files.model_type())},
                      {"parts", std::move(parts)},
                      {"total_bytes", m.total_bytes},
                      {"ceiling_bytes", m.ceiling_bytes},
                      {"ceiling_bound", m.ceiling_bound},
                      {"budget_bytes", m.budget_bytes},
                      {"budget_bound", m.budget_bound},
                      {"floor_bytes", m.floor_bytes},
                      {"knee_bytes", p.knee_bytes},
                      {"full_bytes", m.full_bytes},
                      {"context", p.options.context},
                      {"sequences", int64_t{p.options.max_sequences}},
                      {"drive_bytes_per_s", p.rates.drive},
                      {"memory_bytes_per_s", p.rates.memory},
                      {"expected", SpeedJson(p.speed)},
                      {"budgets", std::move(rows)},
                      {"advice", std::move(advice)}};
}

// What the machine delivers now. A rate that cannot be measured is 0, with the reason in drive_text.
void Probe(Planned& p) {
  const Result<ProbeResult> drive = ProbeDrive(LargestWeightFile(p.files.folder()), p.options.io, p.options.direct_io,
                                               ProbeLikeDecoding(p.layout(), p.engine.index));
  if (drive.ok()) {
    p.rates.drive = drive->bytes_per_second;
    p.drive_text = FormatSize(static_cast<int64_t>(p.rates.drive)) + "/s of scattered reads";
  } else {
    p.drive_text = fmt::format("could not be measured ({})", drive.status().message());
  }
  const Result<double> memory = MeasureMemoryRate(p.engine.threads, AffordableProbeBytes(kMemoryProbeBytes));
  if (memory.ok()) p.rates.memory = *memory;
}

Result<int> Run(const Flags& flags) {
  ASSIGN_OR_RETURN(EngineOptions options, MakeEngineOptions(flags.engine));
  ASSIGN_OR_RETURN(options.drafter, MakeDrafterOptions(flags.drafter));
  const int64_t program_bytes = ReadProcessMemory().resident_bytes;
  ASSIGN_OR_RETURN(const std::unique_ptr<ModelFilesImpl> files, ModelFilesImpl::OpenFolder(flags.model));
  options.context = ContextOf(flags.engine, *files, kPlannedContext);
  WarnOfContext(flags.engine.context, *files);
  options.max_sequences = flags.parallel;
  ASSIGN_OR_RETURN(EnginePlan engine, MakeEnginePlan(*files, options));
  Planned planned{.files = *files,
                  .options = options,
                  .engine = std::move(engine),
                  .trace = {},
                  .rates = {},
                  .drive_text = {},
                  .program_bytes = program_bytes,
                  .knee_bytes = 0,
                  .speed = {},
                  .rows = {}};
  if (!flags.trace.empty()) {
    ASSIGN_OR_RETURN(planned.trace, LoadExpertTrace(flags.trace, planned.layout()));
  }
  Probe(planned);
  ASSIGN_OR_RETURN(planned.speed, Estimate(planned, planned.memory()));
  if (planned.speed.tokens_per_s > 0) {
    planned.knee_bytes = KneeBudget(planned.layout(), planned.engine.index, planned.memory(), planned.rates);
  }
  ASSIGN_OR_RETURN(planned.rows, MakeRows(planned));
  if (flags.json) {
    Print(WriteJson(ToJson(planned), 2));
  } else {
    PrintText(planned);
  }
  return 0;
}

}  // namespace

void AddPlan(CLI::App& app, Action* action) {
  auto flags = std::make_shared<Flags>();
  CLI::App* const verb = app.add_subcommand("plan", "what would take memory, and how fast a model would run");
  verb->add_option("model", flags->model, kModelArgument)->required();
  AddEngineFlags(*verb, flags->engine);
  AddDrafterFlags(*verb, flags->drafter);
  verb->add_option("--context", flags->engine.context,
                   "positions of keys and values, also beyond what the model was made for; 0 = 4096, or fewer if that\n"
                   "is fewer");
  verb->add_option("--parallel", flags->parallel, "sequences that run together")->capture_default_str();
  verb->add_option("--trace", flags->trace,
                   "hit rates of this run (generate --expert-trace), not of models in general");
  verb->add_flag("--json", flags->json, "one JSON object");
  verb->footer("Example: nunspark plan ./Qwen3-30B-A3B-4bit --memory 8GB --context 16384");
  verb->callback([flags, action] { *action = OnModel(flags, Run); });
}

}  // namespace nunspark::cli
