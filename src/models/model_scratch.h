// The activations of one pass. Private to models.
#ifndef NUNSPARK_MODELS_MODEL_SCRATCH_H_
#define NUNSPARK_MODELS_MODEL_SCRATCH_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/mapped_memory.h"
#include "models/model.h"
#include "models/model_layout.h"

namespace nunspark {

// Rows whose logits are computed together: the head is read once for them, and their logits fit in a few MB.
inline constexpr int32_t kHeadRows = 8;

// Outputs are handed to threads in multiples of this many (a cache line of floats).
inline constexpr int64_t kOutputGrain = 16;

// The rows that enter products, and where their rounded form goes when it is first needed. Rounding another input into
// the same memory ends the life of this one.
struct Model::Input {
  const float* x;
  int64_t rows;
  uint8_t* rounded;
  bool is_rounded = false;
};

// y [rows, weight.rows] = the input's rows times the weight.
struct Model::Product {
  const WeightUse& weight;
  float* y;
};

// All arrays are carved from one mapping, 64-byte aligned. The comment says what an array holds while a layer runs.
struct Model::Scratch {
  MappedMemory memory;
  float* x = nullptr;         // [rows, model_dim] the residual stream
  float* normed = nullptr;    // [rows, model_dim] a block's input
  float* branch = nullptr;    // [rows, model_dim] a block's output, before it joins the stream
  float* query = nullptr;     // [rows, heads * head_dim]; latent attention: later the values per head
  float* key = nullptr;       // [rows, kv_heads * head_dim] or [rows, kv_rank + rope]
  float* value = nullptr;     // as key; or [rows, query_rank]
  float* absorbed = nullptr;  // latent attention: [rows, heads * (kv_rank + rope)]
  float* attended = nullptr;  // [rows, heads * value dim] or [rows, heads * kv_rank]
  float* gate = nullptr;      // [rows, ffn]
  float* up = nullptr;
  float* routed = nullptr;              // experts: [rows, model_dim] their input, where it is not `normed`
  float* gathered = nullptr;            // [rows, model_dim] the rows of one expert
  float* parts = nullptr;               // [rows * experts_per_token, model_dim] of the slots, by their places
  float* router = nullptr;              // [rows, experts]
  float* per_layer = nullptr;           // per-layer inputs [rows, layers * per_layer_dim]
  float* projected = nullptr;           // the same shape, while they are made
  float* logits = nullptr;              // [kHeadRows, vocab]
  float* sinks = nullptr;               // [heads]
  uint8_t* rounded = nullptr;           // [rows] of the widest input (kernels/numerics.h)
  uint8_t* gathered_rounded = nullptr;  // the same of one expert's rows
  float* threads = nullptr;             // per_thread floats each
  int64_t per_thread = 0;
  std::vector<float*> cos, sin;  // by rope: [rows, pairs]

  // Routing of one layer's rows. Expert e's rows are slots[starts[e] .. starts[e + 1]); a slot is row * k + rank.
  struct Routing {
    std::vector<int32_t> experts;     // [rows * k]
    std::vector<float> weights;       // [rows * k]
    std::vector<int32_t> starts;      // [experts + 1]
    std::vector<int32_t> slots;       // [rows * k]
    std::vector<int32_t> places;      // [rows * k] where a slot is among `slots`
    std::vector<PieceId> wanted;      // pieces of the layer that still have to run, by the last row that uses them
    std::vector<int32_t> last_rows;   // [wanted] as announced, and
    std::vector<int32_t> row_counts;  // [wanted]
    std::vector<Lease> ready;         // those that run together
    std::vector<int32_t> predicted;   // [experts] the next layer's, the most probable first
    std::vector<float> scores;        // [experts] theirs
    std::vector<int64_t> first_rows;  // [ready + 1], where the rows of each begin among the gathered ones

    std::span<const int32_t> SlotsOf(int32_t expert) const {
      const size_t begin = static_cast<size_t>(starts[static_cast<size_t>(expert)]);
      return {slots.data() + begin, static_cast<size_t>(starts[static_cast<size_t>(expert) + 1]) - begin};
    }
  };
  Routing routing;

  float* thread(int index) const { return threads + per_thread * index; }

  // The one place that says what a pass needs: calls carve(member, floats) for every array, in the order of memory.
  template <typename Carve>
  static void ForEachArray(const ModelLayout& layout, int64_t rows, const Carve& carve);

  static int64_t PerThreadFloats(const ModelLayout& layout, int64_t rows);
  static int64_t RoundedRowFloats(const ModelLayout& layout, Numerics numerics);
  static int64_t TotalFloats(const ModelLayout& layout, int threads, int64_t rows, Numerics numerics);
  static int64_t RoutingBytes(const HParams& h, int64_t rows);

  Status Allocate(const ModelLayout& layout, int thread_count, int64_t rows, Numerics numerics);
};

}  // namespace nunspark

#endif  // NUNSPARK_MODELS_MODEL_SCRATCH_H_
