#include "models/stored_matrix.h"

#include <algorithm>

#include <fmt/format.h>

#include "formats/manifest.h"
#include "formats/quantization.h"
#include "quant/lanes.h"

namespace nunspark::internal {
namespace {

constexpr std::string_view kExpectedTypes = "F32, F16, BF16, or codes with scales";

std::string InLanes(std::string_view suffix) { return std::string(suffix) + std::string(kLanesSuffix); }

class Finder {
 public:
  Finder(const Checkpoint& checkpoint, std::string_view model_type, const MatrixRequest& request)
      : checkpoint_(checkpoint), tensors_(checkpoint.tensors), type_(model_type), request_(request) {}

  Result<StoredMatrix> Run() {
    RETURN_IF_ERROR(FindData());
    RETURN_IF_ERROR(FindBias());
    for (StoredTensor* stored : {&matrix_.data, &matrix_.scales, &matrix_.biases, &matrix_.bias}) {
      if (stored->tensor != nullptr) RETURN_IF_ERROR(CheckShape(*stored));
    }
    return std::move(matrix_);
  }

 private:
  const TensorInfo* Find(std::string_view suffix) const { return tensors_.Find(request_.module + std::string(suffix)); }

  Status FindData() {
    if (const TensorInfo* const weight = Find(".weight")) return Plain(*weight);
    if (const TensorInfo* const lanes = Find(InLanes(".weight"))) return Mlx(*lanes, MatrixOrder::kLanes16);
    if (const TensorInfo* const codes = Find(".qweight")) return Awq(*codes);
    for (const WeightFormat& format : BlockFormats()) {
      const std::string suffix = fmt::format(".weight@{}", BlockName(format));
      if (const TensorInfo* const blocks = Find(suffix)) return Blocks(*blocks, suffix, format);
    }
    if (const TensorInfo* const blocks = Find("_blocks")) return GptOssBlocks(*blocks);
    if (const TensorInfo* const bare = Find("")) return Floats(*bare, "", request_.bare_order);
    return NotFoundError(
        fmt::format("{}: tensor {}.weight is missing; {} needs it", PlaceOf(checkpoint_), request_.module, type_));
  }

  static const std::vector<WeightFormat>& BlockFormats() {
    static const std::vector<WeightFormat> formats = [] {
      std::vector<WeightFormat> all;
      for (int e = static_cast<int>(Encoding::kQ4_0); e <= static_cast<int>(Encoding::kGgufMxFp4); ++e) {
        all.push_back(FixedFormat(static_cast<Encoding>(e)));
      }
      return all;
    }();
    return formats;
  }

  Status Plain(const TensorInfo& weight) {
    if (request_.kind == TensorKind::kLinear) {
      if (weight.dtype == DType::kF8E4M3) return Fp8(weight);
      if (Find(".scales") != nullptr || weight.dtype == DType::kU32) return Mlx(weight, MatrixOrder::kRowMajor);
    }
    return Floats(weight, ".weight", MatrixOrder::kRowMajor);
  }

  Status Floats(const TensorInfo& weight, std::string suffix, MatrixOrder order) {
    if (request_.kind == TensorKind::kIndices) return Indices(weight, std::move(suffix));
    ASSIGN_OR_RETURN(const FloatType type, FloatTypeOf(weight));
    if (const auto* const entry = Settings(); entry != nullptr && entry->has_value()) {
      return DataLossError(fmt::format("{}: tensor {}: config.json says it is quantised, but {}.scales is missing",
                                       PlaceOf(checkpoint_), weight.name, request_.module));
    }
    matrix_.format = FloatFormat(type);
    std::vector<int64_t> shape = {request_.rows, request_.cols};
    if (request_.kind == TensorKind::kVector) {
      shape = {request_.cols};
      // A single number may come without an axis.
      if (request_.cols == 1 && weight.shape.empty()) shape = {};
    } else if (order == MatrixOrder::kColumnMajor) {
      matrix_.format.order = order;
      shape = {request_.cols, request_.rows};
    }
    matrix_.data = {&weight, std::move(suffix), std::move(shape)};
    return Status();
  }

  Status Indices(const TensorInfo& weight, std::string suffix) {
    if (weight.dtype != DType::kI64) {
      return DataLossError(fmt::format("{}: tensor {}: expected type I64, found {}", PlaceOf(checkpoint_), weight.name,
                                       DTypeName(weight.dtype)));
    }
    matrix_.data = {&weight, std::move(suffix), {request_.cols}};
    return Status();
  }

