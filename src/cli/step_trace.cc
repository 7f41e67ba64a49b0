#include "cli/step_trace.h"

#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "base/memory_info.h"

namespace nunspark::cli {
namespace {

constexpr size_t kWriteBytes = 64 << 10;

int64_t Hits(const CacheStats& stats) { return stats.dense.hits + stats.core.hits + stats.expert.hits; }
int64_t Misses(const CacheStats& stats) { return stats.dense.misses + stats.core.misses + stats.expert.misses; }
int64_t Ahead(const CacheStats& stats, int64_t PrefetchStats::*count) {
  return stats.core_prefetch.*count + stats.expert_prefetch.*count + stats.warm_start.*count;
}

}  // namespace

Result<StepTrace> StepTrace::Create(const std::string& path) {
  ASSIGN_OR_RETURN(File file, File::Create(path));
  return StepTrace(std::move(file));
}

void StepTrace::Add(const CacheStats& now) {
  const auto at = std::chrono::steady_clock::now();
  const int64_t wall_us = std::chrono::duration_cast<std::chrono::microseconds>(at - before_at_).count();
  fmt::format_to(std::back_inserter(text_),
                 "{{\"token\":{},\"wall_us\":{},\"stall_us\":{},\"bytes_read\":{},\"hits\":{},\"misses\":{},"
                 "\"prefetch_issued\":{},\"prefetch_used\":{},\"rss_bytes\":{}}}\n",
                 tokens_++, wall_us, now.stall_us - before_.stall_us, now.bytes_read() - before_.bytes_read(),
                 Hits(now) - Hits(before_), Misses(now) - Misses(before_),
                 Ahead(now, &PrefetchStats::issued) - Ahead(before_, &PrefetchStats::issued),
                 Ahead(now, &PrefetchStats::used) - Ahead(before_, &PrefetchStats::used),
                 ReadProcessMemory().resident_bytes);
  before_ = now;
  if (text_.size() >= kWriteBytes) (void)Flush();
  before_at_ = std::chrono::steady_clock::now();  // what this has taken is not the token's
}

Status StepTrace::Flush() {
  if (status_.ok()) {
    status_ = file_.WriteAt(bytes_, {reinterpret_cast<const uint8_t*>(text_.data()), text_.size()});
    bytes_ += static_cast<int64_t>(text_.size());
  }
  text_.clear();
  return status_;
}

}  // namespace nunspark::cli
