// DraftNetwork: a small network that predicts the next token from the target's hidden state - an EAGLE head (Li et al.,
// arXiv:2401.15077) or a Gemma 4 assistant. One step takes a token and the hidden state before it to logits and the
// hidden state after it; a chain of steps drafts a chain of tokens.
//
// Its layers are those of models/ and its rows do not depend on each other, so many sequences, or nodes of a tree, can
// share a step. Used by one thread at a time, between the target's passes; nothing is allocated by a step.
#ifndef NUNSPARK_DECODE_DRAFT_NETWORK_H_
#define NUNSPARK_DECODE_DRAFT_NETWORK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/mapped_memory.h"
#include "base/thread_pool.h"
#include "kernels/kernels.h"
#include "kv/kv_cache.h"
#include "models/batch.h"
#include "models/model.h"
#include "models/model_layout.h"
#include "models/weight_source.h"
#include "nunspark/status.h"

namespace nunspark {

// A token whose successor is wanted.
struct DraftRow {
  int32_t token = 0;
  int32_t position = 0;      // tokens that the target has processed of the sequence; the same for a whole draft
  KvSequence* kv = nullptr;  // the target's, with that many positions; EAGLE heads need none
};

// Receives logits [vocab_size] of rows[index]; the memory is reused afterwards.
using DraftSink = std::function<void(int32_t index, const float* logits)>;

class DraftNetwork {
 public:
  // Whether the network fits the target: width, vocabulary, and the keys that an assistant borrows. `what` names its
  // files in messages. Errors: kInvalidArgument: what, expected (the target's), found.
  static Status CheckPair(const ArchSpec& spec, const HParams& hparams, const HParams& target, std::string_view what);

  // `weights` holds the network's own; `target_weights` gives rows of the target's embedding, which an assistant reads.
  // All arguments must outlive the network. REQUIRES: CheckPair; max_rows >= 1.
  // Errors: kResourceExhausted; kDataLoss for an order of tokens that is none; the weights'.
  static Result<std::unique_ptr<DraftNetwork>> Create(const ModelLayout& layout, WeightSource& weights,
                                                      const ModelLayout& target, WeightSource& target_weights,
                                                      ThreadPool& pool, int32_t max_rows, Numerics numerics);

  // Bytes that Create allocates, for the memory plan.
  static int64_t PlanBytes(const ModelLayout& layout, int threads, int32_t max_rows, Numerics numerics);

  int32_t max_rows() const { return model_->max_rows(); }
  // Resident of what it has allocated. Takes milliseconds.
  int64_t resident_bytes() const { return memory_.page_use().resident_bytes + model_->page_use().resident_bytes; }
  int64_t hidden_dim() const { return hidden_dim_; }  // the target's model_dim
  int64_t vocab_size() const { return model_->hparams().vocab_size; }

  // One step. hidden [rows, hidden_dim]: the state before each row's token - of a draft's first token the target's
  // after its final norm -, replaced by the state after it. Errors: of reading the target's embedding.
  Status Step(std::span<const DraftRow> rows, float* hidden, const DraftSink& sink);

 private:
  struct Buffers {
    float* joined = nullptr;  // [rows, 2 * hidden_dim] hidden state and embedding, in the network's order
    float* x = nullptr;       // [rows, model_dim]
    float* logits = nullptr;  // [kLogitRows, vocab]
    // With clusters of tokens:
    float* scores = nullptr;        // [centroids]
    float* token_scores = nullptr;  // [centroid_top_k * tokens of a cluster]
    float* threads = nullptr;       // a row of the head each
    std::vector<int32_t> chosen;    // [centroid_top_k]
    std::vector<float> chosen_scores;
  };

  DraftNetwork(const ModelLayout& layout, WeightSource& weights, const ModelLayout& target,
               WeightSource& target_weights, ThreadPool& pool);

  template <typename Carve>
  static void ForEachArray(const ModelLayout& layout, int threads, int64_t rows, const Carve& carve);
  Status Allocate(int32_t max_rows);
  Status ReadTokenOrder();

  Status Join(std::span<const DraftRow> rows, const float* hidden);
  void FillBatch(std::span<const DraftRow> rows);
  void Head(const float* state, int64_t rows, const DraftSink& sink);
  void ClusteredLogits(const float* state, float* logits);

  const ModelLayout& layout_;
  WeightSource& weights_;
  const ModelLayout& target_;
  WeightSource& target_weights_;
  ThreadPool& pool_;
  const KernelTable& kernels_;
  const int64_t hidden_dim_;
  WeightUse pre_projection_, final_norm_, post_projection_, embed_, centroids_;
  std::unique_ptr<Model> model_;
  MappedMemory memory_;
  Buffers buffers_;
  std::vector<int32_t> token_order_;  // [vocab] tokens cluster by cluster; empty without clusters
  Lease ends_, embed_lease_;          // held for good
  Batch batch_;
  std::vector<int32_t> tokens_;  // of a step
};

}  // namespace nunspark

#endif  // NUNSPARK_DECODE_DRAFT_NETWORK_H_
