#include "quant/encoding.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace nunspark {
namespace {

struct FloatRow {
  Encoding encoding;
  int64_t bytes;
  std::string_view name;
};

// In the order of FloatType, and of the first values of Encoding.
constexpr FloatRow kFloats[] = {
    {Encoding::kF32, 4, "f32"},
    {Encoding::kF16, 2, "f16"},
    {Encoding::kBF16, 2, "bf16"},
};

// Encodings of one format each. block_bytes covers group_size elements.
struct FixedRow {
  Encoding encoding;
  uint8_t bits;
  uint16_t group_size;
  int64_t block_bytes;
  std::string_view name;
  std::string_view block_name;  // of GGML's block types
};

constexpr FixedRow kFixed[] = {
    {Encoding::kMxFp4, 4, 32, 16, "mxfp4", ""},          {Encoding::kMxFp8, 8, 32, 32, "mxfp8", ""},
    {Encoding::kNvFp4, 4, 16, 8, "nvfp4", ""},           {Encoding::kQ4_0, 4, 32, 18, "q4_0", "q4_0"},
    {Encoding::kQ4_1, 4, 32, 20, "q4_1", "q4_1"},        {Encoding::kQ5_0, 5, 32, 22, "q5_0", "q5_0"},
    {Encoding::kQ5_1, 5, 32, 24, "q5_1", "q5_1"},        {Encoding::kQ8_0, 8, 32, 34, "q8_0", "q8_0"},
    {Encoding::kQ2K, 2, 256, 84, "q2_k", "q2_k"},        {Encoding::kQ3K, 3, 256, 110, "q3_k", "q3_k"},
    {Encoding::kQ4K, 4, 256, 144, "q4_k", "q4_k"},       {Encoding::kQ5K, 5, 256, 176, "q5_k", "q5_k"},
    {Encoding::kQ6K, 6, 256, 210, "q6_k", "q6_k"},       {Encoding::kIq4Nl, 4, 32, 18, "iq4_nl", "iq4_nl"},
    {Encoding::kIq4Xs, 4, 256, 136, "iq4_xs", "iq4_xs"}, {Encoding::kGgufMxFp4, 4, 32, 17, "gguf-mxfp4", "mxfp4"},
};

const FloatRow& RowOf(FloatType type) { return kFloats[static_cast<int>(type)]; }

const FixedRow* FindFixed(Encoding encoding) {
  const auto* row =
      std::find_if(std::begin(kFixed), std::end(kFixed), [&](const FixedRow& r) { return r.encoding == encoding; });
  return row == std::end(kFixed) ? nullptr : row;
}

bool IsFloat(Encoding encoding) { return static_cast<size_t>(encoding) < std::size(kFloats); }

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Scales along `size` elements; a block of size 0 covers all.
int64_t BlocksAlong(int64_t size, int64_t block) { return block == 0 ? 1 : CeilDivide(size, block); }

std::string BlockSize(uint16_t size) { return size == 0 ? "all" : std::to_string(size); }

bool IsGroupSize(int size) { return size == 32 || size == 64 || size == 128; }

}  // namespace

int64_t FloatBytes(FloatType type) { return RowOf(type).bytes; }

std::string_view FloatName(FloatType type) { return RowOf(type).name; }

WeightFormat FloatFormat(FloatType type) {
  const FloatRow& row = RowOf(type);
  return {.encoding = row.encoding, .bits = static_cast<uint8_t>(row.bytes * 8), .group_size = 0, .scale_type = type};
}

WeightFormat FixedFormat(Encoding encoding) {
  const FixedRow* row = FindFixed(encoding);
  CHECK(row != nullptr);
  return {.encoding = encoding, .bits = row->bits, .group_size = row->group_size};
}

std::optional<WeightFormat> FindBlockFormat(std::string_view name) {
  for (const FixedRow& row : kFixed) {
    if (!name.empty() && row.block_name == name) return FixedFormat(row.encoding);
  }
  return std::nullopt;
}

std::string_view BlockName(const WeightFormat& format) {
  const FixedRow* row = FindFixed(format.encoding);
  return row == nullptr ? std::string_view() : row->block_name;
}

std::string BlockFormatNames() {
  std::string names;
  for (const FixedRow& row : kFixed) {
    if (row.block_name.empty()) continue;
    if (!names.empty()) names += ", ";
    names += row.block_name;
  }
  return names;
}

