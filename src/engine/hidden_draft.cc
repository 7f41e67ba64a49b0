#include "engine/hidden_draft.h"

#include <utility>

#include "weights/piece_cache.h"

namespace nunspark {

HiddenDraftPlan PlanHiddenDraft(DrafterFiles files, const TreeShape& shape, int32_t sequences, int threads,
                                Numerics numerics) {
  HiddenDraftPlan plan;
  plan.files = std::move(files);
  const ModelLayout& layout = plan.files.layout;
  plan.index = PieceIndex::Build(layout, plan.files.checkpoint.tensors);
  plan.max_rows = sequences * HiddenDrafter::RowsOf(shape);
  for (PieceId piece = 0; piece < plan.index.size(); ++piece) plan.bytes += plan.index.piece(piece).slot_bytes;
  plan.bytes += DraftNetwork::PlanBytes(layout, threads, plan.max_rows, numerics) +
                HiddenDrafter::PlanBytes(layout.hparams.backbone_dim, layout.hparams.vocab_size, plan.max_rows);
  return plan;
}

Result<HiddenDraft> StartHiddenDraft(const HiddenDraftPlan& plan, const ModelLayout& target,
                                     WeightSource& target_weights, ThreadPool& pool, const ReadQueueOptions& io,
                                     Numerics numerics) {
  const ModelLayout& layout = plan.files.layout;
  HiddenDraft draft;
  ASSIGN_OR_RETURN(std::unique_ptr<ReadQueue> queue, OpenReadQueue(plan.index.paths(), io));
  ASSIGN_OR_RETURN(draft.weights, CreateResidentSource(layout, plan.index, std::move(queue)));
  ASSIGN_OR_RETURN(draft.network,
                   DraftNetwork::Create(layout, *draft.weights, target, target_weights, pool, plan.max_rows, numerics));
  return draft;
}

}  // namespace nunspark
