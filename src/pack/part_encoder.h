// Encodes one float weight of a checkpoint while it is copied into a pack.
#ifndef NUNSPARK_PACK_PART_ENCODER_H_
#define NUNSPARK_PACK_PART_ENCODER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "models/model_layout.h"
#include "nunspark/status.h"
#include "pack/source_reader.h"
#include "quant/encoding.h"

namespace nunspark {

// Memory: a few MB, and the scales of one weight, a sixteenth to a thirty-second of its floats. The bytes are the same
// for any number of threads. Not thread-safe.
class PartEncoder {
 public:
  // `threads`: 0 = all CPUs this process may use. Errors: kResourceExhausted when the system refuses a thread.
  static Result<std::unique_ptr<PartEncoder>> Create(int threads);

  // Takes codes in order, a few hundred KB at a time.
  using Sink = std::function<Status(std::span<const uint8_t> codes)>;

  // Reads `part` and hands its codes to `sink`; scales and biases are complete when it returns. REQUIRES: CanEncode(
  // format); a float type; rows that are a multiple of the group size.
  // Errors: kDataLoss for NaN and infinities (names the tensor, row and column); those of the reader and of the sink.
  Status Encode(const TensorSlice& part, const WeightFormat& format, SourceReader& source, const Sink& sink);

  std::span<const uint8_t> scales() const { return scales_; }
  std::span<const uint8_t> biases() const { return biases_; }  // empty but for affine

 private:
  explicit PartEncoder(std::unique_ptr<ThreadPool> pool);

  // Encodes what is in source_, elements from `first` on of the part. Returns the element without an encoding, or -1.
  int64_t EncodeChunk(const WeightFormat& format, FloatType type, int64_t first, int64_t elements);

  std::unique_ptr<ThreadPool> pool_;
  std::vector<uint8_t> source_;
  std::vector<std::vector<float>> floats_;  // one a thread
  std::vector<uint8_t> codes_;
  std::vector<uint8_t> scales_;
  std::vector<uint8_t> biases_;
};

}  // namespace nunspark

#endif  // NUNSPARK_PACK_PART_ENCODER_H_
