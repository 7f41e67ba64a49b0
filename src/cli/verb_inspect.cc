#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <set>

#include <fmt/format.h>

#include "base/json.h"
#include "base/size.h"
#include "cli/engine_flags.h"
#include "cli/model_argument.h"
#include "cli/verbs.h"
#include "engine/engine_plan.h"
#include "engine/model_files.h"
#include "formats/checkpoint.h"
#include "models/describe.h"
#include "models/model_layout.h"
#include "weights/memory_plan.h"

namespace nunspark::cli {
namespace {

struct Flags {
  std::string model;
  EngineFlags engine;
  bool pieces = false;
  bool json = false;
  bool types = false;
};

// What the layout adds up to.
struct Summary {
  int64_t parameters = 0;
  int64_t active_parameters = 0;                             // used for one token
  std::map<std::string, int64_t> encodings;                  // name -> bytes
  std::map<std::string, std::pair<int64_t, int64_t>> kinds;  // piece kind -> count, bytes
};

std::string KindName(const ModelLayout& layout, const PieceLayout& piece) {
  switch (piece.kind) {
    case PieceKind::kEmbed: return layout.hparams.tied ? "embedding (also the head)" : "embedding";
    case PieceKind::kRowTable: return "per-layer embedding";
    case PieceKind::kCore: return layout.first_expert[static_cast<size_t>(piece.layer)] < 0 ? "dense layers" : "cores";
    case PieceKind::kExpert: return "experts";
    case PieceKind::kNormHead: return layout.hparams.tied ? "norm" : "norm and head";
  }
  return "";
}

Summary Summarise(const ModelLayout& layout) {
  Summary summary;
  const HParams& h = layout.hparams;
  for (const PieceLayout& piece : layout.pieces) {
    auto& [count, bytes] = summary.kinds[KindName(layout, piece)];
    ++count;
    bytes += piece.bytes;
    // A table that is not also the head serves one row a token.
    const bool table = piece.kind == PieceKind::kRowTable || (piece.kind == PieceKind::kEmbed && !layout.hparams.tied);
    std::set<int32_t> counted;  // parts that several weights share
    for (const WeightUse& use : piece.weights) {
      const int64_t parameters = use.rows * use.cols + (use.bias >= 0 ? use.rows : 0);
      summary.parameters += parameters;
      if (table) {
        summary.active_parameters += use.cols;
      } else if (piece.kind != PieceKind::kExpert || piece.expert < h.experts_per_token) {
        summary.active_parameters += parameters;
      }
      for (const int32_t part : {use.data, use.scales, use.biases, use.bias}) {
        if (part < 0 || !counted.insert(part).second) continue;
        summary.encodings[FormatName(use.format)] += piece.parts[static_cast<size_t>(part)].bytes;
      }
    }
  }
  return summary;
}

// "16" or, where layers differ, "16 or 32".
std::string Values(const HParams& h, int64_t LayerShape::*member) {
  std::set<int64_t> values;
  for (const LayerShape& layer : h.layer) values.insert(layer.*member);
  std::string text;
  for (const int64_t value : values) text += (text.empty() ? "" : " or ") + std::to_string(value);
  return text;
}

// Why a tensor has no use, and how many share the reason.
std::map<std::string, std::vector<std::string>> IgnoredByReason(const ModelLayout& layout) {
  std::map<std::string, std::vector<std::string>> reasons;
  for (const std::string& name : layout.ignored) {
    bool known = false;
    for (const std::string_view part : layout.spec->ignored) known = known || name.find(part) != std::string::npos;
    std::string reason = "unknown to " + std::string(layout.spec->name);
    if (known) reason = "another part of the model (vision, audio, shared or superfluous)";
    if (layout.hparams.tied && (name.find("lm_head") != std::string::npos || name.starts_with("output.weight"))) {
      reason = "the embedding is the head";
    }
    reasons[reason].push_back(name);
  }
  return reasons;
}

std::string Millions(int64_t count) {
  const double value = static_cast<double>(count);
  return value >= 1e9 ? fmt::format("{:.2f} B", value / 1e9) : fmt::format("{:.1f} M", value / 1e6);
}

void PrintPlan(const ModelLayout& layout, const MemoryPlan& plan) {
  const int32_t layers = static_cast<int32_t>(layout.core.size());
  std::puts(fmt::format("budget       {} (set by {}); floor {}, all resident at {}", FormatSize(plan.budget_bytes),
                        plan.budget_bound, FormatSize(plan.floor_bytes), FormatSize(plan.full_bytes))
                .c_str());
  std::puts(fmt::format("  would hold {} of {} layer cores{}", plan.pinned_cores, layers,
                        plan.ring_slots > 0 ? fmt::format(", the rest through a ring of {}", plan.ring_slots) : "")
                .c_str());
  int64_t experts = 0;
  for (const PieceLayout& piece : layout.pieces) experts += piece.kind == PieceKind::kExpert ? 1 : 0;
  if (experts > 0) {
    std::puts(fmt::format("             {} of {} experts ({:.0f} %)", plan.expert_slots, experts,
                          100.0 * plan.expert_slots / static_cast<double>(experts))
                  .c_str());
  }
  const std::string ceiling = plan.ceiling_bytes > 0
                                  ? fmt::format("of {} ({})", FormatSize(plan.ceiling_bytes), plan.ceiling_bound)
                                  : "of an unknown amount of memory";
  std::puts(fmt::format("  whole process about {} {}", FormatSize(plan.total_bytes), ceiling).c_str());
}

std::string_view FormName(const Checkpoint& checkpoint) {
  if (checkpoint.is_original_pack) return "pack of the original Nunspark";
  return checkpoint.is_gguf ? "GGUF" : checkpoint.is_pack ? "pack" : "checkpoint folder";
}

void PrintText(const Checkpoint& checkpoint, const ModelLayout& layout, const Summary& summary) {
  const HParams& h = layout.hparams;
  std::puts(
      fmt::format("model        {} ({}), {}", checkpoint.folder, layout.spec->name, FormName(checkpoint)).c_str());
  std::puts(fmt::format("defined by   {}", layout.spec->authors_code).c_str());
  std::puts(fmt::format("parameters   {} total, {} active per token", Millions(summary.parameters),
                        Millions(summary.active_parameters))
                .c_str());
  std::puts(fmt::format("shape        {} layers, {} wide, {} heads of {} ({} kv), vocabulary {}", h.layers, h.model_dim,
                        h.heads, Values(h, &LayerShape::head_dim), Values(h, &LayerShape::kv_heads), h.vocab_size)
                .c_str());
  if (h.experts > 0) {
    std::puts(fmt::format("experts      {} a layer, {} used per token", h.experts, h.experts_per_token).c_str());
  }
  std::puts(
      fmt::format("context      {}", h.max_positions > 0 ? fmt::format("{} positions", h.max_positions) : "not stated")
          .c_str());
  std::string shares;
  for (const auto& [name, bytes] : summary.encodings) {
    shares += fmt::format("{}{} {:.1f} %", shares.empty() ? "" : ", ", name,
                          100.0 * static_cast<double>(bytes) / static_cast<double>(layout.total_bytes));
  }
  std::puts(fmt::format("encodings    {}", shares).c_str());
  std::puts(fmt::format("weights      {} in {} pieces, {} files", FormatSize(layout.total_bytes), layout.pieces.size(),
                        checkpoint.tensors.files().size())
                .c_str());
  for (const auto& [kind, entry] : summary.kinds) {
    std::puts(fmt::format("  {:<26} {:>6} x {:>10} = {:>10}", kind, entry.first, FormatSize(entry.second / entry.first),
                          FormatSize(entry.second))
                  .c_str());
  }
  for (const auto& [reason, names] : IgnoredByReason(layout)) {
    std::puts(
        fmt::format("ignored      {} tensors such as {}: {}", names.size(), QuoteName(names.front()), reason).c_str());
  }
}

Json ToJson(const Checkpoint& checkpoint, const ModelLayout& layout, const Summary& summary,
            const Result<MemoryPlan>& plan, bool with_pieces) {
  const HParams& h = layout.hparams;
  Json::Object encodings, kinds;
  for (const auto& [name, bytes] : summary.encodings) encodings.emplace_back(name, bytes);
  for (const auto& [name, entry] : summary.kinds) {
    kinds.emplace_back(name, Json::Object{{"count", entry.first}, {"bytes", entry.second}});
  }
  Json::Array ignored;
  for (const auto& [reason, names] : IgnoredByReason(layout)) {
    for (const std::string& name : names) ignored.push_back(Json::Object{{"name", name}, {"reason", reason}});
  }
  Json::Object out{{"model_type", std::string(layout.spec->name)},
                   {"form", std::string(FormName(checkpoint))},
                   {"parameters", summary.parameters},
                   {"active_parameters", summary.active_parameters},
                   {"layers", h.layers},
                   {"model_dim", h.model_dim},
                   {"heads", h.heads},
                   {"kv_heads", h.layer.front().kv_heads},
                   {"head_dim", h.layer.front().head_dim},
                   {"vocab_size", h.vocab_size},
                   {"experts", h.experts},
                   {"experts_per_token", h.experts_per_token},
                   {"context", h.max_positions},
                   {"tied", h.tied},
                   {"weight_bytes", layout.total_bytes},
                   {"encodings", std::move(encodings)},
                   {"kinds", std::move(kinds)},
                   {"ignored", std::move(ignored)}};
  if (plan.ok()) {
    out.emplace_back("plan", Json::Object{{"budget_bytes", plan->budget_bytes},
                                          {"budget_bound", plan->budget_bound},
                                          {"floor_bytes", plan->floor_bytes},
                                          {"full_bytes", plan->full_bytes},
                                          {"pinned_cores", int64_t{plan->pinned_cores}},
                                          {"ring_slots", int64_t{plan->ring_slots}},
                                          {"expert_slots", int64_t{plan->expert_slots}},
                                          {"total_bytes", plan->total_bytes},
                                          {"ceiling_bytes", plan->ceiling_bytes}});
  } else {
    out.emplace_back("plan_error", plan.status().message());
  }
  if (with_pieces) {
    Json::Array pieces;
    for (const PieceLayout& piece : layout.pieces) {
      Json::Array names;
      for (const TensorSlice& part : piece.parts) names.emplace_back(part.name);
      pieces.push_back(Json::Object{{"piece_id", piece.id}, {"bytes", piece.bytes}, {"tensors", std::move(names)}});
    }
    out.emplace_back("pieces", std::move(pieces));
  }
  return out;
}

Result<int> Run(const Flags& flags) {
  if (flags.types) {
    std::fputs(ModelsDocument().c_str(), stdout);
    return 0;
  }
  if (flags.model.empty()) return InvalidArgumentError("no model given; give a folder or a .gguf file, or --types");
  ASSIGN_OR_RETURN(EngineOptions options, MakeEngineOptions(flags.engine));
  ASSIGN_OR_RETURN(const std::unique_ptr<ModelFilesImpl> files, ModelFilesImpl::OpenFolder(flags.model));
  const Checkpoint& checkpoint = files->checkpoint();
  const ModelLayout& layout = files->layout();
  options.context = ContextOf(flags.engine, *files, kPlannedContext);
  WarnOfContext(flags.engine.context, *files);
  const Summary summary = Summarise(layout);
  const Result<EnginePlan> engine_plan = MakeEnginePlan(*files, options);
  const Result<MemoryPlan> plan = engine_plan.ok() ? Result<MemoryPlan>(engine_plan->memory) : engine_plan.status();
  if (flags.json) {
    std::puts(WriteJson(ToJson(checkpoint, layout, summary, plan, flags.pieces), 2).c_str());
    return 0;
  }
  PrintText(checkpoint, layout, summary);
  if (flags.pieces) {
    for (const PieceLayout& piece : layout.pieces)
      std::puts(fmt::format("  {:<24} {:>12}", piece.id, piece.bytes).c_str());
  }
  if (IsDrafter(*layout.spec)) {
    std::puts("budget       none of its own: it drafts for another model");
    return 0;
  }
  if (!plan.ok()) return plan.status();
  PrintPlan(layout, *plan);
  return 0;
}

}  // namespace

void AddInspect(CLI::App& app, Action* action) {
  auto flags = std::make_shared<Flags>();
  CLI::App* const verb = app.add_subcommand("inspect", "what a model is made of and what a budget would hold");
  verb->add_option("model", flags->model, kModelArgument);
  verb->add_flag("--types", flags->types, "list the supported model types and encodings instead");
  AddMemoryFlags(*verb, flags->engine);
  verb->add_option("--context", flags->engine.context,
                   "positions to plan keys and values for, also beyond what the model was made for; 0 = 4096, or\n"
                   "fewer if that is fewer");
  verb->add_flag("--pieces", flags->pieces, "list every piece");
  verb->add_flag("--json", flags->json, "one JSON object");
  verb->callback([flags, action] { *action = OnModel(flags, Run); });
}

}  // namespace nunspark::cli
