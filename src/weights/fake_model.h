// For tests: a small model made by hand, its files in memory, and a ReadQueue over them that a test can hold back,
// reorder and make fail.
#ifndef NUNSPARK_WEIGHTS_FAKE_MODEL_H_
#define NUNSPARK_WEIGHTS_FAKE_MODEL_H_

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "io/read_queue.h"
#include "models/model_layout.h"
#include "weights/piece_index.h"

namespace nunspark {

inline constexpr ArchSpec kFakeMoeSpec = [] {
  ArchSpec spec{};
  spec.name = "fake_moe";
  return spec;
}();

struct FakeModelOptions {
  int layers = 4;
  int experts = 4;  // 0 = dense
  int experts_per_token = 2;
  int first_moe_layer = 0;  // earlier ones are dense
  int64_t core_bytes = 10000;
  int64_t expert_part_bytes = 3000;  // three parts an expert
  bool tied = false;
  bool affine_embedding = true;
  int64_t vocab = 100;
  int64_t dim = 128;
  int64_t gap = 33;                  // bytes between parts; odd, so that nothing is aligned
  int64_t divide_bytes = 128 << 10;  // as PieceIndex::Build's
};

// Parts lie one after another in file 0 (experts in file 1), `gap` bytes apart; every byte follows from its place.
class FakeModel {
 public:
  explicit FakeModel(const FakeModelOptions& options) {
    files_.resize(2);
    layout.spec = &kFakeMoeSpec;
    layout.hparams.layers = options.layers;
    layout.hparams.model_dim = options.dim;
    layout.hparams.vocab_size = options.vocab;
    layout.hparams.tied = options.tied;
    layout.hparams.experts = options.experts;
    layout.hparams.experts_per_token = options.experts > 0 ? options.experts_per_token : 0;
    gap_ = options.gap;
    AddEmbedding(options);
    for (int layer = 0; layer < options.layers; ++layer) {
      const bool moe = options.experts > 0 && layer >= options.first_moe_layer;
      layout.core.push_back(NewPiece(PieceKind::kCore, layer, -1, fmt::format("layer_{:03}", layer)));
      // Sizes differ a little from layer to layer.
      AddPart(0, options.core_bytes / 2 + 64 * layer);
      AddPart(0, options.core_bytes / 2);
      layout.first_expert.push_back(moe ? static_cast<PieceId>(layout.pieces.size()) : -1);
      for (int expert = 0; moe && expert < options.experts; ++expert) {
        NewPiece(PieceKind::kExpert, layer, expert, fmt::format("layer_{:03}_expert_{}", layer, expert));
        const Role roles[] = {Role::kExpertGate, Role::kExpertUp, Role::kExpertDown};
        for (int32_t part = 0; part < 3; ++part) {
          AddPart(1, options.expert_part_bytes);
          WeightUse use;
          use.role = roles[part];
          use.data = part;
          layout.pieces.back().weights.push_back(use);
        }
      }
    }
    layout.norm_head = NewPiece(PieceKind::kNormHead, -1, -1, "norm_head");
    AddPart(0, 512);
    for (size_t file = 0; file < files_.size(); ++file) {
      tensors.AddFile({.path = fmt::format("file{}", file), .bytes = static_cast<int64_t>(files_[file].size())});
    }
    index = PieceIndex::Build(layout, tensors, 64, options.divide_bytes);
  }

  // The byte of file `file` at `offset`: no two places look alike for long.
  static uint8_t ByteAt(int64_t file, int64_t offset) {
    uint64_t x = static_cast<uint64_t>(offset / 8 + (file << 40)) * 0x9e3779b97f4a7c15u;
    x ^= x >> 29;
    return static_cast<uint8_t>(x * 0xbf58476d1ce4e5b9u >> (8 * (offset % 8)));
  }

