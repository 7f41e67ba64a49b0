#include "io/read_trace.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/json.h"
#include "base/mapped_memory.h"
#include "io/file.h"

namespace nunspark {
namespace {

using Clock = std::chrono::steady_clock;

// Lines are written together, so that a trace costs a run next to nothing.
constexpr size_t kWriteBytes = 256 << 10;
constexpr int kMaxDepth = 4096;
constexpr int64_t kMaxSplitBytes = int64_t{64} << 20;

class TraceQueue final : public ReadQueue {
 public:
  TraceQueue(std::unique_ptr<ReadQueue> inner, File file) : inner_(std::move(inner)), file_(std::move(file)) {
    text_.reserve(kWriteBytes + 256);
  }
  ~TraceQueue() override {
    text_ += fmt::format("{{\"requests\":{}}}\n", requests_);
    Write();
  }

  void Begin(std::string line) { text_ = std::move(line); }

  void Submit(const ReadRequest& request) override {
    inner_->Submit(request);
    const auto us = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start_).count();
    fmt::format_to(std::back_inserter(text_), "{{\"file\":{},\"offset\":{},\"bytes\":{},\"us\":{}}}\n", request.file,
                   request.offset, request.bytes, us);
    ++requests_;
    if (text_.size() >= kWriteBytes) Write();
  }
  void Poll(Wait wait, std::vector<ReadCompletion>& out) override { inner_->Poll(wait, out); }
  void Wake() override { inner_->Wake(); }
  std::string Description() const override { return inner_->Description(); }
  std::string FallbackReason() const override { return inner_->FallbackReason(); }

 private:
  void Write() {
    if (failed_) return;
    failed_ = !file_.WriteAt(bytes_, {reinterpret_cast<const uint8_t*>(text_.data()), text_.size()}).ok();
    bytes_ += static_cast<int64_t>(text_.size());
    text_.clear();
  }

  const std::unique_ptr<ReadQueue> inner_;
  const Clock::time_point start_ = Clock::now();
  File file_;
  int64_t bytes_ = 0;  // written
  int64_t requests_ = 0;
  bool failed_ = false;
  std::string text_;
};

// Takes the integer member `key` of `line`, from `least` to `most`.
template <typename T>
bool Take(const Json& line, std::string_view key, int64_t least, int64_t most, T& value) {
  const Json* const found = line.Find(key);
  if (found == nullptr || !found->is_int() || found->as_int() < least || found->as_int() > most) return false;
  value = static_cast<T>(found->as_int());
  return true;
}

bool TakeHead(const Json& line, ReadTrace& trace) {
  const Json* const files = line.Find("files");
  const Json* const direct = line.Find("direct");
  if (files == nullptr || !files->is_array() || direct == nullptr || !direct->is_bool()) return false;
  for (const Json& path : files->as_array()) {
    if (!path.is_string()) return false;
    trace.paths.push_back(path.as_string());
  }
  trace.direct = direct->as_bool();
  return Take(line, "depth", 1, kMaxDepth, trace.depth) &&
         Take(line, "split_bytes", kIoAlignment, kMaxSplitBytes, trace.split_bytes);
}

bool TakeRead(const Json& line, const ReadTrace& trace, TracedRead& read) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 4;
  return Take(line, "file", 0, static_cast<int64_t>(trace.paths.size()) - 1, read.file) &&
         Take(line, "offset", 0, kMost, read.offset) && Take(line, "bytes", 1, kMost, read.bytes) &&
         Take(line, "us", 0, kMost, read.us) && read.offset % kIoAlignment == 0 && read.bytes % kIoAlignment == 0;
}

}  // namespace

