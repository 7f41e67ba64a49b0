// The arithmetic of the forward pass: one function table per instruction set, all giving the same bits.
//
// Contract of every function: a value depends only on its own inputs and the inner length, never on how many rows or
// outputs are computed together, on the thread, on alignment or on the instruction set. Sums run over 16 virtual lanes
// (element i goes to lane i % 16, lanes accumulate with fused multiply-add in increasing i, lane sums are combined in
// the fixed tree ((l, l+8), (l, l+4), (l, l+2), (l, l+1))), unless the encoding's canonical order says otherwise
// (matmul.h of the implementation documents it per encoding). exp, sigmoid and friends are our own. Nothing allocates;
// nothing fails. Functions are thread-safe; callers split work over outputs, heads or rows.
#ifndef NUNSPARK_KERNELS_KERNELS_H_
#define NUNSPARK_KERNELS_KERNELS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "nunspark/status.h"
#include "quant/encoding.h"

namespace nunspark {

// Positions a KV block holds; blocks are cut at absolute multiples of it.
inline constexpr int kKvBlockPositions = 64;

// Keys and values of one sequence in one layer, as the attention kernel reads them. Block b holds positions
// [b * 64, (b + 1) * 64) as [kv_heads, 64, head_dim] of `type`, keys and values alike.
struct KvView {
  FloatType type = FloatType::kF16;
  int kv_heads = 0;
  int head_dim = 0;
  const uint8_t* const* key_blocks = nullptr;
  const uint8_t* const* value_blocks = nullptr;
};

struct KernelTable {
  const char* name;  // "scalar", "avx2", "avx512", "neon"

  // y[m][n] = sum_k x[m][k] * w[n][k] (+ bias[n]) for all m in [0, rows) and n in [begin, end).
  // x [rows, w.cols] with x_stride floats between rows, y [rows, w.rows] with y_stride. bias may be absent.
  // scratch: at least MatMulScratchFloats(w, rows) floats, private to the call.
  void (*matmul)(const WeightMatrix& w, const FloatVector& bias, const float* x, int64_t x_stride, int64_t rows,
                 int64_t begin, int64_t end, float* y, int64_t y_stride, float* scratch);

  // y = x / sqrt(mean(x^2) + epsilon) * weight; y may be x. weight.size = n.
  void (*rms_norm)(const float* x, const FloatVector& weight, float epsilon, int64_t n, float* y);

  // Rotates pairs (x[i], x[i + n/2]) of one head in place: RoPE in its half-split form over n = 2 * pairs values.
  // cos and sin hold n/2 values each (already scaled where the rope kind asks for it).
  void (*rope_halves)(float* x, const float* cos, const float* sin, int64_t n);

  // out[i] = silu(gate[i]) * up[i]; out may be gate or up.
  void (*swiglu)(const float* gate, const float* up, int64_t n, float* out);

  // x[i] += y[i];  x[i] = fma(weight, y[i], x[i]).
  void (*add)(float* x, const float* y, int64_t n);
  void (*add_scaled)(float* x, float weight, const float* y, int64_t n);

  // Softmax of n values in place (max subtracted, own exp, canonical sum).
  void (*softmax)(float* x, int64_t n);

  // Attention of the query heads that share kv head `kv_head`, for one row.
  // q [q_heads, head_dim] contiguous, out [q_heads, head_dim]. Sees positions [begin, end), end > begin.
  // Key blocks are processed in increasing absolute order with a running maximum and sum, so the result depends on
  // q, the keys and values in [begin, end) and nothing else. scratch: AttentionScratchFloats(head_dim) floats.
  void (*attend)(const float* q, int q_heads, const KvView& kv, int kv_head, int64_t begin, int64_t end, float scale,
                 float* out, float* scratch);

  // Float conversion with round-to-nearest-even (NaN stays NaN). dst/src any alignment.
  void (*store_floats)(const float* x, int64_t n, FloatType type, uint8_t* dst);
  void (*load_floats)(const uint8_t* src, FloatType type, int64_t n, float* x);

  // Index of the largest value; the lowest index wins ties; NaN never wins. n >= 1.
  int64_t (*argmax)(const float* x, int64_t n);
};

int64_t MatMulScratchFloats(const WeightMatrix& w, int64_t rows);
int64_t AttentionScratchFloats(int head_dim);

// The k largest of x in descending order (ties: lower index first), as softmax-then-top-k routers need it.
// indices and values have room for k. 1 <= k <= n.
void TopK(const float* x, int64_t n, int k, int32_t* indices, float* values);

// The table in use: the best this processor has, or the one NUNSPARK_ISA names. Chosen once.
const KernelTable& Kernels();

// Checks NUNSPARK_ISA. Errors: kInvalidArgument for an unknown name or one this processor lacks, listing what it has.
// Called once at start by the engine, before Kernels().
Status CheckKernelChoice();

// Every table this build and processor can run, best first (tests run them all), and a lookup by name.
const std::vector<const KernelTable*>& AvailableKernels();
const KernelTable* FindKernels(std::string_view name);

}  // namespace nunspark

#endif  // NUNSPARK_KERNELS_KERNELS_H_
