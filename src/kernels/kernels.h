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

#include "kernels/numerics.h"
#include "nunspark/status.h"
#include "quant/encoding.h"

namespace nunspark {

// Positions a KV block holds; blocks are cut at absolute multiples of it.
inline constexpr int kKvBlockPositions = 64;

// How the rows of a KV cache are stored: one row is the key, or the value, of one head at one position.
//
// Floats of `type`; or, given bits (8 or 4), codes without sign in groups of group_size elements, of which the last may
// be shorter. Element d is fma(scale, code, bias) with its group's scale and bias, both float16: halves lose nothing,
// because codes are chosen for the halves as stored, and reach as far as rows of f16 do.
struct KvFormat {
  FloatType type = FloatType::kF16;
  uint8_t bits = 0;
  uint8_t group_size = 0;  // 32, 64 or 128

  friend bool operator==(const KvFormat&, const KvFormat&) = default;
};

// Rows of one head in one block, `dim` elements each: 64 rows of floats. Or codes, in the order in which integer
// products take them, and behind them for each group 64 scales and 64 biases, one of each row. An integer product adds
// up four codes that lie together: of keys four elements of a row, [ceil(dim / 4), 64, 4]; of values an element of four
// rows, [16, KvCodeWidth(dim), 4]. With 4 bits a byte's low half belongs to one such four and its high half to the
// next: [ceil(dim / 8), 64, 4] and [8, KvCodeWidth(dim), 4].
int64_t KvHeadBytes(const KvFormat& format, int dim);  // of one head's part of a block, a multiple of 64
int64_t KvGroups(const KvFormat& format, int dim);     // 0 for floats
int64_t KvCodeWidth(int dim);                          // a row's elements, with those that only fill it

enum class KvSide : uint8_t { kKeys, kValues };

// The first `rows` rows, at least, of a head's part of a block to another one.
void CopyKvRows(const KvFormat& format, int dim, const uint8_t* from, int rows, uint8_t* to);

// "f16", "kv8-g64".
std::string KvFormatName(const KvFormat& format);

// Keys and values of one sequence in one layer, as the attention kernel reads them. Block b holds positions
// [b * 64, (b + 1) * 64): keys as one part of KvHeadBytes(format, key_dim) for each kv head, values as parts of
// KvHeadBytes(format, value_width) whose rows begin with the value. Values of their own have value_width == value_dim;
// where a value is the first part of its key (MLA's latent), both share their blocks, value_width == key_dim, and the
// format is one of floats.
struct KvView {
  KvFormat format;
  int kv_heads = 0;
  int key_dim = 0;
  int value_dim = 0;
  int value_width = 0;
  const uint8_t* const* key_blocks = nullptr;
  const uint8_t* const* value_blocks = nullptr;
};

// How scores become weights: softmax over c(scale * q . k), where c(s) is tanh(s / softcap) * softcap, or s without
// cap.
struct AttendParams {
  float scale = 1.0f;
  float softcap = 0.0f;  // 0: none
  // [q_heads] or nullptr. One more logit per query head, neither scaled nor capped: it takes part in the maximum and in
  // the sum, and has no value. -infinity: as if absent.
  const float* sinks = nullptr;
};

struct KernelTable {
  const char* name;  // "scalar", "avx2", "avx512", "avx512vnni", "avx512amx", "neon", "neon-dotprod", "neon-i8mm"

  // y[m][n] = sum_k x[m][k] * w[n][k] (+ bias[n]) for all m in [0, rows) and n in [begin, end).
  // x [rows, w.cols] with x_stride floats between rows, y [rows, w.rows] with y_stride. bias may be absent.
  // scratch: at least MatMulScratchFloats(w, rows) floats, private to the call.
  void (*matmul)(const WeightMatrix& w, const FloatVector& bias, const float* x, int64_t x_stride, int64_t rows,
                 int64_t begin, int64_t end, float* y, int64_t y_stride, float* scratch);

  // A row of n activations, rounded: out has LayoutOfRoundedRow(n, numerics).bytes, 4-byte aligned at least.
  void (*round_row)(const float* x, int64_t n, Numerics numerics, uint8_t* out);

  // As matmul, with rounded rows x [rows] of w.cols values, each LayoutOfRoundedRow(w.cols, numerics).bytes long.
  // REQUIRES: HasCodes(w.format); numerics is not kF32.
  void (*matmul_codes)(const WeightMatrix& w, const FloatVector& bias, Numerics numerics, const uint8_t* x,
                       int64_t rows, int64_t begin, int64_t end, float* y, int64_t y_stride, float* scratch);

  // Row `row` of w as w.cols floats, the very bits of DecodeRow (any NaN for a NaN).
  void (*decode_row)(const WeightMatrix& w, int64_t row, float* out);