std::string FormatName(const WeightFormat& format) {
  const char* const order = format.order == MatrixOrder::kLanes16 ? "-lanes16" : "";
  if (const FixedRow* row = FindFixed(format.encoding)) return fmt::format("{}{}", row->name, order);
  const std::string_view scale = FloatName(format.scale_type);
  switch (format.encoding) {
    case Encoding::kAffine: return fmt::format("affine{}-g{}/{}{}", format.bits, format.group_size, scale, order);
    case Encoding::kAwq: return fmt::format("awq{}-g{}/{}", format.bits, format.group_size, scale);
    case Encoding::kFp8Block:
      return fmt::format("fp8-{}x{}/{}", BlockSize(format.group_rows), BlockSize(format.group_size), scale);
    default: break;
  }
  CHECK(IsFloat(format.encoding));
  return fmt::format("{}{}", kFloats[static_cast<int>(format.encoding)].name,
                     format.order == MatrixOrder::kColumnMajor ? "-columns" : "");
}

bool IsSupported(const WeightFormat& format) {
  if (format.order == MatrixOrder::kLanes16) {
    WeightFormat rows = format;
    rows.order = MatrixOrder::kRowMajor;
    return (format.encoding == Encoding::kAffine || format.encoding == Encoding::kMxFp4) && IsSupported(rows);
  }
  WeightFormat expected = format;
  if (IsFloat(format.encoding)) {
    expected = FloatFormat(static_cast<FloatType>(format.encoding));
    expected.order = format.order;
    return format == expected;
  }
  if (FindFixed(format.encoding) != nullptr) return format == FixedFormat(format.encoding);
  if (format.encoding == Encoding::kFp8Block) {
    expected.bits = 8;
    expected.order = MatrixOrder::kRowMajor;
    return format == expected;
  }
  const bool awq = format.encoding == Encoding::kAwq;
  const bool bits = awq ? format.bits == 4 : (format.bits >= 1 && format.bits <= 8 && format.bits != 7);
  expected.group_rows = 1;
  expected.order = awq ? MatrixOrder::kColumnMajor : MatrixOrder::kRowMajor;
  return format == expected && bits && IsGroupSize(format.group_size);
}

int64_t BlockElements(const WeightFormat& format) {
  const bool whole = format.encoding == Encoding::kAffine || format.encoding == Encoding::kAwq ||
                     FindFixed(format.encoding) != nullptr;
  return whole ? format.group_size : 1;
}

int64_t RowBytes(const WeightFormat& format, int64_t cols) {
  DCHECK(cols % BlockElements(format) == 0);
  if (const FixedRow* row = FindFixed(format.encoding)) return cols / row->group_size * row->block_bytes;
  return cols * format.bits / 8;
}

int64_t ScaleRowBytes(const WeightFormat& format, int64_t cols) {
  DCHECK(cols % BlockElements(format) == 0);
  switch (format.encoding) {
    case Encoding::kAffine: return cols / format.group_size * FloatBytes(format.scale_type);
    case Encoding::kMxFp4:
    case Encoding::kMxFp8:
    case Encoding::kNvFp4: return cols / format.group_size;
    case Encoding::kFp8Block: return BlocksAlong(cols, format.group_size) * FloatBytes(format.scale_type);
    default: return 0;
  }
}

int64_t ScaleRow(const WeightFormat& format, int64_t stored_row) {
  if (format.encoding != Encoding::kFp8Block) return stored_row;
  return format.group_rows == 0 ? 0 : stored_row / format.group_rows;
}

int64_t DataBytes(const WeightFormat& format, int64_t stored_rows, int64_t cols) {
  // Four bits a code in AWQ's words: the same bytes in any order.
  return stored_rows * RowBytes(format, cols);
}

int64_t ScaleBytes(const WeightFormat& format, int64_t stored_rows, int64_t cols) {
  if (format.encoding == Encoding::kAwq) {
    return cols / format.group_size * stored_rows * FloatBytes(format.scale_type);
  }
  const int64_t rows =
      format.encoding == Encoding::kFp8Block ? BlocksAlong(stored_rows, format.group_rows) : stored_rows;
  return rows * ScaleRowBytes(format, cols);
}

int64_t BiasBytes(const WeightFormat& format, int64_t stored_rows, int64_t cols) {
  if (format.encoding == Encoding::kAffine) return ScaleBytes(format, stored_rows, cols);
  if (format.encoding == Encoding::kAwq) return cols / format.group_size * (stored_rows / 8) * 4;
  return 0;
}

}  // namespace nunspark
