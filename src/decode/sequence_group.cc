#include "decode/sequence_group.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "base/align.h"
#include "base/check.h"
#include "decode/generate.h"
#include "decode/ngram_drafter.h"
#include "kernels/kernels.h"

namespace nunspark {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Two best logits nearer than this: a tie that rounding could turn (contract 4.1).
constexpr float kNearTie = 0.5f;

// Rows of prompts in a step beside decoding, at the least, so that prompts get on under any target.
constexpr int64_t kFewestPromptRows = 16;

// A drafted token less likely than this to be kept is not worth its row in a pass with other sequences' rows.
constexpr double kLeastChance = 0.2;

bool IsNearTie(const float* logits, int64_t vocab) {
  const int64_t best = Kernels().argmax(logits, vocab);
  float second = -std::numeric_limits<float>::infinity();
  if (best > 0) second = std::max(second, logits[Kernels().argmax(logits, best)]);
  if (best + 1 < vocab)
    second = std::max(second, logits[best + 1 + Kernels().argmax(logits + best + 1, vocab - best - 1)]);
  return logits[best] - second < kNearTie;
}

// Whether fewer than k tokens come before this one, by logit and then by id.
bool IsAmongBest(const float* logits, int64_t vocab, int32_t token, int64_t k) {
  int64_t before = 0;
  for (int64_t other = 0; other < vocab && before < k; ++other) {
    before += logits[other] > logits[token] || (logits[other] == logits[token] && other < token) ? 1 : 0;
  }
  return before < k;
}

}  // namespace

SequenceGroup::Member::Member(int32_t its_tag, int32_t its_slot, const SequenceRequest& request,
                              const GroupTarget& target, SamplerScratch& scratch)
    : tag(its_tag),
      slot(its_slot),
      tokens(request.prompt),
      kv(target.kv, target.context),
      run(request.prompt, request.options, target.stop_ids, target.model.hparams().vocab_size, scratch,
          target.bytes_read()) {
  const int64_t most = static_cast<int64_t>(tokens.size()) + request.options.max_tokens;
  tokens.reserve(static_cast<size_t>(std::min(most, target.context + 1)));
  if (target.drafter == nullptr) return;
  draft.Reserve(target.shape.nodes());
  if (target.drafter->WantsHidden()) hidden.resize(static_cast<size_t>(target.model.hparams().model_dim));
}

SequenceGroup::SequenceGroup(GroupTarget target, GroupCallbacks callbacks)
    : target_(std::move(target)),
      callbacks_(std::move(callbacks)),
      paths_per_sequence_(target_.drafter == nullptr || target_.shape.chain() ? 0 : target_.shape.paths()),
      governor_(target_.shape) {
  CHECK(target_.max_sequences >= 1 && target_.max_sequences <= target_.model.max_rows());
  const size_t most = static_cast<size_t>(target_.max_sequences);
  members_.reserve(most);
  decoding_.reserve(most);
  requests_.reserve(most);
  for (int32_t slot = target_.max_sequences - 1; slot >= 0; --slot) free_slots_.push_back(slot);
  for (int32_t i = 0; i < target_.max_sequences * paths_per_sequence_; ++i) {
    paths_.push_back(std::make_unique<KvSequence>(target_.kv, target_.context));
  }
  if (paths_per_sequence_ > 0) {
    shapes_.push_back(target_.shape);
  } else {
    for (int32_t length = 0; length <= target_.shape.depth(); ++length) shapes_.push_back(TreeShape::Chain(length));
  }
  batch_.sequences.reserve(most * static_cast<size_t>(std::max(paths_per_sequence_, 1)));
  batch_.logit_rows.reserve(static_cast<size_t>(target_.model.max_rows()));
  batch_.rows.reserve(static_cast<size_t>(target_.model.max_rows()));
  picks_.reserve(batch_.logit_rows.capacity());
  batch_.cancelled = &target_.cancelled;
}

int64_t SequenceGroup::PlanBytes(const Needs& needs) {
  const int64_t paths = needs.shape.chain() ? 0 : needs.shape.paths();
  const int64_t room = needs.context + 1;
  const int64_t one =
      (1 + paths) * KvSequence::PlanBytes(needs.layers, needs.context) + room * static_cast<int64_t>(sizeof(int32_t)) +
      SequenceRun::PlanBytes(room, needs.vocab_size) + needs.model_dim * static_cast<int64_t>(sizeof(float)) +
      needs.shape.nodes() * static_cast<int64_t>(2 * sizeof(int32_t)) + static_cast<int64_t>(sizeof(Member));
  return needs.max_sequences * one + SamplerScratch::PlanBytes(needs.vocab_size);
}