  // MLX: weight U32 [rows, cols * bits / 32], scales [rows, cols / group]; affine has biases, the others U8 scales. In
  // lanes (quant/lanes.h) [rows / 16, cols * bits / 32, 16] and so on, with @lanes16 behind the names.
  Status Mlx(const TensorInfo& weight, MatrixOrder order) {
    const bool lanes = order == MatrixOrder::kLanes16;
    const std::string tag(lanes ? kLanesSuffix : "");
    const TensorInfo* const scales = Find(".scales" + tag);
    if (scales == nullptr) return Missing(".scales" + tag);
    const TensorInfo* const biases = Find(".biases" + tag);
    if (weight.dtype != DType::kU32) {
      return DataLossError(fmt::format("{}: tensor {}: expected type U32 beside {}, found {}", PlaceOf(checkpoint_),
                                       weight.name, scales->name, DTypeName(weight.dtype)));
    }
    const auto inner = [&](const TensorInfo& tensor) {
      const size_t axes = tensor.shape.size(), axis = lanes ? 2 : 1;
      return axes < axis ? 0 : tensor.shape[axes - axis];
    };
    const auto shape = [&](int64_t cols) {
      if (lanes) return std::vector<int64_t>{request_.rows / kLaneOutputs, cols, kLaneOutputs};
      return std::vector<int64_t>{request_.rows, cols};
    };
    const int64_t weight_cols = inner(weight), scale_cols = inner(*scales);
    int64_t bits = 0, group = 0;
    RETURN_IF_ERROR(Parameters(weight, weight_cols, scale_cols, bits, group));
    const bool affine = scales->dtype != DType::kU8;
    if (affine) {
      matrix_.format = {.encoding = Encoding::kAffine,
                        .bits = static_cast<uint8_t>(bits),
                        .group_size = static_cast<uint16_t>(group)};
      ASSIGN_OR_RETURN(matrix_.format.scale_type, FloatTypeOf(*scales));
      if (biases == nullptr) return Missing(".biases" + tag);
      if (biases->dtype != scales->dtype) {
        return DataLossError(fmt::format("{}: tensor {}: expected the type of its scales, {}, found {}",
                                         PlaceOf(checkpoint_), biases->name, DTypeName(scales->dtype),
                                         DTypeName(biases->dtype)));
      }
      matrix_.biases = {biases, ".biases" + tag, shape(scale_cols)};
    } else {
      RETURN_IF_ERROR(Microscaling(weight, bits, group));
    }
    RETURN_IF_ERROR(CheckSettings(weight, bits, group));
    if (!IsSupported(matrix_.format)) {
      return UnsupportedError(
          fmt::format("{}: tensor {}: affine quantisation with {} bits in groups of {} is not supported; "
                      "supported: 1, 2, 3, 4, 5, 6 and 8 bits in groups of 32, 64, 128",
                      PlaceOf(checkpoint_), weight.name, bits, group));
    }
    if (lanes) {
      if (!HasLanes(matrix_.format, request_.rows, request_.cols)) {
        return DataLossError(fmt::format("{}: tensor {}: {} in {} outputs is not stored with sixteen side by side",
                                         PlaceOf(checkpoint_), weight.name, FormatName(matrix_.format), request_.rows));
      }
      matrix_.format.order = order;
    }
    matrix_.data = {&weight, ".weight" + tag, shape(weight_cols)};
    matrix_.scales = {scales, ".scales" + tag, shape(scale_cols)};
    return Status();
  }

  Status Parameters(const TensorInfo& weight, int64_t weight_cols, int64_t scale_cols, int64_t& bits, int64_t& group) {
    // Eight bits a code at most; beyond it the products below could overflow.
    const int64_t cols = request_.cols;
    if (weight_cols <= cols && scale_cols <= cols && scale_cols > 0) {
      bits = weight_cols * 32 / cols;
      group = cols / scale_cols;
      if (bits > 0 && bits * cols == weight_cols * 32 && group * scale_cols == cols && group < 65536) return Status();
    }
    return DataLossError(
        fmt::format("{}: tensor {}: {} columns of codes and {} of scales fit no quantisation of {} inputs",
                    PlaceOf(checkpoint_), weight.name, weight_cols, scale_cols, cols));
  }

  Status Microscaling(const TensorInfo& weight, int64_t bits, int64_t group) {
    for (const Encoding encoding : {Encoding::kMxFp4, Encoding::kMxFp8, Encoding::kNvFp4}) {
      const WeightFormat format = FixedFormat(encoding);
      if (format.bits != bits || format.group_size != group) continue;
      matrix_.format = format;
      return Status();
    }
    return UnsupportedError(
        fmt::format("{}: tensor {}: {} bits in groups of {} with scales of one byte is no encoding that is supported; "
                    "supported: mxfp4 (4 in 32), mxfp8 (8 in 32), nvfp4 (4 in 16)",
                    PlaceOf(checkpoint_), weight.name, bits, group));
  }

