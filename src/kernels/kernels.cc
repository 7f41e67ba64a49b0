#include "kernels/kernels.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "base/align.h"
#include "base/check.h"
#include "kernels/amx.h"
#include "kernels/matmul.h"
#include "kernels/tables.h"

namespace nunspark {
namespace {

// Asked once.
const internal::AmxChoice& Amx() {
  static const internal::AmxChoice kChoice = [] {
    for (const KernelTable* table : internal::VectorKernels()) {
      if (std::string_view(table->name) == "avx512vnni") return internal::ChooseAmx(table);
    }
    return internal::ChooseAmx(nullptr);
  }();
  return kChoice;
}

// The table that NUNSPARK_ISA names; null when it names none. Unset or empty: the best.
const KernelTable* ChosenKernels() {
  const char* name = std::getenv("NUNSPARK_ISA");
  if (name == nullptr || *name == '\0') return AvailableKernels().front();
  return FindKernels(name);
}

// Whether a candidate goes before one already chosen that has a lower index: only when it is larger, or a number where
// the other is NaN.
bool Precedes(float candidate, float chosen) {
  return candidate > chosen || (std::isnan(chosen) && !std::isnan(candidate));
}

}  // namespace

const std::vector<const KernelTable*>& AvailableKernels() {
  static const std::vector<const KernelTable*> kTables = [] {
    std::vector<const KernelTable*> tables = internal::VectorKernels();
    if (Amx().table != nullptr) tables.insert(tables.begin(), Amx().table);
    tables.push_back(&internal::ScalarKernels());
    return tables;
  }();
  return kTables;
}

const KernelTable* FindKernels(std::string_view name) {
  for (const KernelTable* table : AvailableKernels()) {
    if (table->name == name) return table;
  }
  return nullptr;
}

Status CheckKernelChoice() {
  if (ChosenKernels() != nullptr) return {};
  std::vector<std::string_view> names;
  for (const KernelTable* table : AvailableKernels()) names.emplace_back(table->name);
  return InvalidArgumentError(fmt::format("NUNSPARK_ISA={} is not available here; this processor and build have: {}",
                                          std::getenv("NUNSPARK_ISA"), fmt::join(names, ", ")));
}

const KernelTable& Kernels() {
  static const KernelTable& kernels = [&]() -> const KernelTable& {
    const KernelTable* chosen = ChosenKernels();
    CHECK(chosen != nullptr);  // CheckKernelChoice() comes first
    return *chosen;
  }();
  return kernels;
}

const std::string& KernelTrouble() { return Amx().trouble; }

int64_t MatMulScratchFloats(const WeightMatrix& w, int64_t rows) {
  return internal::VectorScratchFloats(w, rows) + (Amx().table == nullptr ? 0 : internal::AmxScratchFloats(w, rows));
}

int64_t internal::VectorScratchFloats(const WeightMatrix& w, int64_t rows) {
  constexpr int64_t kToAlign = 16;
  if (w.format.order == MatrixOrder::kLanes16) {
    WeightMatrix in_rows = w;
    in_rows.format.order = MatrixOrder::kRowMajor;
    const int64_t bytes = RowBytes(w.format, w.cols) + 2 * ScaleRowBytes(w.format, w.cols);
    return internal::kLaneRows * CeilDiv(bytes, 4) + 2 * kToAlign + VectorScratchFloats(in_rows, rows);
  }
  int64_t codes = 0;
  if (HasCodes(w.format)) {
    const int64_t units = (w.cols + 127) / 128;
    codes = std::max(internal::CodeLayoutOf(units, 4).total, internal::CodeLayoutOf(units, 16).total);
  }
  if (internal::IsNative(w.format)) {
    return std::max(codes, internal::LayoutOf(w.format, w.cols, rows).total) + kToAlign;
  }
  // Few rows may need more than many.
  const int64_t few = internal::DecodedLayoutOf(w, std::min(rows, internal::kFewRows)).total;
  return std::max({codes, few, internal::DecodedLayoutOf(w, rows).total}) + kToAlign;
}

int64_t KvGroups(const KvFormat& format, int dim) { return format.bits == 0 ? 0 : CeilDiv(dim, format.group_size); }

int64_t KvCodeWidth(int dim) { return AlignUp(dim, 16); }

int64_t KvHeadBytes(const KvFormat& format, int dim) {
  if (format.bits == 0) return kKvBlockPositions * dim * FloatBytes(format.type);
  constexpr int64_t kPairBytes = 4;
  return kKvBlockPositions * (KvCodeWidth(dim) * format.bits / 8 + KvGroups(format, dim) * kPairBytes);
}

void CopyKvRows(const KvFormat& format, int dim, const uint8_t* from, int rows, uint8_t* to) {
  const int64_t floats = rows * dim * FloatBytes(format.type);
  std::memcpy(to, from, static_cast<size_t>(format.bits == 0 ? floats : KvHeadBytes(format, dim)));
}

std::string KvFormatName(const KvFormat& format) {
  if (format.bits == 0) return std::string(FloatName(format.type));
  return fmt::format("kv{}-g{}", format.bits, format.group_size);
}

int64_t AttentionScratchFloats(int key_dim, int value_dim) {
  const int64_t key_width = AlignUp(key_dim, internal::kAttentionWidth);
  const int64_t value_width = AlignUp(value_dim, internal::kAttentionWidth);
  // A pair of scale and bias for every 32 elements of a block's rows.
  const int64_t pairs = kKvBlockPositions * std::max(key_width, value_width) / 32 * 2;
  constexpr int64_t kToAlign = 16;
  // Queries, outputs, scores, and weights as integers of 16 bits.
  return internal::kAttentionHeads * (key_width + value_width + kKvBlockPositions * 3 / 2) + pairs + kToAlign;
}

void TopK(const float* x, int64_t n, int k, int32_t* indices, float* values) {
  DCHECK(k >= 1 && k <= n);
  int count = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (count == k && !Precedes(x[i], values[k - 1])) continue;
    int place = count < k ? count++ : k - 1;
    for (; place > 0 && Precedes(x[i], values[place - 1]); --place) {
      values[place] = values[place - 1];
      indices[place] = indices[place - 1];
    }
    values[place] = x[i];
    indices[place] = static_cast<int32_t>(i);
  }
}

}  // namespace nunspark