int64_t SequenceGroup::PlanTreePositions(const Needs& needs) {
  if (needs.shape.chain()) return 0;
  // A path's own blocks: those that its nodes reach, and the one that it begins in the middle of.
  const int64_t own = AlignUp(int64_t{needs.shape.depth()}, kKvBlockPositions) + kKvBlockPositions;
  return int64_t{needs.max_sequences} * needs.shape.paths() * own;
}

Status SequenceGroup::Join(int32_t tag, const SequenceRequest& request) {
  const int64_t vocab = target_.model.hparams().vocab_size;
  RETURN_IF_ERROR(CheckGenerateOptions(request.options, vocab));
  RETURN_IF_ERROR(CheckTokens(request.prompt, vocab));
  RETURN_IF_ERROR(
      CheckContext(static_cast<int64_t>(request.prompt.size()), request.options.max_tokens, target_.context));
  if (target_.accept_top_k > 1 && request.options.sampling.temperature > 0) {
    return InvalidArgumentError("--accept-top-k above 1 keeps what the model would not pick; it needs temperature 0");
  }
  if (size() == target_.max_sequences) {
    return ResourceExhaustedError(
        fmt::format("{} sequences run together already, as many as were planned", target_.max_sequences));
  }
  const int32_t slot = free_slots_.back();
  members_.push_back(std::make_unique<Member>(tag, slot, request, target_, scratch_));
  free_slots_.pop_back();
  if (target_.drafter != nullptr) target_.drafter->Begin(slot);
  Member& member = *members_.back();
  if (target_.prefixes != nullptr) {
    const uint32_t side = target_.model.hparams().rotation_side(std::ssize(member.tokens));
    member.run.Cached(target_.prefixes->Match(member.tokens, side, member.kv));
  }
  return Status();
}

Status SequenceGroup::Step() {
  CHECK(!empty());
  RETURN_IF_ERROR(FillBatch());
  const Clock::time_point start = Clock::now();
  const int64_t vocab = target_.model.hparams().vocab_size, dim = target_.model.hparams().model_dim;
  RETURN_IF_ERROR(target_.model.Forward(batch_, target_.weights, [&](const HeadRows& head) {
    for (int32_t i = 0; i < head.count; ++i) {
      Walk(picks_[static_cast<size_t>(head.first + i)], head.logits + i * vocab, head.hidden + i * dim);
    }
    return Status();
  }));
  RecordPass(SecondsSince(start));
  for (Member* const member : decoding_) KeepPath(*member);
  // After the pass: a callback may take its time, and leases are not held meanwhile.
  const int64_t bytes_read = target_.bytes_read();
  for (const std::unique_ptr<Member>& member : members_) {
    if (!Deliver(*member, bytes_read)) End(*member, Status());
  }
  Sweep();
  return Status();
}

void SequenceGroup::Leave(int32_t tag) {
  for (const std::unique_ptr<Member>& member : members_) {
    if (member->tag != tag) continue;
    member->run.Cancel();
    End(*member, Status());
    break;
  }
  Sweep();
}

void SequenceGroup::EndAll(const Status& status) {
  for (const std::unique_ptr<Member>& member : members_) {
    member->run.Cancel();
    End(*member, status);
  }
  Sweep();
}

// ---- what goes into a step

// Sequences that are being decoded go first, since someone reads their text; then prompts.
Status SequenceGroup::FillBatch() {
  batch_.rows.clear();
  batch_.sequences.clear();
  batch_.logit_rows.clear();
  picks_.clear();
  decoding_.clear();
  for (const std::unique_ptr<Member>& member : members_) {
    member->draft.Clear();
    member->base = member->kv.Truncate(member->kv.length());  // what a pass that was cancelled has reserved
    member->first_path = -1;
    member->at = member->reached = kRoot;
    member->accepted = 0;
    if (member->decoding) decoding_.push_back(member.get());
  }
  draft_s_ = 0;
  draft_steps_ = 0;
  draft_known_ = true;
  if (target_.drafter != nullptr && !decoding_.empty()) RETURN_IF_ERROR(MakeDrafts(decoding_));
  for (Member* const member : decoding_) RETURN_IF_ERROR(AddDecodingRows(*member));
  return AddPromptRows();
}

