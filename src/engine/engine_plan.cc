#include "engine/engine_plan.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "base/align.h"
#include "base/cpu_count.h"
#include "decode/model_drafter.h"
#include "decode/sequence_group.h"
#include "engine/draft_check.h"
#include "kv/prefix_store.h"
#include "models/model.h"

namespace nunspark {
namespace {

// Touched stack and allocator arena of one compute thread, rounded up.
constexpr int64_t kThreadBytes = 128 << 10;

// Far beyond any model; below it no size of ours overflows.
constexpr int64_t kMaxContext = 1 << 26;

constexpr int kMaxThreads = 1024;

// Sequences that decode together: beyond a few hundred, a pass is bound by arithmetic and gains nothing by more.
constexpr int32_t kMaxSequences = 1024;

constexpr double kMaxReadTimeout = 86400;

// Of a draft that is a chain.
constexpr int32_t kMostDraftTokens = 256;

// Rows of one pass for drafts of all sequences: more sequences at once get shorter drafts.
constexpr int32_t kMostDraftRows = 256;

// Rows of a pass, where memory is short and prompts are longer.
constexpr int64_t kFewestChunkRows = 128;

// Rows of a draft model's passes, for prompts.
constexpr int32_t kDraftChunk = 256;

FloatType KvFloatType(KvType type) {
  switch (type) {
    case KvType::kF32: return FloatType::kF32;
    case KvType::kF16: return FloatType::kF16;
    case KvType::kBF16: return FloatType::kBF16;
  }
  return FloatType::kF16;
}

Status CheckKvOptions(const ModelFilesImpl& files, const EngineOptions& options) {
  const int32_t bits = options.kv_bits, group = options.kv_group_size;
  if (bits != 0 && bits != 4 && bits != 8) {
    return InvalidArgumentError(fmt::format("--kv-bits must be 4 or 8, found {}", bits));
  }
  if (group != 32 && group != 64 && group != 128) {
    return InvalidArgumentError(fmt::format("--kv-group-size must be 32, 64 or 128, found {}", group));
  }
  const BlockSpec& block = files.layout().spec->block;
  if (bits != 0 && block.attention == Attention::kMla) {
    return UnsupportedError(fmt::format(
        "--kv-bits: {} keeps one small latent in place of keys and values, which is not stored as integers; "
        "drop the flag",
        files.model_type()));
  }
  if (bits != 0 && !block.quantised_kv) {
    return UnsupportedError(
        fmt::format("--kv-bits: keys and values of {} are not stored as integers; drop the flag", files.model_type()));
  }
  return Status();
}

Status CheckOptions(const ModelFilesImpl& files, const EngineOptions& options) {
  if (IsDrafter(*files.layout().spec)) {
    return UnsupportedError(fmt::format("{}: a model of type {} drafts for another one and cannot run alone",
                                        files.folder(), files.model_type()));
  }
  const int64_t limit = options.context_limit > 0 ? options.context_limit : files.max_context();
  const int64_t most = limit > 0 ? std::min(limit, kMaxContext) : kMaxContext;
  if (options.context < 1 || options.context > most) {
    return InvalidArgumentError(fmt::format(
        "a context of {} positions is outside 1 to {}, {}; shorten the prompt or --max-tokens{}", options.context, most,
        options.context_limit > 0 ? "the limit that was set" : "what this model was made for",
        options.context_limit > 0 ? "" : ", or raise the limit with --context"));
  }
  if (options.prefill_chunk < 1) {
    return InvalidArgumentError(fmt::format("prefill chunk must be at least 1, found {}", options.prefill_chunk));
  }
  if (options.max_sequences < 1 || options.max_sequences > kMaxSequences) {
    return InvalidArgumentError(fmt::format("sequences that run together must be from 1 to {}, found {}", kMaxSequences,
                                            options.max_sequences));
  }
  if (options.threads < 0 || options.threads > kMaxThreads) {
    return InvalidArgumentError(
        fmt::format("threads must be from 0 (all) to {}, found {}", kMaxThreads, options.threads));
  }
  if (options.kv_budget_bytes.value_or(1) < 1) {
    return InvalidArgumentError(fmt::format("a KV budget must be at least 1 byte, found {}", *options.kv_budget_bytes));
  }
  if (options.lookahead_top < 1) {
    return InvalidArgumentError(fmt::format("lookahead must name at least 1 expert, found {}", options.lookahead_top));
  }
  if (!(options.prediction_recall >= 0 && options.prediction_recall <= 1)) {
    return InvalidArgumentError(
        fmt::format("prediction recall must be from 0 to 1, found {}", options.prediction_recall));
  }
  if (!(options.read_timeout_s > 0 && options.read_timeout_s <= kMaxReadTimeout)) {
    return InvalidArgumentError(fmt::format("--read-timeout must be from above 0 to {} seconds, found {}",
                                            kMaxReadTimeout, options.read_timeout_s));
  }
  if (options.kv_tokens < 0 || (options.kv_tokens > 0 && options.kv_tokens < options.context)) {
    return InvalidArgumentError(
        fmt::format("room for {} tokens in all is less than the context of {}", options.kv_tokens, options.context));
  }
  if (options.prefix_tokens < 0 || options.prefix_tokens > kMaxContext) {
    return InvalidArgumentError(
        fmt::format("room for prefixes must be from 0 to {} tokens, found {}", kMaxContext, options.prefix_tokens));
  }
  if (!options.reuse_prefixes && (options.prefix_tokens > 0 || !options.prefix_file.empty())) {
    return InvalidArgumentError("room or a file for prefixes makes sense only where they are used again");
  }
  RETURN_IF_ERROR(CheckKvOptions(files, options));
  const double share = options.expert_cache_fraction.value_or(0);
  if (!(share >= 0 && share <= 1)) {
    return InvalidArgumentError(fmt::format("--expert-cache-frac must be from 0 to 1, found {}", share));
  }
  return Status();
}

// Errors: kInvalidArgument for numbers that make no sense.
Result<TreeShape> DraftShape(const DrafterOptions& options) {
  if (options.accept_top_k < 1) {
    return InvalidArgumentError(fmt::format("--accept-top-k must be at least 1, found {}", options.accept_top_k));
  }
  if (!options.any()) {
    if (options.tree.empty()) return TreeShape::Chain(0);
    return InvalidArgumentError("--tree needs a drafter: --draft-model or --eagle-drafter");
  }
  if (options.tokens < 1 || options.tokens > kMostDraftTokens) {
    return InvalidArgumentError(
        fmt::format("--num-draft-tokens must be from 1 to {}, found {}", kMostDraftTokens, options.tokens));
  }
  if (options.tree.empty()) return TreeShape::Chain(options.tokens);
  if (options.ngram) return InvalidArgumentError("--tree does not go with --ngram-draft, which knows one continuation");
  Result<TreeShape> shape = TreeShape::Create(options.tree);
  if (!shape.ok()) return shape.status().WithContext("--tree");
  return shape;
}

int64_t ModelScratchBytes(const ModelLayout& layout, const ModelPlan& plan, Numerics numerics) {
  return Model::ScratchBytes(layout, plan.threads, plan.max_rows, numerics) + plan.threads * kThreadBytes;
}

// Everything of a draft model stays in memory: streaming it would cost what drafts are to save.
Result<std::unique_ptr<DraftModelPlan>> MakeDraftModelPlan(std::unique_ptr<ModelFilesImpl> files,
                                                           const ModelFilesImpl& target, const EngineOptions& options,
                                                           const TreeShape& shape, int threads) {
  RETURN_IF_ERROR(CheckDraftModel(*files, target));
  auto draft = std::make_unique<DraftModelPlan>();
  draft->files = std::move(files);
  const ModelLayout& layout = draft->files->layout();
  draft->context = options.context + shape.depth();
  if (draft->files->max_context() > 0) draft->context = std::min(draft->context, draft->files->max_context());
  ModelPlan& plan = draft->model;
  plan.index = PieceIndex::Build(layout, draft->files->checkpoint().tensors);
  plan.threads = threads;
  const int32_t slots = options.max_sequences;
  plan.max_rows = std::max(kDraftChunk, slots * std::max(shape.paths(), 2));
  plan.kv_shapes = Model::KvShapes(layout.hparams);
  plan.kv_room.positions = ModelDrafter::PlanPositions(draft->context, slots, shape.paths(), shape.depth());
  plan.memory = MakeResidentPlan(
      layout, plan.index, KvPool::PlanBytes(plan.kv_shapes, plan.kv_room),
      ModelScratchBytes(layout, plan, options.numerics) +
          ModelDrafter::PlanBytes(plan.kv_shapes, draft->context, slots, shape.paths(), layout.hparams.vocab_size));
  return draft;
}

Status PlanEagle(const ModelFilesImpl& files, const EngineOptions& options, EnginePlan& plan) {
  ASSIGN_OR_RETURN(DrafterFiles eagle, OpenEagleFolder(options.drafter.eagle_dir, files.layout().hparams));
  plan.hidden_draft = std::make_unique<HiddenDraftPlan>(
      PlanHiddenDraft(std::move(eagle), plan.draft_shape, options.max_sequences, plan.threads, options.numerics));
  return Status();
}

// A model that runs alone, or one that drafts for others.
Status PlanDraftModel(const ModelFilesImpl& files, const EngineOptions& options, EnginePlan& plan) {
  ASSIGN_OR_RETURN(std::unique_ptr<ModelFilesImpl> draft, ModelFilesImpl::OpenFolder(options.drafter.draft_model));
  if (!IsDrafter(*draft->layout().spec)) {
    ASSIGN_OR_RETURN(plan.draft, MakeDraftModelPlan(std::move(draft), files, options, plan.draft_shape, plan.threads));
    return Status();
  }
  ASSIGN_OR_RETURN(DrafterFiles assistant, OpenAssistant(options.drafter.draft_model, files.layout().hparams));
  plan.hidden_draft = std::make_unique<HiddenDraftPlan>(
      PlanHiddenDraft(std::move(assistant), plan.draft_shape, options.max_sequences, plan.threads, options.numerics));
  return Status();
}

// Whether a limit of the whole process makes activations take room that weights need. Where several sequences are
// decoded together, every pass of theirs misses the room (docs/decisions/0024).
bool ActivationsCrowdOutWeights(const MemoryPlan& plan, int64_t activations, bool together) {
  const int64_t share = together ? 10 : 5;
  return plan.budget_bound == plan.ceiling_bound && plan.budget_bytes < plan.full_bytes &&
         activations > plan.budget_bytes / share;
}

// What is to be reserved when a pass has up to `rows` rows.
Status PlanMemory(const ModelFilesImpl& files, const EngineOptions& options, const SequenceGroup::Needs& needs,
                  int32_t rows, const SystemMemory& system, EnginePlan& plan) {
  const ModelLayout& layout = files.layout();
  plan.max_rows = rows;
  const int64_t beside = SequenceGroup::PlanTreePositions(needs) + AlignUp(options.prefix_tokens, kKvBlockPositions);
  // With prefixes that are used again, windows of as many sequences that have ended.
  plan.kv_room = {.positions = AlignUp(plan.kv_tokens, kKvBlockPositions) + beside,
                  .beside = beside,
                  .sequences = options.max_sequences * (options.reuse_prefixes ? 2 : 1),
                  .pass_rows = plan.max_rows,
                  .take_back = std::max<int64_t>(kKvBlockPositions, plan.draft_shape.depth())};
  MemoryRequest request;
  request.budget_bytes = options.budget_bytes;
  request.memory_bytes = options.memory_bytes;
  request.expert_fraction = options.expert_cache_fraction.value_or(-1);
  request.kv_bytes = KvPool::PlanResidentBytes(plan.kv_shapes, plan.kv_room,
                                               options.kv_budget_bytes.value_or(std::numeric_limits<int64_t>::max()));
  request.scratch_bytes =
      ModelScratchBytes(layout, plan, options.numerics) + SequenceGroup::PlanBytes(needs) + options.caller_bytes;
  if (plan.draft != nullptr) request.drafter_bytes = plan.draft->model.memory.total_bytes;
  if (plan.hidden_draft != nullptr) request.drafter_bytes = plan.hidden_draft->memory.total_bytes;
  if (options.reuse_prefixes) {
    // As many blocks as the pool has, those in its file included.
    const int64_t all = KvPool::PlanBytes(plan.kv_shapes, plan.kv_room);
    request.scratch_bytes += PrefixStore::PlanBytes(plan.kv_shapes, plan.kv_room.positions, all);
  }
  ASSIGN_OR_RETURN(plan.memory, MakeMemoryPlan(layout, plan.index, request, system));
  return Status();
}

}  // namespace

KvFormat KvFormatOf(const EngineOptions& options) {
  KvFormat format{.type = KvFloatType(options.kv)};
  if (options.kv_bits == 0) return format;
  format.bits = static_cast<uint8_t>(options.kv_bits);
  format.group_size = static_cast<uint8_t>(options.kv_group_size);
  return format;
}

Result<EnginePlan> MakeEnginePlan(const ModelFilesImpl& files, const EngineOptions& options) {
  RETURN_IF_ERROR(CheckOptions(files, options));
  const ModelLayout& layout = files.layout();
  EnginePlan plan;
  ASSIGN_OR_RETURN(plan.draft_shape, DraftShape(options.drafter));
  plan.index = PieceIndex::Build(layout, files.checkpoint().tensors);
  plan.threads = options.threads > 0 ? options.threads : std::min(DefaultThreads(), kMaxThreads);
  plan.kv_shapes = Model::KvShapes(layout.hparams, KvFormatOf(options));
  plan.kv_tokens = options.kv_tokens > 0 ? std::min(options.kv_tokens,
                                                    AlignUp(options.context, kKvBlockPositions) * options.max_sequences)
                                         : AlignUp(options.context, kKvBlockPositions) * options.max_sequences;
  const SequenceGroup::Needs needs{.layers = plan.kv_shapes,
                                   .context = options.context,
                                   .vocab_size = layout.hparams.vocab_size,
                                   .model_dim = layout.hparams.model_dim,
                                   .max_sequences = options.max_sequences,
                                   .shape = plan.draft_shape};
  if (options.drafter.ngram) {
    // Goes before the others, and needs nothing.
  } else if (!options.drafter.eagle_dir.empty()) {
    if (const Status planned = PlanEagle(files, options, plan); !planned.ok()) {
      return planned.WithContext("--eagle-drafter");
    }
  } else if (!options.drafter.draft_model.empty()) {
    if (const Status planned = PlanDraftModel(files, options, plan); !planned.ok()) {
      return planned.WithContext("--draft-model");
    }
  }

  // A prompt chunk, which may hold rows of several sequences, and at the least all rows of those that decode.
  const int64_t least = std::min<int64_t>(
      SequenceGroup::PlanRows(needs), std::max({options.max_sequences, kMostDraftRows, 1 + plan.draft_shape.nodes()}));
  int64_t rows = std::max(std::min<int64_t>(options.prefill_chunk, options.context * options.max_sequences), least);
  const SystemMemory system = MeasureSystemMemory();
  while (true) {
    const Status planned = PlanMemory(files, options, needs, static_cast<int32_t>(rows), system, plan);
    // Shorter chunks read the experts of a prompt more often, and leave more of them in memory for every token after
    // it.
    const int64_t fewer = std::max({least, kFewestChunkRows, rows / 2});
    if (fewer >= rows ||
        (planned.ok() && !ActivationsCrowdOutWeights(plan.memory, ModelScratchBytes(layout, plan, options.numerics),
                                                     options.max_sequences > 1))) {
      RETURN_IF_ERROR(planned);
      return plan;
    }
    rows = fewer;
  }
}

}  // namespace nunspark
