#include "cli/logits_file.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>

#include <fmt/format.h>

namespace nunspark::cli {
namespace {

std::span<const uint8_t> Bytes(const void* data, int64_t bytes) {
  return {static_cast<const uint8_t*>(data), static_cast<size_t>(bytes)};
}

}  // namespace

Result<LogitsFile> LogitsFile::Create(const std::string& path, int64_t tokens, int64_t vocab_size, int64_t greedy) {
  const int64_t logits_bytes = tokens * vocab_size * 4;
  std::string header = fmt::format(R"({{"logits":{{"dtype":"F32","shape":[{},{}],"data_offsets":[0,{}]}})", tokens, vocab_size,
                                   logits_bytes);
  if (greedy > 0) {
    const int64_t mid = logits_bytes + greedy * 4;
    header += fmt::format(R"(,"greedy":{{"dtype":"I32","shape":[{}],"data_offsets":[{},{}]}})", greedy, logits_bytes, mid);
    header += fmt::format(R"(,"margin":{{"dtype":"F32","shape":[{}],"data_offsets":[{},{}]}})", greedy, mid, mid + greedy * 4);
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');

  LogitsFile out;
  out.path_ = path;
  out.tokens_ = tokens;
  out.vocab_size_ = vocab_size;
  ASSIGN_OR_RETURN(out.file_, File::Create(fmt::format("{}.{}.tmp", path, getpid())));
  const uint64_t length = header.size();
  uint8_t prefix[8];
  for (size_t i = 0; i < 8; ++i) prefix[i] = static_cast<uint8_t>(length >> (8 * i));
  RETURN_IF_ERROR(out.file_.WriteAt(0, prefix));
  RETURN_IF_ERROR(out.file_.WriteAt(8, Bytes(header.data(), static_cast<int64_t>(header.size()))));
  out.data_offset_ = 8 + static_cast<int64_t>(header.size());
  return out;
}

LogitsFile::~LogitsFile() {
  if (file_.is_open()) std::remove(file_.path().c_str());
}

Status LogitsFile::WriteRows(int64_t first, int64_t count, const float* logits) {
  const int64_t row_bytes = vocab_size_ * 4;
  return file_.WriteAt(data_offset_ + first * row_bytes, Bytes(logits, count * row_bytes));
}

int32_t LogitsFile::AddGreedy(const std::vector<float>& logits) {
  size_t best = 0;
  for (size_t i = 1; i < logits.size(); ++i) {
    if (logits[i] > logits[best]) best = i;
  }
  float second = -std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < logits.size(); ++i) {
    if (i != best) second = std::max(second, logits[i]);
  }
  greedy_.push_back(static_cast<int32_t>(best));
  margin_.push_back(logits[best] - second);
  return greedy_.back();
}

Status LogitsFile::Finish() {
  const int64_t after_logits = data_offset_ + tokens_ * vocab_size_ * 4;
  const int64_t bytes = static_cast<int64_t>(greedy_.size()) * 4;
  RETURN_IF_ERROR(file_.WriteAt(after_logits, Bytes(greedy_.data(), bytes)));
  RETURN_IF_ERROR(file_.WriteAt(after_logits + bytes, Bytes(margin_.data(), bytes)));
  RETURN_IF_ERROR(file_.Sync());
  const std::string temporary = file_.path();
  file_.Close();
  std::error_code error;
  std::filesystem::rename(temporary, path_, error);
  if (error) {
    std::remove(temporary.c_str());
    return IoError(fmt::format("{}: cannot be put in place: {}", path_, error.message()));
  }
  return Status();
}

}  // namespace nunspark::cli
