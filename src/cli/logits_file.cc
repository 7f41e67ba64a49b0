#include "cli/logits_file.h"

#include <algorithm>
#include <limits>

#include "formats/safetensors.h"

namespace nunspark::cli {
namespace {

template <typename T>
std::string_view Bytes(const T* data, int64_t count) {
  return {reinterpret_cast<const char*>(data), static_cast<size_t>(count) * sizeof(T)};
}

}  // namespace

Result<LogitsFile> LogitsFile::Create(const std::string& path, int64_t tokens, int64_t vocab_size, int64_t greedy) {
  std::vector<TensorInfo> tensors = {
      {.name = "logits", .dtype = DType::kF32, .shape = {tokens, vocab_size}, .bytes = tokens * vocab_size * 4}};
  if (greedy > 0) {
    tensors.push_back({.name = "greedy", .dtype = DType::kI32, .shape = {greedy}, .bytes = greedy * 4});
    tensors.push_back({.name = "margin", .dtype = DType::kF32, .shape = {greedy}, .bytes = greedy * 4});
  }
  LogitsFile out;
  out.vocab_size_ = vocab_size;
  ASSIGN_OR_RETURN(out.file_, AtomicFile::Create(path));
  RETURN_IF_ERROR(out.file_.Append(WriteSafetensorsHeader(tensors, 8)));
  return out;
}

Status LogitsFile::AppendRows(int64_t count, const float* logits) {
  return file_.Append(Bytes(logits, count * vocab_size_));
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
  RETURN_IF_ERROR(file_.Append(Bytes(greedy_.data(), static_cast<int64_t>(greedy_.size()))));
  RETURN_IF_ERROR(file_.Append(Bytes(margin_.data(), static_cast<int64_t>(margin_.size()))));
  return file_.Commit();
}

}  // namespace nunspark::cli
