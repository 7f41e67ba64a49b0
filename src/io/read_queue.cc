#include "io/read_queue.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "io/queue_backends.h"
#include "io/queue_file.h"

namespace nunspark {

Result<std::unique_ptr<ReadQueue>> OpenReadQueue(const std::vector<std::string>& paths,
                                                 const ReadQueueOptions& options) {
  CHECK(options.depth > 0 && options.threads > 0 && options.split_bytes > 0);
  ASSIGN_OR_RETURN(std::vector<QueueFile> files,
                   OpenQueueFiles(paths, options.direct ? DirectIo::kTry : DirectIo::kNo));
  std::string why_pread = "pread was asked for";
  if (options.backend != IoBackend::kPread) {
    Result<std::unique_ptr<ReadQueue>> ring = MakeUringQueue(files, options);
    if (ring.ok() || options.backend == IoBackend::kUring) return ring;
    why_pread = ring.status().message();
  }
  return MakePreadQueue(std::move(files), options, std::move(why_pread));
}

std::string DescribeBackend(std::string_view backend, const std::vector<QueueFile>& files) {
  const bool direct =
      !files.empty() && std::all_of(files.begin(), files.end(), [](const QueueFile& file) { return file.direct; });
  return fmt::format("{}{}", backend, direct ? "+O_DIRECT" : "");
}

std::string WhyNotDirect(const std::vector<QueueFile>& files) {
  const auto count = std::count_if(files.begin(), files.end(), [](const QueueFile& file) { return !file.direct; });
  if (count == 0) return "";
  const auto first = std::find_if(files.begin(), files.end(), [](const QueueFile& file) { return !file.direct; });
  if (first->why_not_direct.empty()) return "buffered reads were asked for";
  if (count == 1) return first->why_not_direct;
  return fmt::format("{} (and {} more files)", first->why_not_direct, count - 1);
}

}  // namespace nunspark
