// Model: the forward pass of one model over any Batch.
#ifndef NUNSPARK_MODELS_MODEL_H_
#define NUNSPARK_MODELS_MODEL_H_

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/kernels.h"
#include "models/batch.h"
#include "models/layer_plan.h"
#include "models/model_layout.h"
#include "models/rope.h"
#include "models/weight_source.h"
#include "nunspark/status.h"

namespace nunspark {

// Owns the activations for up to `max_rows` rows; nothing is allocated by a pass. Used by one thread at a time.
// Results do not depend on how rows are divided into batches, on threads or on the weight source.
class Model {
 public:
  // `layout` and `pool` must outlive the model. `borrowed_kv` [layers]: of a drafter that attends to another model's
  // keys, whose they are, as indices into that model's KvShapes. REQUIRES: max_rows >= 1.
  // Errors: kResourceExhausted when the activations do not fit in memory.
  static Result<std::unique_ptr<Model>> Create(const ModelLayout& layout, ThreadPool& pool, int32_t max_rows,
                                               Numerics numerics, std::span<const int32_t> borrowed_kv = {});
  ~Model();

  // Bytes that Create allocates, for the memory plan.
  static int64_t ScratchBytes(const ModelLayout& layout, int threads, int32_t max_rows, Numerics numerics);

  // What runs where `numerics` is asked for: kF32 for a model without integer codes.
  static Numerics NumericsOf(const ModelLayout& layout, Numerics numerics);

  // KV shapes of the layers. `format` is that of layers that see all positions; with a window they keep its float type,
  // since they are small.
  static std::vector<KvLayerShape> KvShapes(const HParams& hparams, const KvFormat& format = {});

  // Whose keys and values each layer attends to, as indices into KvShapes. REQUIRES: no drafter's model.
  static std::vector<int32_t> KvOrder(const HParams& hparams);

  int32_t max_rows() const { return max_rows_; }
  Numerics numerics() const { return numerics_; }  // in use
  const HParams& hparams() const { return layout_.hparams; }

  // Runs all layers over the batch, appends to its sequences' KV (which must have room reserved), and hands the wanted
  // logits to `sink`. On an error the stored lengths are unchanged. REQUIRES: no drafter's model.
  Status Forward(const Batch& batch, WeightSource& weights, const LogitsSink& sink);

  // The same in parts, so that a pass can be split over hosts: hidden in -> hidden out, x [rows, model_dim].
  Status Embed(const Batch& batch, WeightSource& weights, float* x);
  Status Layers(int32_t begin, int32_t end, const Batch& batch, WeightSource& weights, float* x);
  Status Head(const Batch& batch, WeightSource& weights, const float* x, const LogitsSink& sink);

  // Steps on x [rows, weight.cols], for what a drafter has in place of Embed and Head. out [rows, weight.rows] of a
  // product; of a norm as x, and may be x. REQUIRES: rows <= max_rows.
  void Multiply(const WeightUse& weight, const Lease& lease, const float* x, int64_t rows, float* out);
  void Norm(const WeightUse& weight, const Lease& lease, const float* x, int64_t rows, float* out);

  // Of the activations' memory. Takes milliseconds.
  PageUse page_use() const;

 private:
  struct Scratch;
  struct Input;
  struct Product;
  Model(const ModelLayout& layout, ThreadPool& pool, int32_t max_rows, Numerics numerics);

  Status Layer(const LayerPlan& plan, const Batch& batch, WeightSource& weights, float* x);
  Status AwaitKv(const LayerPlan& plan, const Batch& batch);
  void AddBranch(const WeightUse& post_norm, const Lease& core, int64_t rows, float* x);

  // Attention of a layer over `in` [rows, model_dim], into scratch's branch (model_attention.cc).
  void Attention(const LayerPlan& plan, const Lease& core, const Batch& batch, Input in);
  void GroupedAttention(const LayerPlan& plan, const Lease& core, const Batch& batch, Input& in);
  void SingleKeyAttention(const LayerPlan& plan, const Lease& core, Input& in);
  void LatentAttention(const LayerPlan& plan, const Lease& core, const Batch& batch, Input& in);
  void AbsorbQuery(const LayerPlan& plan, const Lease& core, int64_t rows);
  void AbsorbRows(const WeightMatrix& keys, int64_t rows, const float* query, float* out, float* decoded) const;
  void ExpandValues(const LayerPlan& plan, const Lease& core, int64_t rows);
  void NormHeads(const LayerPlan& plan, const Lease& core, int64_t rows);
  void Attend(const LayerPlan& plan, const Lease& core, const Batch& batch, const float* query);
  void Rotate(const LayerPlan& plan, int64_t rows, int64_t heads, int64_t head_stride, int64_t first, float* data);

  // Feed-forward networks over `in`, into scratch's branch (model_ffn.cc).
  Status Ffn(const LayerPlan& plan, const Lease& core, int64_t rows, WeightSource& weights, const float* x);
  void FfnDense(const LayerPlan& plan, const Lease& core, Input& in);
  Status FfnMoe(const LayerPlan& plan, WeightSource& weights, Input& in);
  void Activate(const LayerPlan& plan, const Lease& core, int64_t count);
  Input RouterInput(const LayerPlan& plan, const Lease& core, int64_t rows, const float* x);
  void Route(const LayerPlan& plan, const Lease& core, Input& in);
  void PredictExperts(const LayerPlan& plan, WeightSource& weights, const float* x);
  void ChooseExperts(const LayerPlan& plan, const Lease& core, int64_t rows);
  void GroupByExpert(const LayerPlan& plan, int64_t rows);
  Status RunExperts(const LayerPlan& plan, std::span<const Lease> experts, WeightSource& weights, Input& in);
  void GatherRows(const LayerPlan& plan, std::span<const Lease> experts, Input& in);
  void ActivateRows(const LayerPlan& plan, const Lease& core, int64_t rows, int64_t width, const WeightUse& down);
  void Combine(int64_t rows, float* out);
  void AddPerLayerInput(const LayerPlan& plan, const Lease& core, int64_t rows, float* x);

  Status EmbedPerLayer(const Batch& batch, WeightSource& weights, const float* x);
  Status CheckFinite(const Batch& batch, int32_t first, int32_t count) const;
  void FillRope(const Batch& batch);
  const float* NormOr(const WeightUse& weight, const Lease& lease, const float* x, int64_t rows);
  void NormRows(const FloatVector& weight, int64_t size, double epsilon, const float* x, int64_t rows, float* out);
  void Project(std::initializer_list<Product> products, const Lease& lease, Input& in);
  void MultiplyRange(const WeightUse& weight, const Lease& lease, const Input& in, int64_t begin, int64_t end, float* y,
                     int thread) const;
  void RoundRows(Input& in, int64_t cols);
  // Whether the weight's inputs enter rounded.
  bool Rounds(const WeightUse& weight) const { return numerics_ != Numerics::kF32 && HasCodes(weight.format); }

  const ModelLayout& layout_;
  ThreadPool& pool_;
  const int32_t max_rows_;
  const KernelTable& kernels_;
  const Numerics numerics_;
  decltype(KernelTable::rope_halves) rotate_;  // of the model's RoPE form
  std::vector<RopeTable> ropes_;
  std::vector<LayerPlan> plans_;
  WeightUse final_norm_, head_, per_layer_model_projection_, per_layer_projection_norm_;
  std::unique_ptr<Scratch> scratch_;
};

}  // namespace nunspark

#endif  // NUNSPARK_MODELS_MODEL_H_
