#include "formats/tensor_index.h"

#include <array>
#include <random>
#include <utility>

#include <fmt/format.h>
#include <xxhash.h>

#include "base/check.h"
#include "base/json.h"

namespace nunspark {
namespace {

struct DTypeRow {
  DType dtype;
  std::string_view name;
  int64_t bytes;
};

// In the order of the enum.
constexpr std::array kDTypes = {
    DTypeRow{DType::kF32, "F32", 4},        DTypeRow{DType::kF16, "F16", 2},
    DTypeRow{DType::kBF16, "BF16", 2},      DTypeRow{DType::kU8, "U8", 1},
    DTypeRow{DType::kU32, "U32", 4},        DTypeRow{DType::kI32, "I32", 4},
    DTypeRow{DType::kI64, "I64", 8},        DTypeRow{DType::kBool, "BOOL", 1},
    DTypeRow{DType::kI8, "I8", 1},          DTypeRow{DType::kU16, "U16", 2},
    DTypeRow{DType::kI16, "I16", 2},        DTypeRow{DType::kU64, "U64", 8},
    DTypeRow{DType::kF64, "F64", 8},        DTypeRow{DType::kF8E4M3, "F8_E4M3", 1},
    DTypeRow{DType::kF8E5M2, "F8_E5M2", 1}, DTypeRow{DType::kF8E8M0, "F8_E8M0", 1},
};

constexpr bool RowsFollowTheEnum() {
  for (size_t i = 0; i < kDTypes.size(); ++i) {
    if (static_cast<size_t>(kDTypes[i].dtype) != i) return false;
  }
  return true;
}
static_assert(RowsFollowTheEnum());

const DTypeRow& Row(DType dtype) { return kDTypes[static_cast<size_t>(dtype)]; }

}  // namespace

std::string_view DTypeName(DType dtype) { return Row(dtype).name; }

int64_t DTypeBytes(DType dtype) { return Row(dtype).bytes; }

std::optional<DType> FindDType(std::string_view name) {
  for (const DTypeRow& row : kDTypes) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

std::optional<int64_t> TensorBytes(const std::vector<int64_t>& shape, DType dtype) {
  int64_t bytes = DTypeBytes(dtype);
  bool empty = false;
  for (const int64_t dimension : shape) {
    if (dimension < 0) return std::nullopt;
    // The product of the other dimensions must stay in range also for an empty tensor: [0, 2^62, 2^62] is nonsense.
    if (dimension == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(bytes, dimension, &bytes)) {
      return std::nullopt;
    }
  }
  return empty ? 0 : bytes;
}

std::string ShapeText(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::string QuoteName(std::string_view name) {
  constexpr size_t kMaxShown = 200;
  if (name.size() <= kMaxShown) return JsonQuote(name);
  return fmt::format("{} ({} bytes long)", JsonQuote(fmt::format("{}...", name.substr(0, kMaxShown))), name.size());
}

size_t TensorIndex::Hash::operator()(std::string_view text) const {
  // Seeded per process: names come from files, and chosen collisions would make look-ups linear.
  static const XXH64_hash_t seed = (XXH64_hash_t{std::random_device()()} << 32) | std::random_device()();
  return XXH3_64bits_withSeed(text.data(), text.size(), seed);
}

int32_t TensorIndex::AddFile(SourceFile file) {
  files_.push_back(std::move(file));
  return static_cast<int32_t>(files_.size()) - 1;
}

Status TensorIndex::AddTensor(TensorInfo tensor) {
  CHECK(tensor.file >= 0 && static_cast<size_t>(tensor.file) < files_.size());
  if (tensors_.size() >= kMaxTensors) {
    return ResourceExhaustedError(fmt::format("{}: more than {} tensors in one model",
                                              files_[static_cast<size_t>(tensor.file)].path, kMaxTensors));
  }
  const auto [place, added] = by_name_.emplace(tensor.name, tensors_.size());
  if (!added) {
    const TensorInfo& first = tensors_[place->second];
    return DataLossError(fmt::format("tensor {} is in {} and again in {}; expected once", QuoteName(tensor.name),
                                     files_[static_cast<size_t>(first.file)].path,
                                     files_[static_cast<size_t>(tensor.file)].path));
  }
  tensors_.push_back(std::move(tensor));
  return Status();
}

const TensorInfo* TensorIndex::Find(std::string_view name) const {
  const auto place = by_name_.find(name);
  return place == by_name_.end() ? nullptr : &tensors_[place->second];
}

}  // namespace nunspark
