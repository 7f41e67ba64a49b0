#include "decode/sequence_group.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "decode/generate.h"

namespace nunspark {

SequenceGroup::Member::Member(int32_t its_tag, const SequenceRequest& request, const GroupTarget& target,
                              SamplerScratch& scratch)
    : tag(its_tag),
      tokens(request.prompt),
      kv(target.kv, target.context),
      run(static_cast<int64_t>(request.prompt.size()), request.options, target.stop_ids,
          target.model.hparams().vocab_size, scratch, target.bytes_read()) {
  const int64_t most = static_cast<int64_t>(tokens.size()) + request.options.max_tokens;
  tokens.reserve(static_cast<size_t>(std::min(most, target.context + 1)));
}

SequenceGroup::SequenceGroup(GroupTarget target, GroupCallbacks callbacks)
    : target_(std::move(target)), callbacks_(std::move(callbacks)) {
  CHECK(target_.max_sequences >= 1 && target_.max_sequences <= target_.model.max_rows());
  members_.reserve(static_cast<size_t>(target_.max_sequences));
  picking_.reserve(members_.capacity());
  batch_.sequences.reserve(members_.capacity());
  batch_.logit_rows.reserve(members_.capacity());
  batch_.rows.reserve(static_cast<size_t>(target_.model.max_rows()));
  batch_.cancelled = &target_.cancelled;
}

int64_t SequenceGroup::PlanBytes(std::span<const KvLayerShape> layers, int64_t context, int64_t vocab_size,
                                 int32_t max_sequences) {
  // Tokens, results and their times.
  const int64_t texts = (context + 1) * 16;
  return max_sequences * (KvSequence::PlanBytes(layers, context) + texts + static_cast<int64_t>(sizeof(Member))) +
         SamplerScratch::PlanBytes(vocab_size);
}

Status SequenceGroup::Join(int32_t tag, const SequenceRequest& request) {
  RETURN_IF_ERROR(CheckGenerateOptions(request.options));
  RETURN_IF_ERROR(CheckTokens(request.prompt, target_.model.hparams().vocab_size));
  RETURN_IF_ERROR(
      CheckContext(static_cast<int64_t>(request.prompt.size()), request.options.max_tokens, target_.context));
  if (size() == target_.max_sequences) {
    return ResourceExhaustedError(
        fmt::format("{} sequences run together already, as many as were planned", target_.max_sequences));
  }
  members_.push_back(std::make_unique<Member>(tag, request, target_, scratch_));
  return Status();
}

Status SequenceGroup::Step() {
  CHECK(!empty());
  RETURN_IF_ERROR(FillBatch());
  RETURN_IF_ERROR(target_.model.Forward(batch_, target_.weights, [&](const HeadRows& head) {
    const int64_t vocab = target_.model.hparams().vocab_size;
    for (int32_t i = 0; i < head.count; ++i) {
      picking_[static_cast<size_t>(head.first + i)]->run.Pick(head.logits + i * vocab);
    }
    return Status();
  }));
  // After the pass: a callback may take its time, and leases are not held meanwhile.
  const int64_t bytes_read = target_.bytes_read();
  for (Member* const member : picking_) {
    const auto wanted = [&](int32_t token) { return callbacks_.on_token(member->tag, token); };
    if (!member->run.Accept(bytes_read, wanted)) {
      End(*member);
      continue;
    }
    if (ChangesFrequencies(target_.model, static_cast<int64_t>(member->tokens.size()))) member->kv.Truncate(0);
    member->tokens.push_back(member->run.token());
  }
  std::erase_if(members_, [](const std::unique_ptr<Member>& member) { return member == nullptr; });
  return Status();
}

void SequenceGroup::Leave(int32_t tag) {
  for (const std::unique_ptr<Member>& member : members_) {
    if (member->tag != tag) continue;
    member->run.Cancel();
    End(*member);
    break;
  }
  std::erase_if(members_, [](const std::unique_ptr<Member>& member) { return member == nullptr; });
}

void SequenceGroup::LeaveAll() {
  while (!empty()) Leave(members_.front()->tag);
}

// Sequences that are being decoded go first, since someone reads their text; then prompts, in the order of joining.
Status SequenceGroup::FillBatch() {
  batch_.rows.clear();
  batch_.sequences.clear();
  batch_.logit_rows.clear();
  picking_.clear();
  for (const std::unique_ptr<Member>& member : members_) {
    if (member->pending() == 1) RETURN_IF_ERROR(AddRows(*member, 1));
  }
  const int64_t free = target_.model.max_rows() - static_cast<int64_t>(batch_.rows.size());
  int64_t left = std::min<int64_t>(std::max(target_.prefill_chunk, 1), free);
  for (const std::unique_ptr<Member>& member : members_) {
    if (member->pending() == 1 || left == 0) continue;
    const int64_t rows = std::min(member->pending(), left);
    RETURN_IF_ERROR(AddRows(*member, rows));
    left -= rows;
  }
  return Status();
}

// The sequence's next `count` rows.
Status SequenceGroup::AddRows(Member& member, int64_t count) {
  const int64_t begin = member.kv.length();
  RETURN_IF_ERROR(member.kv.Reserve(begin + count));
  AppendRows(member.tokens, begin, begin + count, static_cast<int32_t>(batch_.sequences.size()), batch_);
  batch_.sequences.push_back(&member.kv);
  if (count < member.pending()) return Status();
  batch_.logit_rows.push_back(static_cast<int32_t>(batch_.rows.size()) - 1);
  picking_.push_back(&member);
  return Status();
}

// Gives the sequence's blocks back and reports it. Its place in members_ stays, empty, until the caller has swept.
void SequenceGroup::End(Member& member) {
  const auto place = std::find_if(members_.begin(), members_.end(),
                                  [&](const std::unique_ptr<Member>& other) { return other.get() == &member; });
  const std::unique_ptr<Member> ended = std::move(*place);
  ended->kv.Truncate(0);
  callbacks_.on_end(ended->tag, ended->run.Finish(target_.bytes_read()));
}

}  // namespace nunspark
