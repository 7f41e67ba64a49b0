#include "engine/hidden_draft.h"

#include <utility>

namespace nunspark {

HiddenDraftPlan PlanHiddenDraft(DrafterFiles files, const TreeShape& shape, int32_t sequences, int threads,
                                Numerics numerics) {
  HiddenDraftPlan plan;
  plan.files = std::move(files);
  const ModelLayout& layout = plan.files.layout;
  plan.index = PieceIndex::Build(layout, plan.files.checkpoint.tensors);
  plan.max_rows = sequences * HiddenDrafter::RowsOf(shape);
  plan.memory = MakeResidentPlan(
      layout, plan.index, 0,
      DraftNetwork::PlanBytes(layout, threads, plan.max_rows, numerics) +
          HiddenDrafter::PlanBytes(layout.hparams.backbone_dim, layout.hparams.vocab_size, plan.max_rows));
  return plan;
}

Result<HiddenDraft> StartHiddenDraft(const HiddenDraftPlan& plan, const ModelLayout& target,
                                     WeightSource& target_weights, ThreadPool& pool, std::unique_ptr<ReadQueue> queue,
                                     const PieceCacheOptions& options, Numerics numerics) {
  const ModelLayout& layout = plan.files.layout;
  HiddenDraft draft;
  ASSIGN_OR_RETURN(draft.cache, PieceCache::Create(layout, plan.index, plan.memory, std::move(queue), options));
  ASSIGN_OR_RETURN(draft.network,
                   DraftNetwork::Create(layout, *draft.cache, target, target_weights, pool, plan.max_rows, numerics));
  return draft;
}

}  // namespace nunspark
