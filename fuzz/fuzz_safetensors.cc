// safetensors headers. The first two bytes choose how the file's size relates to what follows: the interesting size is
// the one that the header itself asks for, which blind mutation would never hit.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "formats/safetensors.h"

namespace {

using namespace nunspark;

// What every reader of a TensorIndex relies on.
void CheckTensors(const std::vector<TensorInfo>& tensors, std::string_view header, int64_t file_bytes) {
  int64_t at = 8 + static_cast<int64_t>(header.size());
  for (const TensorInfo& tensor : tensors) {
    CHECK(tensor.offset == at);
    CHECK(tensor.shape.size() <= kMaxTensorRank);
    CHECK(TensorBytes(tensor.shape, tensor.dtype) == tensor.bytes);
    at += tensor.bytes;
  }
  CHECK(at == file_bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view header(reinterpret_cast<const char*>(data) + 2, size - 2);
  const int64_t header_end = 8 + static_cast<int64_t>(header.size());
  const int64_t guess = header_end + (int64_t{data[0]} | int64_t{data[1]} << 8);
  const Result<std::vector<TensorInfo>> tensors = ParseSafetensorsHeader(header, guess, "input");
  if (tensors.ok()) {
    CheckTensors(*tensors, header, guess);
    // Written again, the tensors are at the same places of the data.
    const std::string written = WriteSafetensorsHeader(*tensors, 8);
    const int64_t bytes = guess - header_end;
    const Result<std::vector<TensorInfo>> again = ParseSafetensorsHeader(
        std::string_view(written).substr(8), static_cast<int64_t>(written.size()) + bytes, "output");
    // Names are stored as UTF-8; a header with half a surrogate pair in an escape cannot be written back.
    CHECK(again.ok());
    CheckTensors(*again, std::string_view(written).substr(8), static_cast<int64_t>(written.size()) + bytes);
    CHECK(again->size() == tensors->size());
    return 0;
  }
  // "<path> is truncated: expected N bytes by its header" or "<path>: expected N bytes by its header": the header is
  // consistent and only the size was wrong. With the size it asks for it must be accepted.
  std::string_view message = tensors.status().message();
  CHECK(!message.empty() && message.size() < 2000);
  CHECK(message.starts_with("input"));
  message.remove_prefix(5);
  for (const std::string_view start : {" is truncated: expected ", ": expected "}) {
    if (!message.starts_with(start)) continue;
    const int64_t wanted = std::stoll(std::string(message.substr(start.size())));
    const Result<std::vector<TensorInfo>> fitting = ParseSafetensorsHeader(header, wanted, "input");
    CHECK(fitting.ok());
    CheckTensors(*fitting, header, wanted);
  }
  return 0;
}