  // y = x / sqrt(mean(x^2) + epsilon) * (weight + weight_offset), the sum in float32; y may be x. weight.size = n, or
  // weight.data == nullptr: no weight, factor 1. weight_offset is 0, or 1 for weights stored as their distance from 1.
  void (*rms_norm)(const float* x, const FloatVector& weight, float weight_offset, float epsilon, int64_t n, float* y);

  // Rotates pairs (x[i], x[i + n/2]) of one head in place: RoPE in its half-split form over n = 2 * pairs values.
  // cos and sin hold n/2 values each (already scaled where the rope kind asks for it).
  void (*rope_halves)(float* x, const float* cos, const float* sin, int64_t n);
  // The same in its interleaved form: pairs (x[2i], x[2i + 1]).
  void (*rope_pairs)(float* x, const float* cos, const float* sin, int64_t n);

  // Activations of feed-forward networks. out may be gate or up (x for xielu).
  // silu(gate) * up.
  void (*swiglu)(const float* gate, const float* up, int64_t n, float* out);
  // gelu(gate) * up with gelu(g) = 0.5 g (1 + tanh(sqrt(2 / pi) (g + 0.044715 g^3))).
  void (*geglu)(const float* gate, const float* up, int64_t n, float* out);
  // g sigmoid(alpha g) (u + 1) with g = min(gate, limit), u = up clamped to [-limit, limit]. limit >= 0.
  void (*swiglu_clipped)(const float* gate, const float* up, int64_t n, float alpha, float limit, float* out);
  // xIELU (arXiv:2411.13010): x > 0: alpha_p x^2 + beta x; else (expm1(min(x, epsilon)) - x) alpha_n + beta x. The
  // alphas are those after softplus (and beta, for alpha_n). REQUIRES: epsilon <= 0.
  void (*xielu)(const float* x, int64_t n, float alpha_p, float alpha_n, float beta, float epsilon, float* out);

  // x = tanh(x / cap) * cap, cap > 0;  x *= factor.
  void (*softcap)(float* x, float cap, int64_t n);
  void (*scale)(float* x, float factor, int64_t n);

  // x[i] += y[i];  x[i] = fma(weight, y[i], x[i]).
  void (*add)(float* x, const float* y, int64_t n);
  void (*add_scaled)(float* x, float weight, const float* y, int64_t n);

  // Softmax of n values in place (max subtracted, own exp, canonical sum).
  void (*softmax)(float* x, int64_t n);

  // Attention of the query heads that share kv head `kv_head`, for one row.
  // q [q_heads, key_dim] contiguous, out [q_heads, value_dim]; params.sinks[h] belongs to q[h] and out[h]. Sees
  // positions [begin, end), end > begin. Key blocks are processed in increasing absolute order with a running maximum
  // and sum, so the result depends on params, q, the keys and values in [begin, end) and nothing else.
  // scratch: AttentionScratchFloats(key_dim, value_dim) floats.
  void (*attend)(const float* q, int q_heads, const KvView& kv, int kv_head, int64_t begin, int64_t end,
                 const AttendParams& params, float* out, float* scratch);

  // Stores a row of dim floats as row `at` of a head's part of a block. A row is rounded by itself, so it does not
  // matter when and beside which others it is stored. A group with NaN or infinity becomes NaN.
  void (*store_kv)(const float* x, int dim, const KvFormat& format, KvSide side, int at, uint8_t* head);

  // Float conversion with round-to-nearest-even (NaN stays NaN). dst/src any alignment.
  void (*store_floats)(const float* x, int64_t n, FloatType type, uint8_t* dst);
  void (*load_floats)(const uint8_t* src, FloatType type, int64_t n, float* x);

  // Index of the largest value; the lowest index wins ties; NaN never wins. n >= 1.
  int64_t (*argmax)(const float* x, int64_t n);
};

// Enough for matmul and, where there are codes, for matmul_codes.
int64_t MatMulScratchFloats(const WeightMatrix& w, int64_t rows);
int64_t AttentionScratchFloats(int key_dim, int value_dim);  // of any KvFormat

// The k largest of x in descending order (ties: lower index first), as softmax-then-top-k routers need it.
// indices and values have room for k. 1 <= k <= n.
void TopK(const float* x, int64_t n, int k, int32_t* indices, float* values);

// The table in use: the best this processor has, or the one NUNSPARK_ISA names. Chosen once.
const KernelTable& Kernels();

// Checks NUNSPARK_ISA. Errors: kInvalidArgument for an unknown name or one this processor lacks, listing what it has.
// Called once at start by the engine, before Kernels().
Status CheckKernelChoice();

// Why instructions that this processor has are not used; empty when there is nothing to say.
const std::string& KernelTrouble();

// Every table this build and processor can run, best first (tests run them all), and a lookup by name.
const std::vector<const KernelTable*>& AvailableKernels();
const KernelTable* FindKernels(std::string_view name);

}  // namespace nunspark

#endif  // NUNSPARK_KERNELS_KERNELS_H_
