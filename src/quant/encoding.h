// Weight encodings: how a matrix of numbers is stored, in one table, with a scalar reference decoder.
//
// Every weight has one exact value: the products and sums below are taken in float32 in the order written, fma() rounds
// once, and no kernel may give other bits. Element (n, k) is the weight from input k to output n.
//
//   kF32 kF16 kBF16  the number itself.
//   kAffine          fma(scale, code, bias), codes of 1-6 or 8 bits. A row of codes is a little-endian bit stream,
//                    element k in bits [k * bits, (k + 1) * bits). scales and biases [rows, cols / group_size].
//   kMxFp4 kMxFp8    code * 2^(scale - 127), codes e2m1 or e4m3 as such a stream; scales U8 [rows, cols / 32].
//   kNvFp4           code * e4m3(scale), codes e2m1; scales U8 [rows, cols / 16]. `biases` may point at one f32, a
//                    scale g of the whole tensor: code * (e4m3(scale) * g).
//   kAwq             (code - zero) * scale, always kColumnMajor: data I32 [cols, stored_rows / 8], biases the zeros,
//   I32
//                    [cols / group_size, stored_rows / 8], scales [cols / group_size, stored_rows]. Bits [4i, 4i + 4)
//                    of a word belong to output (0 2 4 6 1 3 5 7)[i] of its eight.
//   kFp8Block        code * scale, codes e4m3 in bytes, [rows, cols]; scales [ceil(stored_rows / group_rows),
//                    ceil(cols / group_size)]; the last blocks may be cut. 0 for either size: all rows, all columns.
//   kQ4_0 .. kGgufMxFp4  GGML's block types, scales inside the data; gguf_decode.cc documents each.
//
// Sources: MLX (mlx.core.quantize), the OCP microscaling formats, AutoAWQ's GEMM packing, GGML's block structures.
// e2m1 and e4m3 (the "fn" kind: no infinities, 0x7f and 0xff are NaN) are floats of 4 and 8 bits. The scale byte 255 of
// the microscaling formats has no defined value; here it is 2^128.
#ifndef NUNSPARK_QUANT_ENCODING_H_
#define NUNSPARK_QUANT_ENCODING_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace nunspark {

enum class Encoding : uint8_t {
  kF32,
  kF16,
  kBF16,  // in the order of FloatType
  kAffine,
  kMxFp4,
  kMxFp8,
  kNvFp4,
  kAwq,
  kFp8Block,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2K,
  kQ3K,
  kQ4K,
  kQ5K,
  kQ6K,
  kIq4Nl,
  kIq4Xs,
  kGgufMxFp4,
};

// Plain floating-point storage, also of scales, norms and additive biases.
enum class FloatType : uint8_t { kF32, kF16, kBF16 };

int64_t FloatBytes(FloatType type);
std::string_view FloatName(FloatType type);  // "f32"

// kRowMajor: the inputs of one output follow each other. kColumnMajor (floats and kAwq): the outputs of one input do.
// kLanes16 (kAffine and kMxFp4): sixteen outputs side by side, see lanes.h; row_begin is a multiple of 16, row_step 1.
enum class MatrixOrder : uint8_t { kRowMajor, kColumnMajor, kLanes16 };

struct WeightFormat {
  Encoding encoding = Encoding::kF32;
  uint8_t bits = 32;        // of one code
  uint16_t group_size = 0;  // elements along a row that one scale (or block) covers; 0 for the float encodings
  FloatType scale_type = FloatType::kF32;
  uint16_t group_rows = 1;  // rows that one scale covers (kFp8Block)
  MatrixOrder order = MatrixOrder::kRowMajor;

  friend bool operator==(const WeightFormat&, const WeightFormat&) = default;
};

WeightFormat FloatFormat(FloatType type);

// The format of an encoding that has only one: the microscaling and the block types. REQUIRES: such an encoding.
WeightFormat FixedFormat(Encoding encoding);

// GGML's block types by the lower-case names that tensors of a pack carry behind '@': "q4_0", ..., "mxfp4" (which is
// kGgufMxFp4). BlockName is the inverse, empty for other encodings. BlockFormatNames lists all, for messages.
std::optional<WeightFormat> FindBlockFormat(std::string_view name);
std::string_view BlockName(const WeightFormat& format);
std::string BlockFormatNames();  // "q4_0, q4_1, ..."

// Short name for people: "bf16", "f16-columns", "affine4-g64/bf16", "affine4-g64/bf16-lanes16", "mxfp4",
// "awq4-g128/f16", "fp8-128x128/f32", "q4_k"; GGML's mxfp4 is "gguf-mxfp4".
std::string FormatName(const WeightFormat& format);

// Whether this build can decode it: the floats by rows or columns; affine with 1-6 or 8 bits and awq with 4 at groups
// of 32, 64, 128; fp8 with blocks of any size; the fixed formats; affine and mxfp4 also as kLanes16.
bool IsSupported(const WeightFormat& format);

// `cols` must be a multiple of this: the elements of a block or group; 1 for floats and fp8.
int64_t BlockElements(const WeightFormat& format);

// Bytes of one stored row of codes (or floats, or blocks), and of one row of scales (0 when there are none beside the
// data). Biases of affine are as long as its scales. Of kLanes16 the share of an output. REQUIRES: not kColumnMajor;
// cols a multiple of BlockElements.
int64_t RowBytes(const WeightFormat& format, int64_t cols);
int64_t ScaleRowBytes(const WeightFormat& format, int64_t cols);

// The row of scales that a stored row uses: its own, except for kFp8Block.
int64_t ScaleRow(const WeightFormat& format, int64_t stored_row);

// Bytes of the whole stored tensors, in any order of storage. BiasBytes is 0 for kNvFp4, whose tensor scale is
// optional. REQUIRES: cols a multiple of BlockElements; stored_rows a multiple of 8 for kAwq.
int64_t DataBytes(const WeightFormat& format, int64_t stored_rows, int64_t cols);
int64_t ScaleBytes(const WeightFormat& format, int64_t stored_rows, int64_t cols);
int64_t BiasBytes(const WeightFormat& format, int64_t stored_rows, int64_t cols);

// A matrix in memory, [rows, cols]. Any alignment. Borrowed. It may be a part of a stored tensor, as the projections of
// a fused one are: its row n is the stored row row_begin + n * row_step. data, scales and biases are the stored
// tensor's.
struct WeightMatrix {
  WeightFormat format;
  int64_t rows = 0;
  int64_t cols = 0;
  const uint8_t* data = nullptr;
  const uint8_t* scales = nullptr;
  const uint8_t* biases = nullptr;  // quantisation offsets (or zeros), not the additive bias
  int64_t row_begin = 0;
  int64_t row_step = 1;
  int64_t stored_rows = 0;  // of the stored tensor; 0: `rows`. Needed for kColumnMajor.

  int64_t StoredRow(int64_t row) const { return row_begin + row * row_step; }
  int64_t StoredRows() const { return stored_rows == 0 ? rows : stored_rows; }
};

// A vector of plain floats in memory, element i at i * step. Any alignment. Borrowed; data == nullptr means "absent".
struct FloatVector {
  FloatType type = FloatType::kF32;
  int64_t size = 0;
  const uint8_t* data = nullptr;
  int64_t step = 1;
};

// Reference decoders. out has room for cols (size) floats.
void DecodeRow(const WeightMatrix& matrix, int64_t row, float* out);
void DecodeFloats(const FloatVector& vector, float* out);

}  // namespace nunspark

#endif  // NUNSPARK_QUANT_ENCODING_H_
