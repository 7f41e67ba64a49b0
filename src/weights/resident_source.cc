#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/mapped_memory.h"
#include "quant/encoding.h"
#include "weights/layout_helpers.h"
#include "weights/piece_cache.h"

namespace nunspark {
namespace {

constexpr int64_t kRequestsInFlight = 64;

// Shares nothing with PieceCache but the piece index, since it is what the cache is compared with.
class ResidentSource final : public WeightSource {
 public:
  ResidentSource(const ModelLayout& layout, const PieceIndex& index) : layout_(layout), index_(index) {}

  Status Load(ReadQueue& queue);

  Result<Lease> Acquire(PieceId piece) override {
    CHECK(piece >= 0 && piece < index_.size());
    return Lease(this, piece, base_[static_cast<size_t>(piece)], index_.piece(piece).part_offsets.data());
  }
  void BeginPass(const PassInfo& /*pass*/) override {}
  void EndPass() override {}
  void Announce(const RoutedExperts& /*routed*/) override {}
  Result<Lease> AcquireAny(std::span<const PieceId> pieces, Arrived /*arrived*/) override {
    CHECK(!pieces.empty());
    return Acquire(pieces.front());
  }
  Lease AcquireReady(std::span<const PieceId> pieces, Arrived /*arrived*/) override {
    return pieces.empty() ? Lease() : *Acquire(pieces.front());
  }
  int32_t PredictionsWanted() override { return 0; }
  Lease Peek(PieceId /*core*/) override { return Lease(); }
  void Predict(int32_t /*layer*/, std::span<const PieceId> /*pieces*/) override {}
  Status AwaitRest(const Lease& /*lease*/) override { return Status(); }
  Status ReadRows(PieceId table, std::span<const int32_t> rows, float* out) override {
    DecodeTableRows(layout_, index_, table, base_[static_cast<size_t>(table)], rows, out);
    return Status();
  }

 private:
  void Unlease(PieceId /*piece*/) override {}

  const ModelLayout& layout_;
  const PieceIndex& index_;
  MappedMemory memory_;
  std::vector<uint8_t*> base_;  // [pieces]
};

Status ResidentSource::Load(ReadQueue& queue) {
  int64_t bytes = 0;
  for (PieceId piece = 0; piece < index_.size(); ++piece) bytes += index_.piece(piece).slot_bytes;
  ASSIGN_OR_RETURN(memory_, MappedMemory::Create(bytes, "all weights", "stream them under a budget"));

  uint8_t* next = memory_.data();
  int64_t in_flight = 0;
  Status failed;
  std::vector<ReadCompletion> completions;
  const auto reap = [&] {
    completions.clear();
    queue.Poll(ReadQueue::Wait::kYes, completions);
    for (const ReadCompletion& completion : completions) {
      --in_flight;
      if (completion.status.ok() || !failed.ok()) continue;
      failed = completion.status.WithContext(PieceName(layout_.pieces[completion.tag]));
    }
  };
  for (PieceId piece = 0; piece < index_.size() && failed.ok(); ++piece) {
    base_.push_back(next);
    for (const Extent& extent : index_.piece(piece).extents) {
      while (in_flight >= kRequestsInFlight) reap();
      queue.Submit({.file = extent.file,
                    .offset = extent.file_offset,
                    .bytes = extent.bytes,
                    .dst = next + extent.slot_offset,
                    .tag = static_cast<uint64_t>(piece)});
      ++in_flight;
    }
    next += index_.piece(piece).slot_bytes;
  }
  while (in_flight > 0) reap();
  return failed;
}

}  // namespace

Result<std::unique_ptr<WeightSource>> CreateResidentSource(const ModelLayout& layout, const PieceIndex& index,
                                                           std::unique_ptr<ReadQueue> queue) {
  auto source = std::make_unique<ResidentSource>(layout, index);
  RETURN_IF_ERROR(source->Load(*queue));
  return std::unique_ptr<WeightSource>(std::move(source));
}

}  // namespace nunspark
