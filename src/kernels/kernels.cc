#include "kernels/kernels.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/align.h"
#include "base/check.h"
#include "kernels/matmul.h"
#include "kernels/tables.h"

namespace nunspark {
namespace {

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

int64_t MatMulScratchFloats(const WeightMatrix& w, int64_t rows) {
  constexpr int64_t kToAlign = 16;
  if (w.format.order == MatrixOrder::kLanes16) {
    WeightMatrix in_rows = w;
    in_rows.format.order = MatrixOrder::kRowMajor;
    const int64_t bytes = RowBytes(w.format, w.cols) + 2 * ScaleRowBytes(w.format, w.cols);
    return internal::kLaneRows * CeilDiv(bytes, 4) + 2 * kToAlign + MatMulScratchFloats(in_rows, rows);
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

int64_t AttentionScratchFloats(int key_dim, int value_dim) {
  return internal::kAttentionHeads * (AlignUp(key_dim, 16) + AlignUp(value_dim, 16) + kKvBlockPositions);
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