  std::string_view Mode() const {
    switch (matrix_.format.encoding) {
      case Encoding::kMxFp4: return "mxfp4";
      case Encoding::kMxFp8: return "mxfp8";
      case Encoding::kNvFp4: return "nvfp4";
      default: return "affine";
    }
  }

  Status CheckSettings(const TensorInfo& weight, int64_t bits, int64_t group) const {
    const std::optional<QuantSettings>* const entry = Settings();
    if (entry == nullptr) return Status();
    if (!entry->has_value()) {
      return DataLossError(fmt::format("{}: tensor {}: config.json says it is not quantised, but it has scales",
                                       PlaceOf(checkpoint_), weight.name));
    }
    const QuantSettings& settings = **entry;
    if (settings.bits == bits && settings.group_size == group && settings.mode == Mode()) return Status();
    return DataLossError(fmt::format(
        "{}: tensor {}: config.json says {} with {} bits in groups of {}, its shape and scales say {} with {} in {}",
        PlaceOf(checkpoint_), weight.name, settings.mode, settings.bits, settings.group_size, Mode(), bits, group));
  }

  // AWQ's GEMM layout: qweight I32 [cols, rows / 8], qzeros I32 [cols / group, rows / 8], scales [cols / group, rows].
  Status Awq(const TensorInfo& codes) {
    const TensorInfo* const zeros = Find(".qzeros");
    const TensorInfo* const scales = Find(".scales");
    if (zeros == nullptr) return Missing(".qzeros");
    if (scales == nullptr) return Missing(".scales");
    if (codes.dtype != DType::kI32 || zeros->dtype != DType::kI32) {
      return DataLossError(fmt::format("{}: tensor {}: expected types I32 of qweight and qzeros, found {} and {}",
                                       PlaceOf(checkpoint_), codes.name, DTypeName(codes.dtype),
                                       DTypeName(zeros->dtype)));
    }
    if (Find(".g_idx") != nullptr) {
      return UnsupportedError(fmt::format(
          "{}: tensor {}.g_idx: GPTQ weights are not supported; supported: AWQ, MLX quantisation, fp8 blocks",
          PlaceOf(checkpoint_), request_.module));
    }
    const int64_t groups = scales->shape.empty() ? 0 : scales->shape.front();
    if (groups < 1 || request_.cols % groups != 0 || request_.rows % 8 != 0) {
      return DataLossError(fmt::format("{}: tensor {}: {} groups fit no AWQ quantisation of {} inputs and {} outputs",
                                       PlaceOf(checkpoint_), scales->name, groups, request_.cols, request_.rows));
    }
    matrix_.format = {.encoding = Encoding::kAwq,
                      .bits = 4,
                      .group_size = static_cast<uint16_t>(std::min<int64_t>(request_.cols / groups, 65535)),
                      .order = MatrixOrder::kColumnMajor};
    ASSIGN_OR_RETURN(matrix_.format.scale_type, FloatTypeOf(*scales));
    if (!IsSupported(matrix_.format)) {
      return UnsupportedError(fmt::format("{}: tensor {}: AWQ in groups of {} is not supported; supported: 32, 64, 128",
                                          PlaceOf(checkpoint_), codes.name, request_.cols / groups));
    }
    matrix_.data = {&codes, ".qweight", {request_.cols, request_.rows / 8}};
    matrix_.scales = {scales, ".scales", {groups, request_.rows}};
    matrix_.biases = {zeros, ".qzeros", {groups, request_.rows / 8}};
    return Status();
  }

  // fp8 in blocks: weight_scale_inv [ceil(rows / block), ceil(cols / block)].
  Status Fp8(const TensorInfo& weight) {
    const TensorInfo* const scales = Find(".weight_scale_inv");
    if (scales == nullptr) return Missing(".weight_scale_inv");
    const int64_t block[2] = {checkpoint_.quantization.fp8_block_rows, checkpoint_.quantization.fp8_block_cols};
    matrix_.format = {.encoding = Encoding::kFp8Block,
                      .bits = 8,
                      .group_size = static_cast<uint16_t>(block[1]),
                      .group_rows = static_cast<uint16_t>(block[0])};
    ASSIGN_OR_RETURN(matrix_.format.scale_type, FloatTypeOf(*scales));
    matrix_.data = {&weight, ".weight", {request_.rows, request_.cols}};
    matrix_.scales = {scales,
                      ".weight_scale_inv",
                      {(request_.rows + block[0] - 1) / block[0], (request_.cols + block[1] - 1) / block[1]}};
    return Status();
  }

  Status Blocks(const TensorInfo& blocks, std::string suffix, const WeightFormat& format) {
    matrix_.format = format;
    RETURN_IF_ERROR(CheckBlockCols(blocks));
    matrix_.data = {&blocks, std::move(suffix), {request_.rows, RowBytes(format, request_.cols)}};
    return CheckU8(blocks);
  }

