// Model: the forward pass of one model over any Batch.
#ifndef NUNSPARK_MODELS_MODEL_H_
#define NUNSPARK_MODELS_MODEL_H_

#include <cstdint>
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
  // `layout` and `pool` must outlive the model. REQUIRES: max_rows >= 1.
  // Errors: kResourceExhausted when the activations do not fit in memory.
  static Result<std::unique_ptr<Model>> Create(const ModelLayout& layout, ThreadPool& pool, int32_t max_rows);
  ~Model();

  // Bytes that Create allocates, for the memory plan.
  static int64_t ScratchBytes(const ModelLayout& layout, int threads, int32_t max_rows);

  // KV shapes of the layers.
  static std::vector<KvLayerShape> KvShapes(const HParams& hparams);

  int32_t max_rows() const { return max_rows_; }
  const HParams& hparams() const { return layout_.hparams; }

  // Runs all layers over the batch, appends to its sequences' KV (which must have room reserved), and hands the wanted
  // logits to `sink`. On an error the stored lengths are unchanged.
  Status Forward(const Batch& batch, WeightSource& weights, const LogitsSink& sink);

  // The same in parts, so that a pass can be split over hosts: hidden in -> hidden out, x [rows, model_dim].
  Status Embed(const Batch& batch, WeightSource& weights, float* x);
  Status Layers(int32_t begin, int32_t end, const Batch& batch, WeightSource& weights, float* x);
  Status Head(const Batch& batch, WeightSource& weights, const float* x, const LogitsSink& sink);

 private:
  struct Scratch;
  Model(const ModelLayout& layout, ThreadPool& pool, int32_t max_rows);

  Status Layer(const LayerPlan& plan, const Batch& batch, WeightSource& weights, float* x);
  Status PreNormLayer(const LayerPlan& plan, const Batch& batch, WeightSource& weights, float* x);
  void Attention(const LayerPlan& plan, const Lease& core, const Batch& batch, float* x);
  void FfnDense(const LayerPlan& plan, const Lease& core, int64_t rows, float* x);
  Status FfnMoe(const LayerPlan& plan, const Lease& core, int64_t rows, WeightSource& weights, float* x);

  void Route(const LayerPlan& plan, const Lease& core, int64_t rows);
  void RunExpert(const LayerPlan& plan, const Lease& expert);
  void Combine(int64_t rows, float* x);

  Status CheckFinite(const Batch& batch, int32_t first, int32_t count) const;
  void FillRope(const Batch& batch);
  void Norm(const WeightUse& weight, const Lease& lease, const float* x, int64_t rows, float* out);
  void Rotate(int64_t rows, int64_t heads, float* heads_data);
  void Project(const WeightUse& weight, const Lease& lease, const float* x, int64_t rows, float* y);
  void Attend(const LayerPlan& plan, const Batch& batch);
  void Add(const float* y, int64_t rows, float* x);

  const ModelLayout& layout_;
  ThreadPool& pool_;
  const int32_t max_rows_;
  const KernelTable& kernels_;
  // The kernels of the spec's choices.
  decltype(KernelTable::rms_norm) norm_;
  decltype(KernelTable::rope_halves) rotate_;
  decltype(KernelTable::swiglu) activate_;
  RopeTable rope_;
  std::vector<LayerPlan> plans_;
  WeightUse final_norm_, head_;
  std::unique_ptr<Scratch> scratch_;
};

}  // namespace nunspark

#endif  // NUNSPARK_MODELS_MODEL_H_