// Levels that may be drafted for a sequence now: within what is asked of it, its context, and the pass.
int32_t SequenceGroup::DraftLength(const Member& member, int32_t decoding) const {
  int64_t most = target_.shape.depth();
  most = std::min(most, member.run.left() - 1);
  most = std::min(most, target_.context - member.base - 1);
  // Beyond this position all keys are computed anew.
  const int64_t change = target_.model.hparams().rope_switch_length();
  if (change > member.base) most = std::min(most, change - 1 - member.base);
  const int64_t prompts = size() > decoding ? kFewestPromptRows : 0;
  const int64_t rows = (target_.model.max_rows() - prompts) / decoding - 1;
  if (paths_per_sequence_ > 0)
    return most == target_.shape.depth() && rows >= target_.shape.nodes() ? target_.shape.depth() : 0;
  return static_cast<int32_t>(std::max<int64_t>(std::min(most, rows), 0));
}

Status SequenceGroup::MakeDrafts(std::span<Member* const> decoding) {
  const int32_t count = static_cast<int32_t>(decoding.size());
  const int32_t governed = target_.governed ? governor_.Length(count, acceptance_) : target_.shape.depth();
  if (governed == 0) return Status();
  requests_.clear();
  for (Member* const member : decoding) {
    int32_t length = std::min(governed, DraftLength(*member, count));
    if (target_.governed && count > 1 && member->acceptance.known()) {
      double chance = member->acceptance.rate();
      int32_t worth = 0;
      for (; worth < length && chance >= kLeastChance; ++worth) chance *= member->acceptance.rate();
      length = paths_per_sequence_ > 0 && worth < length ? 0 : worth;
    }
    if (length > 0) length = target_.drafter->WantedLength(member->slot, length);
    if (length == 0) continue;
    draft_steps_ = std::max(draft_steps_, length);
    draft_known_ = draft_known_ && member->run.drafts().proposed > 0;
    requests_.push_back({.slot = member->slot,
                         .tokens = member->tokens,
                         .hidden = member->hidden.empty() ? nullptr : member->hidden.data(),
                         .kv = &member->kv,
                         .sampling = &member->run.sampling(),
                         .shape = &shapes_[paths_per_sequence_ > 0 ? 0 : static_cast<size_t>(length)],
                         .draft = &member->draft});
  }
  if (requests_.empty()) return Status();
  const Clock::time_point start = Clock::now();
  RETURN_IF_ERROR(target_.drafter->Propose(requests_, target_.cancelled));
  draft_s_ = SecondsSince(start);
  return Status();
}

// The last token and its draft: a chain in the sequence's own blocks, each path of a tree in a fork of them.
Status SequenceGroup::AddDecodingRows(Member& member) {
  const int32_t first = static_cast<int32_t>(batch_.sequences.size());
  const bool tree = paths_per_sequence_ > 0 && !member.draft.empty();
  const int32_t paths = tree ? paths_per_sequence_ : 1;
  const int64_t end = member.base + 1 + (tree ? target_.shape.depth() : member.draft.size());
  if (tree) {
    member.first_path = member.slot * paths_per_sequence_;
    for (int32_t i = 0; i < paths; ++i) {
      KvSequence& path = *paths_[static_cast<size_t>(member.first_path + i)];
      RETURN_IF_ERROR(path.ForkFrom(member.kv, member.base));
      RETURN_IF_ERROR(path.Reserve(end));
      batch_.sequences.push_back(&path);
    }
  } else {
    RETURN_IF_ERROR(member.kv.Reserve(end));
    batch_.sequences.push_back(&member.kv);
  }
  const auto add = [&](int32_t node, int32_t token, int64_t depth, int32_t path, int32_t copies) {
    batch_.logit_rows.push_back(static_cast<int32_t>(batch_.rows.size()));
    picks_.push_back({.member = &member, .node = node});
    batch_.rows.push_back({.token = token,
                           .position = static_cast<int32_t>(member.base + depth),
                           .sequence = first + path,
                           .rope_length = static_cast<int32_t>(member.base + depth + 1),
                           .copies = copies});
  };
  add(kRoot, member.tokens.back(), 0, 0, paths);
  if (!tree) {
    for (int32_t node = 0; node < member.draft.size(); ++node) {
      CHECK(member.draft.parents[static_cast<size_t>(node)] == node - 1);
      add(node, member.draft.tokens[static_cast<size_t>(node)], node + 1, 0, 1);
    }
    return Status();
  }
  CHECK(member.draft.size() == target_.shape.nodes());
  int32_t node = 0, level_nodes = 1;
  for (int32_t depth = 1; depth <= target_.shape.depth(); ++depth) {
    level_nodes *= target_.shape.branching()[static_cast<size_t>(depth - 1)];
    const int32_t copies = paths / level_nodes;
    for (int32_t i = 0; i < level_nodes; ++i, ++node) {
      add(node, member.draft.tokens[static_cast<size_t>(node)], depth, i * copies, copies);
    }
  }
  return Status();
}

