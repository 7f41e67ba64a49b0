#include "pack/part_encoder.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/cpu_count.h"
#include "formats/tensor_index.h"
#include "pack/quantize_plan.h"
#include "quant/quantize.h"

namespace nunspark {
namespace {

// Elements that are read and encoded at a time, and those that a thread takes at once: multiples of every group size.
constexpr int64_t kChunkElements = int64_t{1} << 20;
constexpr int64_t kShareElements = int64_t{1} << 13;

// What is read ahead of its use.
constexpr int64_t kPrefetchBytes = int64_t{16} << 20;

}  // namespace

PartEncoder::PartEncoder(std::unique_ptr<ThreadPool> pool)
    : pool_(std::move(pool)),
      source_(static_cast<size_t>(kChunkElements) * 4),
      floats_(static_cast<size_t>(pool_->threads()), std::vector<float>(static_cast<size_t>(kShareElements))),
      codes_(static_cast<size_t>(kChunkElements)) {}

Result<std::unique_ptr<PartEncoder>> PartEncoder::Create(int threads) {
  ASSIGN_OR_RETURN(std::unique_ptr<ThreadPool> pool, ThreadPool::Create(threads > 0 ? threads : DefaultThreads()));
  return std::unique_ptr<PartEncoder>(new PartEncoder(std::move(pool)));
}

// Rows hold whole groups, so that the weight is encoded as one long row: chunks need not know where rows end.
Status PartEncoder::Encode(const TensorSlice& part, const WeightFormat& format, SourceReader& source,
                           const Sink& sink) {
  const std::optional<FloatType> type = FloatTypeOf(part.dtype);
  CHECK(type.has_value());
  const int64_t cols = part.shape.back();
  CHECK(CanEncode(format) && cols % format.group_size == 0);
  const int64_t elements = PartElements(part);
  const int64_t element_bytes = FloatBytes(*type);
  scales_.resize(static_cast<size_t>(ScaleRowBytes(format, elements)));
  biases_.resize(format.encoding == Encoding::kAffine ? scales_.size() : 0);
  for (int64_t first = 0; first < elements; first += kChunkElements) {
    const int64_t count = std::min(elements - first, kChunkElements);
    const int64_t offset = part.offset + first * element_bytes;
    RETURN_IF_ERROR(
        source.Read(part.file, offset, std::span(source_).first(static_cast<size_t>(count * element_bytes))));
    const int64_t end = offset + count * element_bytes;
    if (const int64_t more = std::min(part.offset + part.bytes - end, kPrefetchBytes); more > 0) {
      source.Prefetch(part.file, end, more);
    }
    if (const int64_t bad = EncodeChunk(format, *type, first, count); bad >= 0) {
      return DataLossError(fmt::format(
          "tensor {}: row {}, column {} is no finite number or too far from its neighbours, and has no encoding as {}; "
          "is the checkpoint damaged? --quantize 'NAME=none' keeps the module as it is",
          QuoteName(part.name), bad / cols, bad % cols, FormatName(format)));
    }
    RETURN_IF_ERROR(sink(std::span(codes_).first(static_cast<size_t>(RowBytes(format, count)))));
  }
  return Status();
}

int64_t PartEncoder::EncodeChunk(const WeightFormat& format, FloatType type, int64_t first, int64_t elements) {
  std::vector<int64_t> failed(static_cast<size_t>(pool_->threads()), -1);
  pool_->ParallelFor(elements, kShareElements, [&](int64_t begin, int64_t end, int thread) {
    std::vector<float>& floats = floats_[static_cast<size_t>(thread)];
    for (int64_t at = begin; at < end; at += kShareElements) {
      const int64_t count = std::min(end - at, kShareElements);
      DecodeFloats({.type = type, .size = count, .data = source_.data() + at * FloatBytes(type)}, floats.data());
      const int64_t scale_offset = ScaleRowBytes(format, first + at);
      const int64_t bad = EncodeRow(format, std::span(floats).first(static_cast<size_t>(count)),
                                    {.data = codes_.data() + RowBytes(format, at),
                                     .scales = scales_.data() + scale_offset,
                                     .biases = biases_.empty() ? nullptr : biases_.data() + scale_offset});
      if (bad < 0) continue;
      failed[static_cast<size_t>(thread)] = first + at + bad;
      return;
    }
  });
  // Shares follow each other, each thread has one: the first by element is the lowest.
  int64_t lowest = -1;
  for (const int64_t bad : failed) {
    if (bad >= 0 && (lowest < 0 || bad < lowest)) lowest = bad;
  }
  return lowest;
}

}  // namespace nunspark
