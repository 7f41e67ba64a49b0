#include "decode/model_drafter.h"

#include <algorithm>

#include "base/align.h"
#include "base/check.h"
#include "decode/generate.h"

namespace nunspark {

ModelDrafter::ModelDrafter(const DraftTarget& target) : target_(target) {
  slots_.resize(static_cast<size_t>(target_.slots));
  for (Slot& slot : slots_) {
    slot.kv = std::make_unique<KvSequence>(target_.kv, target_.context);
    slot.stored.reserve(static_cast<size_t>(target_.context));
  }
  if (target_.paths > 1) {
    for (int32_t i = 0; i < target_.slots * target_.paths; ++i) {
      paths_.push_back(std::make_unique<KvSequence>(target_.kv, target_.context));
    }
  }
  batch_.rows.reserve(static_cast<size_t>(target_.model.max_rows()));
  batch_.logit_rows.reserve(static_cast<size_t>(target_.model.max_rows()));
  batch_.sequences.reserve(slots_.size() + paths_.size());
  wanted_.reserve(batch_.rows.capacity());
  level_begin_.reserve(slots_.size());
}

int64_t ModelDrafter::PlanBytes(std::span<const KvLayerShape> layers, int64_t context, int32_t slots, int32_t paths,
                                int64_t vocab_size) {
  const int64_t sequences = int64_t{slots} * (1 + (paths > 1 ? paths : 0));
  return sequences * KvSequence::PlanBytes(layers, context) + slots * context * static_cast<int64_t>(sizeof(int32_t)) +
         SamplerScratch::PlanBytes(vocab_size);
}

int64_t ModelDrafter::PlanPositions(int64_t context, int32_t slots, int32_t paths, int32_t depth) {
  // A path's own blocks: those that its nodes reach, and the one that it begins in the middle of.
  const int64_t own = paths > 1 ? paths * (AlignUp(int64_t{depth}, kKvBlockPositions) + kKvBlockPositions) : 0;
  return slots * (AlignUp(context, kKvBlockPositions) + own);
}

void ModelDrafter::Begin(int32_t slot) {
  slots_[static_cast<size_t>(slot)].kv->Truncate(0);
  slots_[static_cast<size_t>(slot)].stored.clear();
}

bool ModelDrafter::Fits(const DraftRequest& request) const {
  return std::ssize(request.tokens) + request.shape->depth() <= target_.context;
}

Status ModelDrafter::Propose(std::span<const DraftRequest> requests, const std::atomic<bool>& cancelled) {
  batch_.cancelled = &cancelled;
  RETURN_IF_ERROR(CatchUp(requests));
  int32_t levels = 0;
  for (const DraftRequest& request : requests) levels = std::max(levels, request.shape->depth());
  level_begin_.assign(requests.size(), 0);
  for (int32_t level = 1; level < levels; ++level) RETURN_IF_ERROR(DraftLevel(requests, level));
  for (const std::unique_ptr<KvSequence>& path : paths_) path->Truncate(0);
  return Status();
}

// Stores what the target has, up to the last token, whose logits give the first level. Several passes when there is
// much: a prompt, or many sequences.
Status ModelDrafter::CatchUp(std::span<const DraftRequest> requests) {
  for (const DraftRequest& request : requests) {
    Slot& slot = slots_[static_cast<size_t>(request.slot)];
    // What was drafted and rejected goes, and what a run that failed has not stored. The last token always runs.
    size_t same = std::min(static_cast<size_t>(slot.kv->length()), request.tokens.size() - 1);
    const auto end = std::mismatch(request.tokens.begin(), request.tokens.begin() + static_cast<ptrdiff_t>(same),
                                   slot.stored.begin());
    same = static_cast<size_t>(end.second - slot.stored.begin());
    // Other frequencies than before: anew.
    const int64_t change = target_.model.hparams().rope_switch_length();
    const bool changes = change > 0 && std::ssize(slot.stored) <= change && std::ssize(request.tokens) > change;
    if (changes) same = 0;
    slot.kv->Truncate(static_cast<int64_t>(same));
    slot.stored.resize(static_cast<size_t>(slot.kv->length()));
  }
  while (true) {
    batch_.rows.clear();
    batch_.logit_rows.clear();
    batch_.sequences.clear();
    wanted_.clear();
    for (size_t i = 0; i < requests.size(); ++i) {
      const DraftRequest& request = requests[i];
      Slot& slot = slots_[static_cast<size_t>(request.slot)];
      const int64_t begin = std::ssize(slot.stored), all = std::ssize(request.tokens);
      const int64_t room = target_.model.max_rows() - std::ssize(batch_.rows);
      if (begin == all || room == 0 || !Fits(request)) continue;
      const int64_t end = std::min(all, begin + room);
      RETURN_IF_ERROR(slot.kv->Reserve(end));
      AppendRows(request.tokens, begin, end, static_cast<int32_t>(batch_.sequences.size()), batch_);
      batch_.sequences.push_back(slot.kv.get());
      slot.stored.insert(slot.stored.end(), request.tokens.begin() + begin, request.tokens.begin() + end);
      if (end < all) continue;
      batch_.logit_rows.push_back(static_cast<int32_t>(batch_.rows.size()) - 1);
      wanted_.push_back({.request = i, .node = -1});
    }
    if (batch_.rows.empty()) return Status();
    RETURN_IF_ERROR(Run(requests, 0));
  }
}

// Runs the nodes of a level, whose logits give the next.
Status ModelDrafter::DraftLevel(std::span<const DraftRequest> requests, int32_t level) {
  batch_.rows.clear();
  batch_.logit_rows.clear();
  batch_.sequences.clear();
  wanted_.clear();
  for (size_t i = 0; i < requests.size(); ++i) {
    const DraftRequest& request = requests[i];
    const int32_t begin = level_begin_[i], end = request.draft->size();
    level_begin_[i] = end;
    if (level >= request.shape->depth() || begin == end) continue;
    const int64_t position = std::ssize(request.tokens) + level - 1;
    Slot& slot = slots_[static_cast<size_t>(request.slot)];
    const bool chain = request.shape->chain();
    const int32_t paths = request.shape->paths();
    const int32_t first = static_cast<int32_t>(batch_.sequences.size());
    if (chain) {
      RETURN_IF_ERROR(slot.kv->Reserve(position + 1));
      batch_.sequences.push_back(slot.kv.get());
      slot.stored.push_back(request.draft->tokens[static_cast<size_t>(begin)]);
    } else {
      CHECK(paths <= target_.paths);
      for (int32_t p = 0; p < paths; ++p) {
        KvSequence& path = *paths_[static_cast<size_t>(request.slot * target_.paths + p)];
        if (level == 1) RETURN_IF_ERROR(path.ForkFrom(*slot.kv, slot.kv->length()));
        RETURN_IF_ERROR(path.Reserve(position + 1));
        batch_.sequences.push_back(&path);
      }
    }
    const int32_t copies = paths / (end - begin);
    for (int32_t node = begin; node < end; ++node) {
      batch_.logit_rows.push_back(static_cast<int32_t>(batch_.rows.size()));
      wanted_.push_back({.request = i, .node = node});
      batch_.rows.push_back({.token = request.draft->tokens[static_cast<size_t>(node)],
                             .position = static_cast<int32_t>(position),
                             .sequence = first + (node - begin) * copies,
                             .rope_length = static_cast<int32_t>(position + 1),
                             .copies = copies});
    }
  }
  return batch_.rows.empty() ? Status() : Run(requests, level);
}

Status ModelDrafter::Run(std::span<const DraftRequest> requests, int32_t level) {
  const int64_t vocab = target_.model.hparams().vocab_size;
  return target_.model.Forward(batch_, target_.weights, [&](const HeadRows& head) {
    for (int32_t i = 0; i < head.count; ++i) {
      const Wanted& wanted = wanted_[static_cast<size_t>(head.first + i)];
      AddChildren(requests[wanted.request], wanted.node, level, head.logits + i * vocab);
    }
    return Status();
  });
}

void ModelDrafter::AddChildren(const DraftRequest& request, int32_t parent, int32_t level, const float* logits) {
  const int32_t count = request.shape->branching()[static_cast<size_t>(level)];
  int32_t tokens[Sampler::kMostWinners];
  Sampler sampler(*request.sampling, std::min(target_.model.hparams().vocab_size, target_.target_vocab), scratch_);
  const size_t found = sampler.SampleBest(logits,
                                          {.seed = request.sampling->seed,
                                           .choice = request.sampling->choice,
                                           .position = static_cast<uint32_t>(std::ssize(request.tokens) + level)},
                                          {tokens, static_cast<size_t>(count)});
  // A tree is always whole: where the filters leave fewer tokens, the last one stands again and is never taken.
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    request.draft->Add(tokens[std::min(i, found - 1)], parent);
  }
}

}  // namespace nunspark
