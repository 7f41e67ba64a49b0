#include "io/mirror_queue.h"

#include <algorithm>
#include <array>
#include <atomic>
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
    const int first = in_flight_[1] < in_flight_[0] ? 1 : 0;
    Part& whole = At(index).parts[0];
    whole = {.request = request, .copy = first, .repeated = false, .first_failure = Status()};
    if (request.bytes < kHalveFromBytes) {
      Send(index, 0);
      return;
    }
    whole.request.bytes = AlignUp(request.bytes / 2, kIoAlignment);
    Part& rest = At(index).parts[1];
    rest = {.request = request, .copy = 1 - first, .repeated = false, .first_failure = Status()};
    rest.request.offset += whole.request.bytes;
    rest.request.dst += whole.request.bytes;
    rest.request.bytes -= whole.request.bytes;
    At(index).waiting = 2;
    Send(index, 0);
    Send(index, 1);
  }

  void Poll(Wait wait, std::vector<ReadCompletion>& out) override {
    const size_t before = out.size();
    do {
      arrived_.clear();
      inner_->Poll(wait, arrived_);
      for (ReadCompletion& completion : arrived_) Apply(completion, out);
      // A part of something is no answer; nothing at all is one: Wake was called.
    } while (wait == Wait::kYes && out.size() == before && !arrived_.empty());
  }

  void Wake() override { inner_->Wake(); }
  std::string Description() const override {
    const int64_t repeated = repeated_.load(std::memory_order_relaxed);
    return inner_->Description() + ", two copies" +
           (repeated > 0 ? fmt::format(", {} reads that failed repeated from the other", repeated) : "");
  }
  std::string FallbackReason() const override { return inner_->FallbackReason(); }

 private:
  struct Part {
    ReadRequest request;
    int copy = 0;  // that it is read from
    bool repeated = false;
    Status first_failure;
  };
  // A request that is on its way, in one or two parts.
  struct Split {
    uint64_t tag = 0;
    int32_t waiting = 1;
    std::array<Part, 2> parts;
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
    At(index) = {.tag = tag, .waiting = 1, .parts = {}, .status = Status()};
    return index;
  }

  void Send(int32_t index, size_t part_index) {
    const Part& part = At(index).parts[part_index];
    ReadRequest request = part.request;
    request.file += part.copy * files_;
    request.tag = static_cast<uint64_t>(index) * 2 + part_index;
    in_flight_[part.copy] += request.bytes;
    inner_->Submit(request);
  }

  void Apply(ReadCompletion& completion, std::vector<ReadCompletion>& out) {
    const auto index = static_cast<int32_t>(completion.tag / 2);
    const size_t part_index = completion.tag % 2;
    Split& split = At(index);
    Part& part = split.parts[part_index];
    in_flight_[part.copy] -= part.request.bytes;
    if (!completion.status.ok() && !part.repeated) {
      part.repeated = true;
      part.copy = 1 - part.copy;
      part.first_failure = std::move(completion.status);
      repeated_.fetch_add(1, std::memory_order_relaxed);
      Send(index, part_index);
      return;
    }
    if (!completion.status.ok() && split.status.ok()) {
      split.status = completion.status.WithContext(part.first_failure.message());
    }
    if (--split.waiting > 0) return;
    out.push_back({split.tag, std::exchange(split.status, Status())});
    free_.push_back(index);
  }

  Split& At(int32_t index) { return splits_[static_cast<size_t>(index)]; }

  const std::unique_ptr<ReadQueue> inner_;
  const int32_t files_;
  int64_t in_flight_[2] = {0, 0};     // bytes, by copy
  std::atomic<int64_t> repeated_{0};  // parts whose first read failed
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