// Prompts share what is left alike, in the order of joining.
Status SequenceGroup::AddPromptRows() {
  int64_t left = target_.model.max_rows() - std::ssize(batch_.rows);
  left = std::min<int64_t>(left, std::max(target_.prefill_chunk, 1));
  if (!decoding_.empty() && target_.step_target_s > 0 && prompt_row_s_ > 0) {
    const double rows = target_.step_target_s / prompt_row_s_;
    left = std::min(left, std::max(kFewestPromptRows, static_cast<int64_t>(std::min(rows, 1e9))));
  }
  int64_t waiting = size() - std::ssize(decoding_);
  prompt_rows_ = 0;
  for (const std::unique_ptr<Member>& member : members_) {
    if (member->decoding) continue;
    const int64_t rows = std::min(member->pending(), (left + waiting - 1) / waiting);
    --waiting;
    if (rows == 0) continue;
    RETURN_IF_ERROR(AddRows(*member, rows));
    left -= rows;
    prompt_rows_ += rows;
  }
  return Status();
}

// The next `count` rows of a prompt.
Status SequenceGroup::AddRows(Member& member, int64_t count) {
  RETURN_IF_ERROR(member.kv.Reserve(member.base + count));
  AppendRows(member.tokens, member.base, member.base + count, static_cast<int32_t>(batch_.sequences.size()), batch_);
  batch_.sequences.push_back(&member.kv);
  if (count < member.pending()) return Status();
  batch_.logit_rows.push_back(static_cast<int32_t>(batch_.rows.size()) - 1);
  picks_.push_back({.member = &member, .node = kRoot});
  return Status();
}

// ---- what comes out of it

// Follows the draft as far as it is what the target picks. Rows come parents first.
void SequenceGroup::Walk(const Pick& pick, const float* logits, const float* hidden) {
  Member& member = *pick.member;
  if (!member.draft.empty() && IsNearTie(logits, target_.model.hparams().vocab_size)) {
    ++member.run.drafts().near_tie_rows;
  }
  if (member.at != pick.node) return;
  member.reached = pick.node;
  member.decoding = true;
  if (!member.hidden.empty()) std::copy_n(hidden, member.hidden.size(), member.hidden.begin());
  const int32_t chosen = member.run.Choose(logits);
  const int32_t child = ChildKept(member, pick.node, chosen, logits);
  member.at = child >= 0 ? child : kDone;
  const int32_t token = child >= 0 ? member.draft.tokens[static_cast<size_t>(child)] : chosen;
  member.run.Take(token, logits);
  if (child < 0) return;
  ++member.accepted;
  member.run.drafts().off_path += token != chosen ? 1 : 0;
}

// The child of a node that goes on with the sequence, or -1.
int32_t SequenceGroup::ChildKept(const Member& member, int32_t node, int32_t chosen, const float* logits) const {
  const Draft& draft = member.draft;
  const auto first = std::find(draft.parents.begin() + (node + 1), draft.parents.end(), node);
  for (auto child = first; child != draft.parents.end() && *child == node; ++child) {
    const auto index = child - draft.parents.begin();
    if (draft.tokens[static_cast<size_t>(index)] == chosen) return static_cast<int32_t>(index);
  }
  if (target_.accept_top_k <= 1 || member.run.strict() || first == draft.parents.end()) return -1;
  const auto index = first - draft.parents.begin();
  const int64_t vocab = target_.model.hparams().vocab_size;
  const int32_t token = draft.tokens[static_cast<size_t>(index)];
  const bool kept = target_.accept_top_k >= vocab || IsAmongBest(logits, vocab, token, target_.accept_top_k);
  return kept ? static_cast<int32_t>(index) : -1;
}