  // Whether all parts of a leased piece hold what the files do, or the first `parts` of them.
  bool IsRight(const Lease& lease, size_t parts = SIZE_MAX) const {
    const PieceLayout& piece = layout.pieces[static_cast<size_t>(lease.piece())];
    for (size_t part = 0; part < std::min(parts, piece.parts.size()); ++part) {
      const TensorSlice& slice = piece.parts[part];
      const std::vector<uint8_t>& file = files_[static_cast<size_t>(slice.file)];
      if (std::memcmp(lease.part(static_cast<int32_t>(part)), file.data() + slice.offset,
                      static_cast<size_t>(slice.bytes)) != 0) {
        return false;
      }
    }
    return true;
  }

  PieceId Expert(int layer, int expert) const { return layout.first_expert[static_cast<size_t>(layer)] + expert; }
  const std::vector<std::vector<uint8_t>>& files() const { return files_; }
  std::vector<uint8_t>& file(size_t i) { return files_[i]; }

  ModelLayout layout;
  TensorIndex tensors;
  PieceIndex index;

 private:
  PieceId NewPiece(PieceKind kind, int layer, int expert, std::string id) {
    PieceLayout piece;
    piece.kind = kind;
    piece.layer = layer;
    piece.expert = expert;
    piece.id = std::move(id);
    layout.pieces.push_back(std::move(piece));
    return static_cast<PieceId>(layout.pieces.size()) - 1;
  }

  void AddPart(int32_t file, int64_t bytes) {
    std::vector<uint8_t>& data = files_[static_cast<size_t>(file)];
    const int64_t offset = static_cast<int64_t>(data.size()) + gap_;
    data.resize(static_cast<size_t>(offset + bytes));
    for (int64_t i = offset - gap_; i < offset + bytes; ++i) data[static_cast<size_t>(i)] = ByteAt(file, i);
    PieceLayout& piece = layout.pieces.back();
    TensorSlice slice;
    slice.file = file;
    slice.offset = offset;
    slice.bytes = bytes;
    piece.parts.push_back(std::move(slice));
    piece.bytes += bytes;
    layout.total_bytes += bytes;
  }

  void AddEmbedding(const FakeModelOptions& options) {
    layout.embed = NewPiece(PieceKind::kEmbed, -1, -1, "embed");
    WeightUse use;
    use.role = Role::kEmbed;
    use.rows = options.vocab;
    use.cols = options.dim;
    use.format = FloatFormat(FloatType::kBF16);
    use.data = 0;
    if (options.affine_embedding) {
      use.format = {.encoding = Encoding::kAffine, .bits = 4, .group_size = 64, .scale_type = FloatType::kBF16};
      use.scales = 1;
      use.biases = 2;
    }
    AddPart(0, RowBytes(use.format, use.cols) * use.rows);
    if (options.affine_embedding) {
      AddPart(0, ScaleRowBytes(use.format, use.cols) * use.rows);
      AddPart(0, ScaleRowBytes(use.format, use.cols) * use.rows);
    }
    layout.pieces.back().weights.push_back(use);
  }

  int64_t gap_ = 0;
  std::vector<std::vector<uint8_t>> files_;
};

// What a test does to the fake queue and asks it; shared because the cache owns the queue. Thread-safe.
class FakeQueueControl {
 public:
  using Fault = std::function<Status(const ReadRequest&)>;  // not ok = the read fails with it

  explicit FakeQueueControl(const FakeModel& model) : files_(&model.files()) {}

  using Filter = std::function<bool(const ReadRequest&)>;

  // Requests that match do not complete until Release.
  void HoldIf(Filter filter) {
    Set([&] { held_ = std::move(filter); });
  }
  void Hold() {
    HoldIf([](const ReadRequest&) { return true; });
  }
  void Release() { HoldIf(nullptr); }
  void SetFault(Fault fault) {
    Set([&] { fault_ = std::move(fault); });
  }
  // Completions come in random order and in small groups.
  void Shuffle(uint32_t seed) {
    Set([&] {
      shuffled_ = true;
      random_.seed(seed);
    });
  }