  // gpt-oss as published: blocks U8 [rows, cols / 32, 16], scales U8 [rows, cols / 32].
  Status GptOssBlocks(const TensorInfo& blocks) {
    const TensorInfo* const scales = Find("_scales");
    if (scales == nullptr) return Missing("_scales");
    matrix_.format = FixedFormat(Encoding::kMxFp4);
    RETURN_IF_ERROR(CheckBlockCols(blocks));
    const int64_t groups = request_.cols / matrix_.format.group_size;
    matrix_.data = {&blocks, "_blocks", {request_.rows, groups, matrix_.format.group_size / 2}};
    matrix_.scales = {scales, "_scales", {request_.rows, groups}};
    RETURN_IF_ERROR(CheckU8(blocks));
    return CheckU8(*scales);
  }

  Status CheckBlockCols(const TensorInfo& tensor) const {
    if (request_.cols % BlockElements(matrix_.format) == 0) return Status();
    return DataLossError(fmt::format("{}: tensor {}: {} inputs are no multiple of the {} elements of a block",
                                     PlaceOf(checkpoint_), tensor.name, request_.cols, BlockElements(matrix_.format)));
  }

  Status CheckU8(const TensorInfo& tensor) const {
    if (tensor.dtype == DType::kU8) return Status();
    return DataLossError(fmt::format("{}: tensor {}: expected type U8, found {}", PlaceOf(checkpoint_), tensor.name,
                                     DTypeName(tensor.dtype)));
  }

  Status FindBias() {
    const bool plain = !matrix_.data.suffix.empty() && matrix_.data.suffix.front() == '.';
    for (const std::string_view suffix : {plain ? ".bias" : "_bias", plain ? "_bias" : ".bias"}) {
      const TensorInfo* const bias = Find(suffix);
      if (bias == nullptr) continue;
      ASSIGN_OR_RETURN(matrix_.bias_type, FloatTypeOf(*bias));
      matrix_.bias = {bias, std::string(suffix), {request_.rows}};
      return Status();
    }
    return Status();
  }

  const std::optional<QuantSettings>* Settings() const {
    for (const std::string& name : request_.config_names) {
      const auto found = checkpoint_.quantization.modules.find(name);
      if (found != checkpoint_.quantization.modules.end()) return &found->second;
    }
    return nullptr;
  }

  Result<FloatType> FloatTypeOf(const TensorInfo& tensor) const {
    if (tensor.dtype == DType::kF32) return FloatType::kF32;
    if (tensor.dtype == DType::kF16) return FloatType::kF16;
    if (tensor.dtype == DType::kBF16) return FloatType::kBF16;
    return UnsupportedError(fmt::format("{}: tensor {}: type {} is not supported here; expected {}",
                                        PlaceOf(checkpoint_), tensor.name, DTypeName(tensor.dtype), kExpectedTypes));
  }

  Status CheckShape(const StoredTensor& stored) const {
    std::vector<int64_t> expected = stored.shape;
    if (request_.experts > 0) expected.insert(expected.begin(), request_.experts);
    if (stored.tensor->shape == expected) return Status();
    return DataLossError(fmt::format("{}: tensor {}: expected shape {}, found {}", PlaceOf(checkpoint_),
                                     stored.tensor->name, ShapeText(expected), ShapeText(stored.tensor->shape)));
  }

  Status Missing(std::string_view suffix) const {
    return NotFoundError(
        fmt::format("{}: tensor {}{} is missing; {} needs it", PlaceOf(checkpoint_), request_.module, suffix, type_));
  }

  const Checkpoint& checkpoint_;
  const TensorIndex& tensors_;
  const std::string_view type_;
  const MatrixRequest& request_;
  StoredMatrix matrix_;
};

}  // namespace

const std::string& PlaceOf(const Checkpoint& checkpoint) {
  return checkpoint.is_gguf ? checkpoint.gguf_path : checkpoint.folder;
}

bool HasModule(const TensorIndex& tensors, const std::string& module) {
  for (const std::string& suffix :
       {std::string(".weight"), InLanes(".weight"), std::string(".qweight"), std::string("_blocks"), std::string()}) {
    if (tensors.Find(module + suffix) != nullptr) return true;
  }
  for (int e = static_cast<int>(Encoding::kQ4_0); e <= static_cast<int>(Encoding::kGgufMxFp4); ++e) {
    const std::string_view block = BlockName(FixedFormat(static_cast<Encoding>(e)));
    if (tensors.Find(fmt::format("{}.weight@{}", module, block)) != nullptr) return true;
  }
  return false;
}

Result<StoredMatrix> FindMatrix(const Checkpoint& checkpoint, std::string_view model_type,
                                const MatrixRequest& request) {
  return Finder(checkpoint, model_type, request).Run();
}

}  // namespace nunspark::internal
