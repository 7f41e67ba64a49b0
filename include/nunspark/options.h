// Options of the engine and of one generation. Defaults are the command line's.
#ifndef NUNSPARK_OPTIONS_H_
#define NUNSPARK_OPTIONS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "nunspark/numerics.h"

namespace nunspark {

// Storage of keys and values.
enum class KvType : uint8_t { kF16, kBF16, kF32 };

enum class IoChoice : uint8_t { kAuto, kUring, kPread };

// kAuto: on while measurements say that it pays.
enum class Governed : uint8_t { kAuto, kOn, kOff };

// Speculative decoding: what drafts, and how much. At most one of the three drafts; n-gram goes before EAGLE, EAGLE
// before a draft model.
struct DrafterOptions {
  bool ngram = false;  // prompt lookup
  int32_t ngram_longest = 3;
  bool ngram_adaptive = true;
  std::string eagle_dir{};      // of an EAGLE drafter
  std::string draft_model{};    // folder of a model with the same tokenizer
  int32_t tokens = 16;          // of a draft, at most
  std::vector<int32_t> tree{};  // children per node, level by level, instead of a chain
  bool adaptive = true;         // lengths by what pays, down to none; else always all
  int32_t accept_top_k = 1;     // 1: the output is that of plain decoding; more: also other likely tokens

  bool any() const { return ngram || !eagle_dir.empty() || !draft_model.empty(); }
};

struct EngineOptions {
  std::optional<int64_t> budget_bytes = std::nullopt;  // resident weights: cores + expert slots + ring; empty = auto
  std::optional<int64_t> memory_bytes = std::nullopt;  // the whole process instead: the budget follows from it
  std::optional<double> expert_cache_fraction = std::nullopt;  // expert share of the budget; empty = chosen by the plan
  int64_t context = 4096;                                      // positions the KV cache has room for, per sequence
  int64_t context_limit = 0;  // what contexts may be at most; 0 = what the model says it was made for
  int32_t max_sequences = 1;  // that a Scheduler runs together
  int64_t kv_tokens = 0;      // positions of all of them; 0 = context for each
  // Sequences that begin like earlier ones go on from what was computed then, as long as it is in memory.
  bool reuse_prefixes = false;
  int64_t prefix_tokens = 0;  // room for that, in positions, beside what running sequences leave free
  // Where it is kept from one engine to the next: read at the start, written by Engine::SavePrefixes. Empty: nowhere.
  // What is not of this model and these options is not used.
  std::string prefix_file{};
  int32_t prefill_chunk = 1024;  // prompt tokens per pass
  int threads = 0;               // 0 = all CPUs this process may use
  KvType kv = KvType::kF16;
  // 8 or 4: keys and values of layers without a window are stored as integers of so many bits, with a scale and an
  // offset for each kv_group_size elements of a head (32, 64 or 128; fewer at its end). 0: all are stored as `kv`.
  int32_t kv_bits = 0;
  int32_t kv_group_size = 64;
  std::optional<int64_t> kv_budget_bytes = std::nullopt;  // resident keys and values; empty = all
  std::string kv_spill_dir{};  // of the temporary file for the others; empty = TMPDIR, else /var/tmp
  Numerics numerics = kDefaultNumerics;
  bool prefetch = true;     // false: nothing is read ahead of need
  int32_t warm_window = 1;  // layers prefetched ahead
  // Passes of one token: the next layer's router, run on this layer's output, says which experts to read ahead.
  Governed lookahead = Governed::kAuto;
  int32_t lookahead_top = 12;    // experts that it names
  double prediction_recall = 1;  // for benchmarks: the share of its predictions that is not replaced by wrong ones
  // Passes of several tokens: what the next layers needed in the pass before is read ahead.
  Governed expert_prefetch = Governed::kAuto;
  // The experts that the last runs used most are read before anybody asks, into memory that is free, while no pass
  // runs. The engine's destructor writes down which: beside a pack, else in the user's cache folder.
  bool warm_start = false;
  IoChoice io = IoChoice::kAuto;
  bool direct_io = true;       // bypass the page cache where the file system allows it
  bool lock_memory = true;     // keep weights from being swapped out, where the system allows it
  bool give_back = true;       // slots of experts, between passes, when the system runs short of memory
  std::string mirror_dir{};    // a second copy of the model, on another drive: reads go to both
  double read_timeout_s = 30;  // a drive that does not answer for so long fails the request
  std::string io_trace{};      // diagnostics: a file that gets a line for each read request; empty = none
  std::string expert_trace{};  // a file that gets a line for each call of a layer with experts; empty = none
  DrafterOptions drafter{};
  int64_t caller_bytes = 0;  // what the caller takes beside the engine, for the plan
};

struct TokenBias {
  int32_t token = 0;
  float bias = 0;  // added to its logit; -infinity: never
};

// First the logits change: repetition_penalty over the tokens of prompt and output (positive logits divided by it,
// negative ones multiplied; CTRL, arXiv:1909.05858), presence_penalty + frequency_penalty * count over the output's
// (OpenAI), then logit_bias. temperature <= 0 then takes the largest (the lowest id wins ties). Otherwise logits /
// temperature, then top_k, typical_p (arXiv:2202.00666), top_p, min_p in this order, then one draw keyed by (seed,
// choice, position): the same seed gives the same text.
struct SamplingOptions {
  double temperature = 0;
  int32_t top_k = 0;              // 0 = off
  double top_p = 1;               // 1 = off
  double min_p = 0;               // 0 = off
  double typical_p = 1;           // 1 = off
  double repetition_penalty = 1;  // 1 = off
  double presence_penalty = 0;
  double frequency_penalty = 0;
  std::vector<TokenBias> logit_bias{};
  uint64_t seed = 0;
  uint32_t choice = 0;  // index of the answer among several to one request
};

// What an output may be, token by token: a grammar, a schema. Called by the thread that decodes.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;

  // Sets bit t % 32 of word t / 32 for every token that may come next, and clears the others. At least one may.
  virtual void Allowed(std::span<uint32_t> bits) = 0;

  // The token that came.
  virtual void Advance(int32_t token) = 0;
};

// Puts tokens into an output in place of those that were chosen: where reasoning has to end. Called by the thread that
// decodes, for each token of the output first Replace, then Advance.
class TokenOverride {
 public:
  virtual ~TokenOverride() = default;

  // The token to take where `chosen` was.
  virtual int32_t Replace(int32_t chosen) = 0;

  // The token that came.
  virtual void Advance(int32_t token) = 0;
};

struct GenerateOptions {
  int32_t max_tokens = 32;
  SamplingOptions sampling{};
  bool ignore_eos = false;
  int32_t min_tokens = 0;           // before so many, no token that ends the output is picked
  std::vector<int32_t> stop_ids{};  // end the output, beside the model's own, and whatever ignore_eos says
  int32_t logprobs = -1;            // logarithms of probabilities with each token, and of so many best ones; -1: none
  std::shared_ptr<TokenConstraint> constraint{};    // of this output alone
  std::shared_ptr<TokenOverride> token_override{};  // likewise
};

enum class FinishReason : uint8_t { kStop, kLength, kCancelled };

}  // namespace nunspark

#endif  // NUNSPARK_OPTIONS_H_