Result<std::unique_ptr<ReadQueue>> TraceReads(std::unique_ptr<ReadQueue> inner, const std::vector<std::string>& paths,
                                              const ReadQueueOptions& options, const std::string& trace_path) {
  ASSIGN_OR_RETURN(File file, File::Create(trace_path));
  auto queue = std::make_unique<TraceQueue>(std::move(inner), std::move(file));
  Json::Array files;
  for (const std::string& path : paths) files.emplace_back(path);
  queue->Begin(WriteJson(Json::Object{{"files", std::move(files)},
                                      {"depth", options.depth},
                                      {"split_bytes", options.split_bytes},
                                      {"direct", options.direct}}) +
               "\n");
  return std::unique_ptr<ReadQueue>(std::move(queue));
}

Result<ReadTrace> LoadReadTrace(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path));
  ReadTrace trace;
  int64_t number = 0;
  bool complete = false;
  for (size_t begin = 0; begin < text.size() && !complete;) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string what = fmt::format("{} line {}", path, ++number);
    ASSIGN_OR_RETURN(const Json line, ParseJson(std::string_view(text).substr(begin, end - begin), what));
    begin = end + 1;
    TracedRead read;
    int64_t requests = 0;
    if (number == 1) {
      if (!TakeHead(line, trace)) return DataLossError(what + ": not the first line of a read trace");
    } else if (Take(line, "requests", 0, std::numeric_limits<int64_t>::max(), requests)) {
      complete = requests == static_cast<int64_t>(trace.reads.size()) && begin >= text.size();
      if (!complete) {
        return DataLossError(
            fmt::format("{}: expected the last line, after {} requests; found {}", what, requests, trace.reads.size()));
      }
    } else if (TakeRead(line, trace, read)) {
      trace.reads.push_back(read);
    } else {
      return DataLossError(what + ": not a read of this trace's files");
    }
  }
  if (!complete) return DataLossError(path + ": the trace has no last line; its run did not end, or the disk was full");
  return trace;
}

Result<ReplayResult> ReplayReads(const ReadTrace& trace, int64_t last_bytes) {
  size_t next = last_bytes < 0 ? 0 : trace.reads.size();
  for (int64_t left = last_bytes; next > 0 && left > 0; left -= trace.reads[next].bytes) --next;
  if (next == trace.reads.size()) return InvalidArgumentError("the trace has no reads to replay");
  ASSIGN_OR_RETURN(
      const std::unique_ptr<ReadQueue> queue,
      OpenReadQueue(trace.paths, {.direct = trace.direct, .depth = trace.depth, .split_bytes = trace.split_bytes}));
  ASSIGN_OR_RETURN(const MappedMemory memory,
                   MappedMemory::Create(trace.depth * trace.split_bytes, "a replay of reads", "free some memory"));
  ReplayResult result;
  // The queue would cut requests at the same places; cut here, each part has a buffer of its own.
  int64_t cut = 0;
  const auto start_one = [&](uint64_t lane) {
    if (next == trace.reads.size()) return false;
    const TracedRead& read = trace.reads[next];
    const int64_t bytes = std::min(trace.split_bytes, read.bytes - cut);
    queue->Submit({.file = read.file,
                   .offset = read.offset + cut,
                   .bytes = bytes,
                   .dst = memory.data() + static_cast<int64_t>(lane) * trace.split_bytes,
                   .tag = lane});
    result.bytes += bytes;
    cut += bytes;
    if (cut == read.bytes) {
      cut = 0;
      ++next;
      ++result.requests;
    }
    return true;
  };
  const Clock::time_point start = Clock::now();
  int64_t in_flight = 0;
  for (uint64_t lane = 0; lane < static_cast<uint64_t>(trace.depth) && start_one(lane); ++lane) ++in_flight;
  Status status;
  std::vector<ReadCompletion> completions;
  while (in_flight > 0) {
    completions.clear();
    queue->Poll(ReadQueue::Wait::kYes, completions);
    for (const ReadCompletion& completion : completions) {
      --in_flight;
      if (status.ok()) status = completion.status;
      if (status.ok() && start_one(completion.tag)) ++in_flight;
    }
  }
  RETURN_IF_ERROR(status);
  result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  result.queue = queue->Description();
  return result;
}

}  // namespace nunspark
