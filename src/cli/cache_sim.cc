#include "cli/cache_sim.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "base/json.h"
#include "base/parts.h"
#include "base/size.h"
#include "cli/engine_flags.h"
#include "cli/model_argument.h"
#include "engine/model_files.h"
#include "weights/expert_trace.h"
#include "weights/memory_plan.h"

namespace nunspark::cli {
namespace {

struct Flags {
  std::string model, trace;
  std::string budgets;
  std::string policies = "lru,opt";
  bool json = false;
};

using Replay = Result<ReplayedTrace> (*)(const ModelLayout&, const PieceIndex&, const MemoryPlan&, const ExpertTrace&);

struct Policy {
  std::string_view name;
  Replay replay;
};
constexpr Policy kPolicies[] = {{"lru", &ReplayLru}, {"opt", &ReplayOptimum}};

struct Row {
  int64_t budget_bytes = 0;
  int32_t slots = 0;
  std::string_view policy;
  ReplayedTrace replayed;
};

Result<std::vector<Policy>> PoliciesOf(const std::string& text) {
  std::vector<Policy> policies;
  for (const std::string_view name : SplitAt(text, ',')) {
    const auto found = std::find_if(std::begin(kPolicies), std::end(kPolicies),
                                    [&](const Policy& policy) { return policy.name == name; });
    if (found == std::end(kPolicies)) {
      return InvalidArgumentError(fmt::format("--policy: '{}' is not one of lru, opt", name));
    }
    policies.push_back(*found);
  }
  return policies;
}

// Those asked for, else five between the floor and all weights.
Result<std::vector<int64_t>> BudgetsOf(const std::string& text, const MemoryPlan& plan) {
  std::vector<int64_t> budgets;
  for (const std::string_view item : SplitAt(text, ',')) {
    if (text.empty()) break;
    ASSIGN_OR_RETURN(budgets.emplace_back(), ParseSizeFlag("--budget", std::string(item)));
  }
  if (!budgets.empty()) return budgets;
  for (const int64_t budget :
       {plan.floor_bytes, plan.full_bytes / 3, plan.full_bytes / 2, plan.full_bytes / 3 * 2, plan.full_bytes}) {
    if (budget >= plan.floor_bytes && (budgets.empty() || budget > budgets.back())) budgets.push_back(budget);
  }
  return budgets;
}

Json CountsJson(const ReplayCounts& counts) {
  return Json::Object{{"tokens", counts.tokens},
                      {"hits", counts.hits},
                      {"misses", counts.misses},
                      {"bytes_read", counts.bytes_read},
                      {"bytes_per_token", counts.bytes_per_token()}};
}

void Print(const std::vector<Row>& rows) {
  std::puts(fmt::format("{:>12}{:>9}{:>8}{:>10}{:>14}{:>14}{:>14}", "budget", "experts", "policy", "hits",
                        "misses/token", "read/token", "whole trace")
                .c_str());
  for (const Row& row : rows) {
    // A trace may hold a prompt alone.
    const ReplayCounts& counts = row.replayed.decode.tokens > 0 ? row.replayed.decode : row.replayed.all;
    const double misses = static_cast<double>(counts.misses) / static_cast<double>(std::max<int64_t>(counts.tokens, 1));
    std::puts(fmt::format("{:>12}{:>9}{:>8}{:>10}{:>14.1f}{:>14}{:>14}", FormatSize(row.budget_bytes), row.slots,
                          row.policy, fmt::format("{:.1f} %", counts.hit_rate() * 100), misses,
                          FormatSize(static_cast<int64_t>(counts.bytes_per_token())),
                          FormatSize(row.replayed.all.bytes_read))
                  .c_str());
  }
}

Result<int> Run(const Flags& flags) {
  ASSIGN_OR_RETURN(const std::vector<Policy> policies, PoliciesOf(flags.policies));
  ASSIGN_OR_RETURN(const std::unique_ptr<ModelFilesImpl> files, ModelFilesImpl::OpenFolder(flags.model));
  const ModelLayout& layout = files->layout();
  if (layout.hparams.experts == 0) {
    return InvalidArgumentError(
        fmt::format("{}: a model of type {} has no experts to keep", flags.model, files->model_type()));
  }
  ASSIGN_OR_RETURN(const ExpertTrace trace, LoadExpertTrace(flags.trace, layout));
  const PieceIndex index = PieceIndex::Build(layout, files->checkpoint().tensors);
  // Only the division of a budget matters here: the machine may have less.
  const auto plan_of = [&](int64_t budget_bytes) {
    return MakeMemoryPlan(layout, index, {.budget_bytes = budget_bytes}, {});
  };
  ASSIGN_OR_RETURN(const MemoryPlan all, plan_of(layout.total_bytes * 2));
  ASSIGN_OR_RETURN(const std::vector<int64_t> budgets, BudgetsOf(flags.budgets, all));
  std::vector<Row> rows;
  for (const int64_t budget : budgets) {
    ASSIGN_OR_RETURN(const MemoryPlan plan, plan_of(budget));
    for (const Policy& policy : policies) {
      ASSIGN_OR_RETURN(const ReplayedTrace replayed, policy.replay(layout, index, plan, trace));
      rows.push_back({.budget_bytes = budget, .slots = plan.expert_slots, .policy = policy.name, .replayed = replayed});
    }
  }
  if (!flags.json) {
    Print(rows);
    return 0;
  }
  Json::Array array;
  for (const Row& row : rows) {
    array.push_back(Json::Object{{"budget_bytes", row.budget_bytes},
                                 {"expert_slots", int64_t{row.slots}},
                                 {"policy", std::string(row.policy)},
                                 {"all", CountsJson(row.replayed.all)},
                                 {"decode", CountsJson(row.replayed.decode)}});
  }
  std::puts(
      WriteJson(Json::Object{{"calls", static_cast<int64_t>(trace.size())}, {"rows", std::move(array)}}, 2).c_str());
  return 0;
}

}  // namespace

void AddCacheSim(CLI::App& bench, Action* action) {
  auto flags = std::make_shared<Flags>();
  CLI::App* const verb = bench.add_subcommand(
      "cache-sim", "what other budgets would have read of a trace (generate --expert-trace), in seconds");
  verb->add_option("--trace", flags->trace, "file of generate --expert-trace")->required();
  verb->add_option("--model", flags->model, "the model it was made with")->required();
  verb->add_option("--budget", flags->budgets, "sizes, separated by commas; else five from the floor to all weights");
  verb->add_option("--policy", flags->policies,
                   "lru: as the engine does it; opt: the least possible, which knows the future")
      ->capture_default_str();
  verb->add_flag("--json", flags->json, "one JSON object");
  verb->callback([flags, action] { *action = OnModel(flags, Run); });
}

}  // namespace nunspark::cli