  std::vector<ReadRequest> Submitted() const {
    const std::lock_guard lock(mutex_);
    return submitted_;
  }
  int64_t SubmittedCount() const {
    const std::lock_guard lock(mutex_);
    return static_cast<int64_t>(submitted_.size());
  }
  // Waits until so many requests have been submitted since the start.
  void AwaitSubmitted(int64_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return static_cast<int64_t>(submitted_.size()) >= count; });
  }
  // Waits until the reader has been woken so many times since the start.
  void AwaitWakes(int64_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return wakes_ >= count; });
  }
  int64_t Wakes() const {
    const std::lock_guard lock(mutex_);
    return wakes_;
  }
  bool IsGone() const {
    const std::lock_guard lock(mutex_);
    return gone_;
  }
  int64_t InFlight() const {
    const std::lock_guard lock(mutex_);
    return static_cast<int64_t>(in_flight_.size());
  }

 private:
  friend class FakeReadQueue;

  bool MayComplete(const ReadRequest& request) const { return !held_ || !held_(request); }

  template <typename Change>
  void Set(Change change) {
    const std::lock_guard lock(mutex_);
    change();
    changed_.notify_all();
  }

  const std::vector<std::vector<uint8_t>>* files_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Filter held_;
  bool woken_ = false;
  int64_t wakes_ = 0;
  bool shuffled_ = false;
  bool gone_ = false;
  std::mt19937 random_;
  Fault fault_;
  std::vector<ReadRequest> submitted_;
  std::vector<ReadRequest> in_flight_;
};

class FakeReadQueue final : public ReadQueue {
 public:
  explicit FakeReadQueue(std::shared_ptr<FakeQueueControl> control) : control_(std::move(control)) {}
  ~FakeReadQueue() override {
    control_->Set([&] { control_->gone_ = true; });
  }

  void Submit(const ReadRequest& request) override {
    CHECK(request.bytes > 0 && request.bytes % kIoAlignment == 0 && request.offset % kIoAlignment == 0);
    CHECK(reinterpret_cast<uintptr_t>(request.dst) % kIoAlignment == 0);
    const int64_t file_bytes = static_cast<int64_t>((*control_->files_)[static_cast<size_t>(request.file)].size());
    CHECK(request.offset + request.bytes - file_bytes < kIoAlignment);
    // Whoever looks at the slot before the completion sees rubbish.
    std::memset(request.dst, 0xa5, static_cast<size_t>(request.bytes));
    control_->Set([&] {
      control_->submitted_.push_back(request);
      control_->in_flight_.push_back(request);
    });
  }

  void Poll(Wait wait, std::vector<ReadCompletion>& out) override {
    FakeQueueControl& c = *control_;
    std::unique_lock lock(c.mutex_);
    const auto may = [&](const ReadRequest& request) { return c.MayComplete(request); };
    if (wait == Wait::kYes) {
      c.changed_.wait(lock, [&] { return c.woken_ || std::any_of(c.in_flight_.begin(), c.in_flight_.end(), may); });
      c.woken_ = false;
    }
    if (c.shuffled_) std::shuffle(c.in_flight_.begin(), c.in_flight_.end(), c.random_);
    const auto first = std::stable_partition(c.in_flight_.begin(), c.in_flight_.end(), std::not_fn(may));
    auto last = c.in_flight_.end();
    if (c.shuffled_ && first != last) last = first + std::min<std::ptrdiff_t>(last - first, 1 + c.random_() % 3);
    for (auto request = first; request != last; ++request) out.push_back(Complete(*request));
    c.in_flight_.erase(first, last);
  }

  void Wake() override {
    control_->Set([&] {
      control_->woken_ = true;
      ++control_->wakes_;
    });
  }
  std::string Description() const override { return "fake"; }
  std::string FallbackReason() const override { return "no drive"; }

 private:
  ReadCompletion Complete(const ReadRequest& request) {
    const Status status = control_->fault_ ? control_->fault_(request) : Status();
    if (status.ok()) {
      const std::vector<uint8_t>& file = (*control_->files_)[static_cast<size_t>(request.file)];
      const int64_t bytes = std::min(request.bytes, static_cast<int64_t>(file.size()) - request.offset);
      std::memcpy(request.dst, file.data() + request.offset, static_cast<size_t>(bytes));
    }
    return {.tag = request.tag, .status = status};
  }

  std::shared_ptr<FakeQueueControl> control_;
};

}  // namespace nunspark

#endif  // NUNSPARK_WEIGHTS_FAKE_MODEL_H_
