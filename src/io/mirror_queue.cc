#include "io/mirror_queue.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "base/align.h"
#include "base/check.h"
#include "io/file.h"

namespace nunspark {
namespace {

// Half of less than this is read no sooner than the whole: drives reach their bandwidth with requests of some 100 KB.
constexpr int64_t kHalveFromBytes = 512 << 10;

// What is compared of each end of a file: headers of model files are longer only for very many tensors.
constexpr int64_t kComparedBytes = 64 << 10;

class MirrorQueue final : public ReadQueue {
 public:
  MirrorQueue(std::unique_ptr<ReadQueue> inner, int32_t files) : inner_(std::move(inner)), files_(files) {}

  void Submit(const ReadRequest& request) override {
    const int32_t index = NewSplit(request.tag);
    if (request.bytes < kHalveFromBytes) {
      Send(request, index, in_flight_[1] < in_flight_[0] ? 1 : 0);
      return;
    }
    ReadRequest half = request;
    half.bytes = AlignUp(request.bytes / 2, kIoAlignment);
    const int first = in_flight_[1] < in_flight_[0] ? 1 : 0;
    ++At(index).halves;
    Send(half, index, first);
    half.offset += half.bytes;
    half.dst += half.bytes;
    half.bytes = request.bytes - half.bytes;
    Send(half, index, 1 - first);
  }

  void Poll(Wait wait, std::vector<ReadCompletion>& out) override {
    const size_t before = out.size();
    do {
      arrived_.clear();
      inner_->Poll(wait, arrived_);
      for (ReadCompletion& completion : arrived_) Apply(completion, out);
      // The first half of something is no answer; nothing at all is one: Wake was called.
    } while (wait == Wait::kYes && out.size() == before && !arrived_.empty());
  }

  void Wake() override { inner_->Wake(); }
  std::string Description() const override { return inner_->Description() + ", two copies"; }
  std::string FallbackReason() const override { return inner_->FallbackReason(); }

 private:
  // A request that is on its way, in one or two halves.
  struct Split {
    uint64_t tag = 0;
    int32_t halves = 1;
    std::array<int64_t, 2> bytes{};  // in flight, by copy
    Status status;
  };

  int32_t NewSplit(uint64_t tag) {
    int32_t index = static_cast<int32_t>(splits_.size());
    if (free_.empty()) {
      splits_.emplace_back();
    } else {
      index = free_.back();
      free_.pop_back();
    }
    At(index) = {.tag = tag, .halves = 1, .bytes = {}, .status = Status()};
    return index;
  }

  void Send(ReadRequest request, int32_t index, int copy) {
    request.file += copy * files_;
    request.tag = static_cast<uint64_t>(index) * 2 + static_cast<uint64_t>(copy);
    At(index).bytes[static_cast<size_t>(copy)] = request.bytes;
    in_flight_[copy] += request.bytes;
    inner_->Submit(request);
  }

  void Apply(ReadCompletion& completion, std::vector<ReadCompletion>& out) {
    const auto index = static_cast<int32_t>(completion.tag / 2);
    const auto copy = static_cast<size_t>(completion.tag % 2);
    Split& split = At(index);
    in_flight_[copy] -= std::exchange(split.bytes[copy], 0);
    if (split.status.ok()) split.status = std::move(completion.status);
    if (--split.halves > 0) return;
    out.push_back({split.tag, std::exchange(split.status, Status())});
    free_.push_back(index);
  }

  Split& At(int32_t index) { return splits_[static_cast<size_t>(index)]; }

  const std::unique_ptr<ReadQueue> inner_;
  const int32_t files_;
  int64_t in_flight_[2] = {0, 0};  // bytes, by copy
  std::vector<Split> splits_;
  std::vector<int32_t> free_;
  std::vector<ReadCompletion> arrived_;
};

}  // namespace

Status CheckMirror(const std::vector<std::string>& paths, const std::vector<std::string>& mirror_paths) {
  CHECK(paths.size() == mirror_paths.size());
  for (size_t i = 0; i < paths.size(); ++i) {
    ASSIGN_OR_RETURN(const File file, File::OpenRead(paths[i]));
    ASSIGN_OR_RETURN(const File copy, File::OpenRead(mirror_paths[i]));
    ASSIGN_OR_RETURN(const int64_t bytes, file.Size());
    ASSIGN_OR_RETURN(const int64_t copy_bytes, copy.Size());
    if (bytes != copy_bytes) {
      return DataLossError(fmt::format("{} is no copy of {}: expected {} bytes, found {}", mirror_paths[i], paths[i],
                                       bytes, copy_bytes));
    }
    const int64_t compared = std::min(bytes, kComparedBytes);
    std::vector<uint8_t> ours(static_cast<size_t>(compared)), theirs(ours.size());
    for (const int64_t offset : {int64_t{0}, bytes - compared}) {
      RETURN_IF_ERROR(file.ReadAt(offset, ours));
      RETURN_IF_ERROR(copy.ReadAt(offset, theirs));
      if (ours != theirs) {
        return DataLossError(
            fmt::format("{} is no copy of {}: their bytes from {} on differ", mirror_paths[i], paths[i], offset));
      }
    }
  }
  return Status();
}

std::unique_ptr<ReadQueue> MakeMirrorQueue(std::unique_ptr<ReadQueue> inner, int32_t files) {
  return std::make_unique<MirrorQueue>(std::move(inner), files);
}

}  // namespace nunspark