// Keeps the keys and values of what was accepted and no others.
void SequenceGroup::KeepPath(Member& member) {
  if (member.first_path >= 0) {
    int32_t path = 0;  // the first that holds the last node kept
    if (member.reached >= 0) {
      int32_t begin = 0, nodes = 1;  // of its level
      for (const int32_t children : target_.shape.branching()) {
        nodes *= children;
        if (member.reached < begin + nodes) break;
        begin += nodes;
      }
      path = (member.reached - begin) * (paths_per_sequence_ / nodes);
    }
    member.kv.Swap(*paths_[static_cast<size_t>(member.first_path + path)]);
    for (int32_t i = 0; i < paths_per_sequence_; ++i) paths_[static_cast<size_t>(member.first_path + i)]->Truncate(0);
  }
  member.kv.Truncate(member.base + 1 + member.accepted);
  DraftStats& stats = member.run.drafts();
  ++stats.passes;
  if (member.draft.empty()) {
    ++stats.plain_passes;
    return;
  }
  const int32_t levels = member.first_path >= 0 ? target_.shape.depth() : member.draft.size();
  stats.shortest = stats.proposed == 0 ? levels : std::min(stats.shortest, levels);
  stats.longest = std::max(stats.longest, levels);
  stats.proposed += levels;
  stats.accepted += member.accepted;
  member.acceptance.Observe(levels, member.accepted);
  acceptance_.Observe(levels, member.accepted);
  target_.drafter->Observe(member.slot, levels, member.accepted);
}

void SequenceGroup::RecordPass(double pass_s) {
  if (prompt_rows_ > 0) {
    // Everything in the step counts as the prompts': a target is kept rather than used up.
    prompt_row_s_ = pass_s / static_cast<double>(prompt_rows_);
    return;
  }
  DraftGovernor::Pass pass{.sequences = static_cast<int32_t>(decoding_.size()),
                           .rows = static_cast<int32_t>(batch_.rows.size()),
                           .tokens = 0,
                           .pass_s = pass_s,
                           .draft_s = draft_known_ ? draft_s_ : 0,
                           .steps = draft_known_ ? draft_steps_ : 0};
  for (const Member* const member : decoding_) pass.tokens += static_cast<int32_t>(member->run.taken().size());
  governor_.Record(pass);
}

// Tells what a step did for a sequence; false when it ends with that.
bool SequenceGroup::Deliver(Member& member, int64_t bytes_read) {
  const int64_t prompt = member.run.prompt_tokens();
  const int64_t done = std::min(member.kv.length(), prompt);
  if (member.base < prompt && done > member.base && callbacks_.on_prompt) {
    if (!callbacks_.on_prompt(member.tag, done, prompt)) {
      member.run.Cancel();
      return false;
    }
  }
  if (member.run.taken().empty()) return true;
  // Here, too, where layers with windows will give up what the prompt's end needs.
  if (member.base < prompt) KeepPrefix(member);
  member.tokens.insert(member.tokens.end(), member.run.taken().begin(), member.run.taken().end());
  const auto wanted = [&](const GeneratedToken& token) { return callbacks_.on_token(member.tag, token); };
  if (!member.run.Accept(bytes_read, wanted)) return false;
  if (ChangesFrequencies(target_.model, std::ssize(member.tokens) - 1)) {
    member.kv.Truncate(0);
    member.decoding = false;
  }
  return true;
}

// Gives the sequence's blocks back and reports it. Its place in members_ stays until the caller has swept.
void SequenceGroup::End(Member& member, const Status& status) {
  const auto place = std::find_if(members_.begin(), members_.end(),
                                  [&](const std::unique_ptr<Member>& other) { return other.get() == &member; });
  const std::unique_ptr<Member> ended = std::move(*place);
  if (status.ok()) KeepPrefix(*ended);
  ended->kv.Truncate(0);
  for (int32_t i = 0; i < paths_per_sequence_; ++i) {
    paths_[static_cast<size_t>(ended->slot * paths_per_sequence_ + i)]->Truncate(0);
  }
  free_slots_.push_back(ended->slot);
  if (target_.drafter != nullptr) {
    if (const NgramLength* const length = target_.drafter->ngram_length(ended->slot)) {
      ended->run.drafts().shortest = length->shortest();
      ended->run.drafts().longest = length->longest();
      ended->run.drafts().rounds_off = length->rounds_off();
      ended->run.drafts().probes = length->probes();
    }
  }
  GenerateResult result = ended->run.Finish(target_.bytes_read());
  if (status.ok()) {
    callbacks_.on_end(ended->tag, std::move(result));
  } else {
    callbacks_.on_end(ended->tag, status);
  }
}

void SequenceGroup::KeepPrefix(const Member& member) {
  if (target_.prefixes == nullptr) return;
  // Rotations of a length that no prompt has: what is stored is of no other sequence's beginning.
  const uint32_t side = target_.model.hparams().rotation_side(member.run.prompt_tokens());
  if (target_.model.hparams().rotation_side(member.kv.length()) != side) return;
  target_.prefixes->Insert(member.tokens, side, member.kv);
}

void SequenceGroup::Sweep() {
  std::erase_if(members_, [](const std::unique_ptr<Member>& member) { return member == nullptr; });
}

}  // namespace nunspark
