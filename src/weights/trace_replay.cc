#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "weights/expert_trace.h"
#include "weights/piece_cache.h"

namespace nunspark {
namespace {

// Completes every request at once and writes nothing.
class EmptyQueue final : public ReadQueue {
 public:
  void Submit(const ReadRequest& request) override { done_.push_back({.tag = request.tag, .status = {}}); }
  void Poll(Wait wait, std::vector<ReadCompletion>& out) override {
    if (wait == Wait::kYes) {
      if (done_.empty()) woken_.wait(false);
      woken_.store(false);
    }
    for (ReadCompletion& completion : done_) out.push_back(std::move(completion));
    done_.clear();
  }
  void Wake() override {
    woken_.store(true);
    woken_.notify_one();
  }
  std::string Description() const override { return "nothing"; }
  std::string FallbackReason() const override { return ""; }

 private:
  std::atomic<bool> woken_{false};
  std::vector<ReadCompletion> done_;
};

// Calls on_pass(first call, calls) for each forward pass: layers ascend within one.
template <typename OnPass>
Status ForEachPass(const ExpertTrace& trace, const OnPass& on_pass) {
  for (size_t begin = 0, end = 0; begin < trace.size(); begin = end) {
    for (end = begin + 1; end < trace.size() && trace[end].layer > trace[end - 1].layer; ++end) {
    }
    RETURN_IF_ERROR(on_pass(std::span(trace).subspan(begin, end - begin)));
  }
  return Status();
}

ReplayCounts CountsOf(const CacheStats& stats) {
  return {.tokens = 0,
          .hits = stats.expert.hits,
          .misses = stats.expert.misses,
          .bytes_read = stats.expert.bytes_read + stats.core.bytes_read + stats.dense.bytes_read};
}

void AddDifference(const ReplayCounts& before, const ReplayCounts& after, int64_t tokens, ReplayCounts& sum) {
  sum.tokens += tokens;
  sum.hits += after.hits - before.hits;
  sum.misses += after.misses - before.misses;
  sum.bytes_read += after.bytes_read - before.bytes_read;
}

// Acquires and gives back what the layers of a pass need, in the order of the forward pass.
Status RunPass(const ModelLayout& layout, std::span<const ExpertCall> calls, PieceCache& cache) {
  cache.BeginPass({.rows = calls.front().batch_tokens, .sequences = calls.front().sequences});
  std::vector<PieceId> wanted;
  std::vector<std::tuple<int32_t, PieceId, int32_t>> order;  // last row, expert, rows
  std::vector<int32_t> last_rows, row_counts;
  for (size_t layer = 0, call = 0; layer < layout.core.size(); ++layer) {
    ASSIGN_OR_RETURN(const Lease core, cache.Acquire(layout.core[layer]));
    if (call == calls.size() || calls[call].layer != static_cast<int32_t>(layer)) continue;
    order.clear();
    for (size_t i = 0; i < calls[call].fired.size(); ++i) {
      order.emplace_back(calls[call].last_rows[i], layout.first_expert[layer] + calls[call].fired[i],
                         calls[call].row_counts.empty() ? 1 : calls[call].row_counts[i]);
    }
    std::sort(order.begin(), order.end());
    wanted.clear();
    last_rows.clear();
    row_counts.clear();
    for (const auto& [row, piece, rows] : order) {
      wanted.push_back(piece);
      last_rows.push_back(row);
      row_counts.push_back(rows);
    }
    cache.Announce(
        {.layer = static_cast<int32_t>(layer), .pieces = wanted, .last_rows = last_rows, .row_counts = row_counts});
    while (!wanted.empty()) {
      ASSIGN_OR_RETURN(const Lease expert, cache.AcquireAny(wanted, Arrived::kAll));
      wanted.erase(std::find(wanted.begin(), wanted.end(), expert.piece()));
    }
    ++call;
  }
  cache.EndPass();
  return Status();
}

// What is read of the cores of layers [begin, end).
int64_t CoreBytes(const ModelLayout& layout, const PieceIndex& index, size_t begin, size_t end) {
  int64_t bytes = 0;
  for (size_t layer = begin; layer < end; ++layer) {
    bytes += index.piece(layout.core[layer]).read_bytes;
  }
  return bytes;
}

}  // namespace

double ReplayCounts::hit_rate() const {
  return hits + misses > 0 ? static_cast<double>(hits) / static_cast<double>(hits + misses) : 1;
}

double ReplayCounts::bytes_per_token() const {
  return tokens > 0 ? static_cast<double>(bytes_read) / static_cast<double>(tokens) : 0;
}

Result<ReplayedTrace> ReplayLru(const ModelLayout& layout, const PieceIndex& index, const MemoryPlan& plan,
                                const ExpertTrace& trace) {
  ASSIGN_OR_RETURN(const std::unique_ptr<PieceCache> cache,
                   PieceCache::Create(layout, index, plan, std::make_unique<EmptyQueue>(), {.prefetch = false}));
  ReplayedTrace replayed;
  RETURN_IF_ERROR(ForEachPass(trace, [&](std::span<const ExpertCall> calls) {
    const int64_t tokens = calls.front().batch_tokens;
    const ReplayCounts before = CountsOf(cache->stats());
    RETURN_IF_ERROR(RunPass(layout, calls, *cache));
    const ReplayCounts after = CountsOf(cache->stats());
    AddDifference(before, after, tokens, replayed.all);
    if (tokens == 1) AddDifference(before, after, tokens, replayed.decode);
    return Status();
  }));
  return replayed;
}

Result<ReplayedTrace> ReplayOptimum(const ModelLayout& layout, const PieceIndex& index, const MemoryPlan& plan,
                                    const ExpertTrace& trace) {
  constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  const auto piece_of = [&](const ExpertCall& call, int32_t expert) {
    return layout.first_expert[static_cast<size_t>(call.layer)] + expert;
  };
  // When each use's expert is used next, as the number of a call.
  std::vector<std::vector<int64_t>> next_uses(trace.size());
  std::vector<int64_t> upcoming(layout.pieces.size(), kNever);
  for (size_t call = trace.size(); call-- > 0;) {
    for (const int32_t expert : trace[call].fired) {
      int64_t& next = upcoming[static_cast<size_t>(piece_of(trace[call], expert))];
      next_uses[call].push_back(std::exchange(next, static_cast<int64_t>(call)));
    }
  }
  std::set<std::pair<int64_t, PieceId>> held;  // next use, expert
  std::vector<int64_t> held_until(layout.pieces.size(), -1);
  const auto pinned = static_cast<size_t>(plan.pinned_cores);
  const int64_t streamed_bytes = CoreBytes(layout, index, pinned, layout.core.size());
  int64_t first_bytes = CoreBytes(layout, index, 0, pinned);  // of cores that stay, read by the first pass
  ReplayedTrace replayed;
  RETURN_IF_ERROR(ForEachPass(trace, [&](std::span<const ExpertCall> calls) {
    ReplayCounts pass{
        .tokens = 0, .hits = 0, .misses = 0, .bytes_read = streamed_bytes + std::exchange(first_bytes, 0)};
    for (const ExpertCall& call : calls) {
      const auto number = static_cast<size_t>(&call - trace.data());
      for (size_t i = 0; i < call.fired.size(); ++i) {
        const PieceId piece = piece_of(call, call.fired[i]);
        int64_t& until = held_until[static_cast<size_t>(piece)];
        if (until >= 0) {
          held.erase({until, piece});
          ++pass.hits;
        } else {
          ++pass.misses;
          pass.bytes_read += index.piece(piece).read_bytes;
        }
        until = next_uses[number][i];
        held.insert({until, piece});
        if (static_cast<int64_t>(held.size()) > plan.expert_slots) {
          const auto last = std::prev(held.end());
          held_until[static_cast<size_t>(last->second)] = -1;
          held.erase(last);
        }
      }
    }
    const int64_t tokens = calls.front().batch_tokens;
    AddDifference({}, pass, tokens, replayed.all);
    if (tokens == 1) AddDifference({}, pass, tokens, replayed.decode);
    return Status();
  }));
  return replayed;
}

}  // namespace nunspark
