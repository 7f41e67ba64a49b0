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
#include "pack/quantize_plan.h"
#include "pack/source_reader.h"
#include "quant/encoding.h"

namespace nunspark {

// Memory: a few MB, and the scales of one weight, a sixteenth to a thirty-second of its floats; of a weight stored by
// columns also its floats. The bytes are the same for any number of threads. Not thread-safe.
class PartEncoder {
 public:
  // `threads`: 0 = all CPUs this process may use. Errors: kResourceExhausted when the system refuses a thread.
  static Result<std::unique_ptr<PartEncoder>> Create(int threads);

  // Takes codes in order, a few hundred KB at a time.
  using Sink = std::function<Status(std::span<const uint8_t> codes)>;

  // Reads `part` and hands its codes to `sink`, rows of outputs one after another; scales and biases are complete when
  // it returns. REQUIRES: CanEncode(format); a float type; inputs that are a multiple of the group size; a matrix, when
  // it is stored by columns. Errors: kDataLoss for NaN and infinities (names the tensor, row and column); those of the
  // reader and of the sink.
  Status Encode(const TensorSlice& part, const PartEncoding& encoding, SourceReader& source, const Sink& sink);

  std::span<const uint8_t> scales() const { return scales_; }
  std::span<const uint8_t> biases() const { return biases_; }  // empty but for affine

 private:
  explicit PartEncoder(std::unique_ptr<ThreadPool> pool);

  // Where elements of the encoded matrix come from.
  struct Source {
    FloatType type = FloatType::kF32;
    const uint8_t* data = nullptr;
    int64_t first = 0;    // the element of the matrix that data begins with; 0 when stored by columns
    int64_t inputs = 0;   // of the matrix
    int64_t outputs = 0;  // not 0: stored by columns

    void Get(int64_t element, std::span<float> out) const;
  };

  Status Read(const TensorSlice& part, int64_t offset, int64_t bytes, SourceReader& source);

  // Encodes elements [first, first + elements). Returns the element without an encoding, or -1.
  int64_t EncodeChunk(const WeightFormat& format, const Source& source, int64_t first, int64_t elements);

  std::unique_ptr<ThreadPool> pool_;
  std::vector<uint8_t> source_;
  std::vector<std::vector<float>> floats_;  // one a thread
  std::vector<uint8_t> codes_;
  std::vector<uint8_t> scales_;
  std::vector<uint8_t> biases_;
};

}  // namespace nunspark

#endif  // NUNSPARK_PACK_PART_ENCODER_H_
