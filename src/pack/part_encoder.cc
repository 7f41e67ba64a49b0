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
constexpr size_t kChunkBytes = static_cast<size_t>(kChunkElements) * 4;

// What is read ahead of its use.
constexpr int64_t kPrefetchBytes = int64_t{16} << 20;

}  // namespace

PartEncoder::PartEncoder(std::unique_ptr<ThreadPool> pool)
    : pool_(std::move(pool)),
      source_(kChunkBytes),
      floats_(static_cast<size_t>(pool_->threads()), std::vector<float>(static_cast<size_t>(kShareElements))),
      codes_(static_cast<size_t>(kChunkElements)) {}

Result<std::unique_ptr<PartEncoder>> PartEncoder::Create(int threads) {
  ASSIGN_OR_RETURN(std::unique_ptr<ThreadPool> pool, ThreadPool::Create(threads > 0 ? threads : DefaultThreads()));
  return std::unique_ptr<PartEncoder>(new PartEncoder(std::move(pool)));
}

// Rows hold whole groups, so that the weight is encoded as one long row: chunks need not know where rows end.
Status PartEncoder::Encode(const TensorSlice& part, const PartEncoding& encoding, SourceReader& source,
                           const Sink& sink) {
  const WeightFormat& format = encoding.format;
  const std::optional<FloatType> type = FloatTypeOf(part.dtype);
  CHECK(type.has_value());
  const int64_t cols = encoding.Inputs(part);
  CHECK(CanEncode(format) && cols % format.group_size == 0);
  const int64_t elements = PartElements(part);
  const int64_t element_bytes = FloatBytes(*type);
  scales_.resize(static_cast<size_t>(ScaleRowBytes(format, elements)));
  biases_.resize(format.encoding == Encoding::kAffine ? scales_.size() : 0);
  Source floats{.type = *type, .inputs = cols};
  if (encoding.source == MatrixOrder::kColumnMajor) {
    CHECK(part.shape.size() == 2);
    floats.outputs = part.shape.back();
    RETURN_IF_ERROR(Read(part, 0, part.bytes, source));
  }
  for (int64_t first = 0; first < elements; first += kChunkElements) {
    const int64_t count = std::min(elements - first, kChunkElements);
    if (floats.outputs == 0) {
      floats.first = first;
      RETURN_IF_ERROR(Read(part, first * element_bytes, count * element_bytes, source));
    }
    floats.data = source_.data();
    if (const int64_t bad = EncodeChunk(format, floats, first, count); bad >= 0) {
      return DataLossError(
          fmt::format("tensor {}: output {}, input {} is no finite number or too far from its neighbours, and has no "
                      "encoding as {}; "
                      "is the checkpoint damaged? --quantize 'NAME=none' keeps the module as it is",
                      QuoteName(part.name), bad / cols, bad % cols, FormatName(format)));
    }
    RETURN_IF_ERROR(sink(std::span(codes_).first(static_cast<size_t>(RowBytes(format, count)))));
  }
  // The floats of a weight stored by columns are not kept for the next.
  if (floats.outputs != 0) std::vector<uint8_t>(kChunkBytes).swap(source_);
  return Status();
}

Status PartEncoder::Read(const TensorSlice& part, int64_t offset, int64_t bytes, SourceReader& source) {
  if (source_.size() < static_cast<size_t>(bytes)) source_.resize(static_cast<size_t>(bytes));
  RETURN_IF_ERROR(source.Read(part.file, part.offset + offset, std::span(source_).first(static_cast<size_t>(bytes))));
  const int64_t end = offset + bytes;
  if (const int64_t more = std::min(part.bytes - end, kPrefetchBytes); more > 0) {
    source.Prefetch(part.file, part.offset + end, more);
  }
  return Status();
}

void PartEncoder::Source::Get(int64_t element, std::span<float> out) const {
  const auto count = static_cast<int64_t>(out.size());
  if (outputs == 0) {
    DecodeFloats({.type = type, .size = count, .data = data + (element - first) * FloatBytes(type)}, out.data());
    return;
  }
  for (int64_t done = 0; done < count;) {
    const int64_t output = (element + done) / inputs;
    const int64_t input = (element + done) % inputs;
    const int64_t run = std::min(count - done, inputs - input);
    DecodeFloats(
        {.type = type, .size = run, .data = data + (input * outputs + output) * FloatBytes(type), .step = outputs},
        out.data() + done);
    done += run;
  }
}

int64_t PartEncoder::EncodeChunk(const WeightFormat& format, const Source& source, int64_t first, int64_t elements) {
  std::vector<int64_t> failed(static_cast<size_t>(pool_->threads()), -1);
  pool_->ParallelFor(elements, kShareElements, [&](int64_t begin, int64_t end, int thread) {
    std::vector<float>& floats = floats_[static_cast<size_t>(thread)];
    for (int64_t at = begin; at < end; at += kShareElements) {
      const std::span<float> share = std::span(floats).first(static_cast<size_t>(std::min(end - at, kShareElements)));
      source.Get(first + at, share);
      const int64_t scale_offset = ScaleRowBytes(format, first + at);
      const int64_t bad = EncodeRow(format, share,
                                    {.data = codes_.data() + RowBytes(format, at),
                                     .scales = scales_.data() + scale_offset,
                                     .biases = biases_.empty() ? nullptr : biases_.data() + scale_offset});
      if (bad < 0) continue;
      // A thread's ranges ascend.
      int64_t& lowest = failed[static_cast<size_t>(thread)];
      if (lowest < 0) lowest = first + at + bad;
      return;
    }
  });
  int64_t lowest = -1;
  for (const int64_t bad : failed) {
    if (bad >= 0 && (lowest < 0 || bad < lowest)) lowest = bad;
  }
  return lowest;
}

}  // namespace nunspark
