#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/json.h"
#include "base/size.h"
#include "cli/engine_flags.h"
#include "cli/interrupt.h"
#include "cli/model_argument.h"
#include "cli/verbs.h"
#include "engine/model_files.h"
#include "engine/model_needs.h"
#include "engine/outlook.h"
#include "hub/catalogue.h"
#include "hub/environment.h"
#include "hub/removal.h"

namespace nunspark::cli {
namespace {

struct Flags {
  std::string packed_root = "models";
  std::string cache;
  bool json = false;
  bool no_plan = false;
  std::string name;
  bool yes = false;
};

struct Row {
  CatalogueEntry entry;
  std::string model_type;
  std::optional<Outlook> outlook;
  std::string problem;  // why it cannot be opened
};

Result<CatalogueOptions> OptionsOf(const Flags& flags) {
  if (!flags.cache.empty()) return CatalogueOptions{.packed_root = flags.packed_root, .cache = flags.cache};
  ASSIGN_OR_RETURN(const HubEnvironment hub, ReadHubEnvironment());
  return CatalogueOptions{.packed_root = flags.packed_root, .cache = hub.cache};
}

void Examine(Row& row, RateMeter& rates) {
  const Result<std::unique_ptr<ModelFilesImpl>> files = ModelFilesImpl::OpenFolder(row.entry.path);
  if (!files.ok()) {
    row.outlook = EagleOutlook(row.entry.path);
    if (!row.outlook) row.problem = files.status().message();
    return;
  }
  row.model_type = (*files)->model_type();
  EngineOptions options;
  options.context = kPlannedContext;
  row.outlook = MakeOutlook(**files, options, rates.Of(row.entry.path));
}

std::string OutlookText(const Row& row) {
  if (!row.problem.empty()) return "cannot be opened: " + row.problem;
  if (!row.outlook) return "";
  const Outlook& outlook = *row.outlook;
  const std::string rate = RateText(outlook), speed = rate.empty() ? "" : ", " + rate;
  switch (outlook.fit) {
    case Fit::kFits: return fmt::format("fits ({} in all){}", FormatSize(outlook.total_bytes), speed);
    case Fit::kStreams:
      return fmt::format("streams with {} of weights in memory{}", FormatSize(outlook.budget_bytes), speed);
    case Fit::kNoRoom: return "too little memory: " + outlook.reason;
    case Fit::kDrafts:
    case Fit::kCannot: return outlook.reason;
  }
  return "";
}

Json ToJson(const Row& row) {
  const CatalogueEntry& entry = row.entry;
  Json json(Json::Object{{"kind", ModelKindName(entry.kind)},
                         {"name", entry.name},
                         {"path", entry.path},
                         {"size_bytes", entry.size_bytes},
                         {"snapshot", entry.snapshot.empty() ? Json() : Json(entry.snapshot)}});
  if (!row.model_type.empty()) json.Set("model_type", row.model_type);
  if (!row.problem.empty()) json.Set("problem", row.problem);
  if (row.outlook) {
    const Outlook& outlook = *row.outlook;
    json.Set("fit", FitName(outlook.fit));
    if (!outlook.reason.empty()) json.Set("reason", outlook.reason);
    if (outlook.total_bytes > 0) {
      json.Set("total_bytes", outlook.total_bytes);
      json.Set("budget_bytes", outlook.budget_bytes);
    }
    if (outlook.tokens_per_s > 0) {
      json.Set("tokens_per_s", outlook.tokens_per_s);
      json.Set("bound", outlook.bound);
    }
  }
  return json;
}

Result<int> List(const Flags& flags) {
  ASSIGN_OR_RETURN(const CatalogueOptions options, OptionsOf(flags));
  ASSIGN_OR_RETURN(std::vector<CatalogueEntry> entries, ScanCatalogue(options));
  std::vector<Row> rows;
  RateMeter rates;
  for (CatalogueEntry& entry : entries) {
    Row row{.entry = std::move(entry), .model_type = {}, .outlook = {}, .problem = {}};
    if (Interrupted()) return CancelledError("stopped");
    if (!flags.no_plan) Examine(row, rates);
    rows.push_back(std::move(row));
  }
  if (flags.json) {
    Json::Array array;
    for (const Row& row : rows) array.push_back(ToJson(row));
    std::puts(WriteJson(Json::Object{{"models", std::move(array)}}, 2).c_str());
    return 0;
  }
  if (rows.empty()) {
    std::fprintf(stderr, "no models in %s and %s; get one with 'nunspark pull org/name'\n", options.packed_root.c_str(),
                 options.cache.c_str());
    return 0;
  }
  size_t width = 4;
  for (const Row& row : rows) width = std::max(width, row.entry.name.size());
  for (const Row& row : rows) {
    std::puts(fmt::format("{:<{}}  {:<8}  {:>8}  {:<14}  {}", row.entry.name, width, ModelKindName(row.entry.kind),
                          FormatSize(row.entry.size_bytes), row.model_type, OutlookText(row))
                  .c_str());
  }
  return 0;
}

Result<int> RemoveOne(const Flags& flags) {
  ASSIGN_OR_RETURN(const CatalogueOptions options, OptionsOf(flags));
  ASSIGN_OR_RETURN(const Removal removal, PlanRemoval(options, flags.name));
  const std::string what = fmt::format(
      "{} files in {}, {}{}", removal.files.size(), removal.folder, FormatSize(removal.freed_bytes),
      removal.kept_bytes > 0 ? fmt::format(" ({} stay, which other snapshots share)", FormatSize(removal.kept_bytes))
                             : "");
  if (!flags.yes) {
    if (!OnTerminal()) {
      return InvalidArgumentError(fmt::format("would remove {}; there is no terminal to ask on, give --yes", what));
    }
    if (!AskYesNo(fmt::format("Remove {}?", what))) return CancelledError("aborted");
  }
  RETURN_IF_ERROR(Remove(removal));
  std::fprintf(stderr, "removed %s\n", what.c_str());
  return 0;
}

void AddPlaces(CLI::App& verb, Flags& flags) {
  verb.add_option("--packed-root", flags.packed_root, "folder that holds packs")->capture_default_str();
  verb.add_option("--cache", flags.cache,
                  "folder of the hub's cache; default: HF_HUB_CACHE, HF_HOME/hub or ~/.cache/huggingface/hub");
}

}  // namespace

void AddModels(CLI::App& app, Action* action) {
  auto flags = std::make_shared<Flags>();
  CLI::App* const verb = app.add_subcommand("models", "the models on this machine, and how they would run");
  AddPlaces(*verb, *flags);
  verb->add_flag("--json", flags->json, "one JSON object");
  verb->add_flag("--no-plan", flags->no_plan, "names and sizes only: no model is opened, no rate is measured");
  verb->require_subcommand(0, 1);
  verb->footer(
      "Packs and checkpoints in --packed-root, checkpoints of the Hugging Face cache (newest complete snapshot) and\n"
      "GGUF files of both. What is said of memory and speed is what 'nunspark plan' says for 4096 positions.");
  verb->callback([verb, flags, action] {
    if (verb->get_subcommands().empty()) *action = [flags] { return List(*flags); };
  });
  CLI::App* const remove = verb->add_subcommand("remove", "take a model off this machine");
  remove->add_option("name", flags->name, "as 'nunspark models' has it; org/name@revision for one snapshot")
      ->required();
  AddPlaces(*remove, *flags);
  remove->add_flag("--yes", flags->yes, "do not ask");
  remove->footer(
      "Says what would go and how much that frees, and asks. Contents that other snapshots share stay. A model that "
      "is\n"
      "being downloaded or packed is refused.");
  remove->callback([flags, action] { *action = [flags] { return RemoveOne(*flags); }; });
}

}  // namespace nunspark::cli
