#include "io/fault_queue_testing.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "io/file.h"

namespace nunspark {
namespace {

// Neither zero nor plausible text: stands out in a comparison.
constexpr uint8_t kRubbish = 0xA5;

// SplitMix64 (Steele, Lea, Flood 2014): one well-mixed number from another.
uint64_t Mix(uint64_t value) {
  value += 0x9E3779B97F4A7C15;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
  return value ^ (value >> 31);
}

void FillWithRubbish(const ReadRequest& request, int64_t from) {
  const int64_t start = std::clamp<int64_t>(from, 0, request.bytes);
  std::memset(request.dst + start, kRubbish, static_cast<size_t>(request.bytes - start));
}

}  // namespace

FaultQueue::FaultQueue(std::unique_ptr<ReadQueue> inner, std::vector<std::string> paths, FaultPlan plan)
    : inner_(std::move(inner)), paths_(std::move(paths)), plan_(std::move(plan)) {}

void FaultQueue::Submit(const ReadRequest& request) {
  const int64_t number = submitted_++;
  const Fault fault = Choose(number, request);
  if (fault.kind != Fault::Kind::kNone) ++injected_;
  const std::string& path = paths_[static_cast<size_t>(request.file)];
  if (fault.kind == Fault::Kind::kError) {
    FillWithRubbish(request, 0);
    ready_.push_back({request.tag, IoError(fmt::format("read of {} bytes at {} in {} failed: {}", request.bytes,
                                                       request.offset, path, ErrnoText(fault.error)))});
    return;
  }
  pending_.emplace(static_cast<uint64_t>(number), Pending{request, fault});
  ReadRequest passed = request;
  passed.tag = static_cast<uint64_t>(number);
  inner_->Submit(passed);
}

void FaultQueue::Poll(Wait wait, std::vector<ReadCompletion>& out) {
  const size_t before = out.size();
  std::vector<ReadCompletion> arrived;
  while (true) {
    HandOut(out);
    const bool stuck = pending_.empty() && !held_.empty();
    if (stuck) {
      // Nothing else will come: the one that waits for the fewest goes now.
      std::min_element(held_.begin(), held_.end(), [](const Held& a, const Held& b) {
        return a.wait_for < b.wait_for;
      })->wait_for = 0;
      continue;
    }
    const bool sleep = wait == Wait::kYes && out.size() == before;
    arrived.clear();
    inner_->Poll(sleep ? Wait::kYes : Wait::kNo, arrived);
    for (const ReadCompletion& completion : arrived) Arrive(completion);
    // Without arrivals a sleep ended by Wake.
    if (arrived.empty()) return;
  }
}

Fault FaultQueue::Choose(int64_t number, const ReadRequest& request) const {
  for (const Fault& fault : plan_.faults) {
    if (fault.request == number) return fault;
  }
  const uint64_t random = Mix(plan_.seed ^ Mix(static_cast<uint64_t>(number)));
  int64_t lot = static_cast<int64_t>(random % 1000);
  const uint64_t place = Mix(random);
  const auto below = [&](int64_t limit) { return static_cast<int64_t>(place % static_cast<uint64_t>(limit)); };
  if ((lot -= plan_.errors_per_mille) < 0) return {.kind = Fault::Kind::kError, .request = number};
  if ((lot -= plan_.shorts_per_mille) < 0) {
    return {.kind = Fault::Kind::kShort, .request = number, .at = below(request.bytes)};
  }
  if ((lot -= plan_.flips_per_mille) < 0) {
    return {.kind = Fault::Kind::kFlip, .request = number, .at = below(request.bytes * 8)};
  }
  if ((lot -= plan_.delays_per_mille) < 0) return {.kind = Fault::Kind::kDelay, .request = number, .at = 1 + below(16)};
  return {};
}

void FaultQueue::Arrive(const ReadCompletion& inner) {
  const auto place = pending_.find(inner.tag);
  CHECK(place != pending_.end());
  const auto [request, fault] = place->second;
  pending_.erase(place);
  ReadCompletion completion{request.tag, inner.status};
  switch (fault.kind) {
    case Fault::Kind::kNone:
    case Fault::Kind::kError: break;
    case Fault::Kind::kShort:
      FillWithRubbish(request, fault.at);
      completion.status = DataLossError(
          fmt::format("read of {} bytes at {} in {} failed: the file ends at {} (truncated?)", request.bytes,
                      request.offset, paths_[static_cast<size_t>(request.file)], request.offset + fault.at));
      break;
    case Fault::Kind::kFlip:
      request.dst[fault.at / 8] = static_cast<uint8_t>(request.dst[fault.at / 8] ^ (1U << (fault.at % 8)));
      break;
    case Fault::Kind::kDelay: held_.push_back({std::move(completion), fault.at}); return;
  }
  ready_.push_back(std::move(completion));
}

void FaultQueue::HandOut(std::vector<ReadCompletion>& out) {
  while (true) {
    for (ReadCompletion& completion : ready_) {
      out.push_back(std::move(completion));
      for (Held& held : held_) --held.wait_for;
    }
    ready_.clear();
    const auto due = std::find_if(held_.begin(), held_.end(), [](const Held& held) { return held.wait_for <= 0; });
    if (due == held_.end()) return;
    ready_.push_back(std::move(due->completion));
    held_.erase(due);
  }
}

}  // namespace nunspark
