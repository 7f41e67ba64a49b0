#include "formats/tensor_index.h"

#include <algorithm>
#include <array>
#include <bit>
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

uint64_t HashName(std::string_view name) {
  // Seeded per process: names come from files, and chosen collisions would make look-ups linear.
  static const XXH64_hash_t seed = (XXH64_hash_t{std::random_device()()} << 32) | std::random_device()();
  return XXH3_64bits_withSeed(name.data(), name.size(), seed);
}

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

int32_t TensorIndex::AddFile(SourceFile file) {
  files_.push_back(std::move(file));
  return static_cast<int32_t>(files_.size()) - 1;
}

Status TensorIndex::AddTensor(TensorInfo tensor) {
  tensors_.push_back(std::move(tensor));
  GrowSlots(tensors_.size());
  Status status = AddSlot(tensors_.size() - 1);
  if (!status.ok()) tensors_.pop_back();
  return status;
}

Status TensorIndex::AddTensors(std::vector<TensorInfo> tensors) {
  GrowSlots(tensors_.size() + tensors.size());
  if (!tensors_.empty()) {
    for (TensorInfo& tensor : tensors) RETURN_IF_ERROR(AddTensor(std::move(tensor)));
    return Status();
  }
  tensors_ = std::move(tensors);
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (const Status status = AddSlot(i); !status.ok()) {
      tensors_.resize(i);
      return status;
    }
  }
  return Status();
}

const TensorInfo* TensorIndex::Find(std::string_view name) const {
  if (slots_.empty()) return nullptr;
  const uint32_t found = slots_[FindSlot(name)];
  return found == 0 ? nullptr : &tensors_[found - 1];
}

size_t TensorIndex::FindSlot(std::string_view name) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = HashName(name) & mask;
  while (slots_[slot] != 0 && tensors_[slots_[slot] - 1].name != name) slot = (slot + 1) & mask;
  return slot;
}

void TensorIndex::GrowSlots(size_t tensor_count) {
  // Beyond the limit AddSlot refuses; nothing needs to be made ready for that.
  tensor_count = std::min(tensor_count, kMaxTensors);
  if (2 * tensor_count <= slots_.size()) return;
  const std::vector<uint32_t> old = std::exchange(slots_, std::vector<uint32_t>(std::bit_ceil(2 * tensor_count)));
  for (const uint32_t entry : old) {
    if (entry != 0) slots_[FindSlot(tensors_[entry - 1].name)] = entry;
  }
}

Status TensorIndex::AddSlot(size_t index) {
  const TensorInfo& tensor = tensors_[index];
  CHECK(tensor.file >= 0 && static_cast<size_t>(tensor.file) < files_.size());
  const std::string& path = files_[static_cast<size_t>(tensor.file)].path;
  if (index >= kMaxTensors) {
    return ResourceExhaustedError(fmt::format("{}: more than {} tensors in one model", path, kMaxTensors));
  }
  uint32_t& slot = slots_[FindSlot(tensor.name)];
  if (slot != 0) {
    const TensorInfo& first = tensors_[slot - 1];
    return DataLossError(fmt::format("tensor {} is in {} and again in {}; expected once", QuoteName(tensor.name),
                                     files_[static_cast<size_t>(first.file)].path, path));
  }
  slot = static_cast<uint32_t>(index) + 1;
  return Status();
}

}  // namespace nunspark
