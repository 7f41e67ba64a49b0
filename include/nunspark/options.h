// Options of the engine and of one generation. Defaults are the command line's.
#ifndef NUNSPARK_OPTIONS_H_
#define NUNSPARK_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace nunspark {

// Storage of keys and values.
enum class KvType : uint8_t { kF16, kBF16, kF32 };

// How activations enter products with weights that are integer codes times scales: as they are, or rounded to integers
// of 16 or 8 bits, with a step for every 32 of them. Weights of other encodings take them as they are.
enum class Numerics : uint8_t { kF32, kI16, kI8 };

// The most precise whose decode rate is within 10 % of the fastest, by docs/measurements/numerics.md. A constant, never
// chosen by machine: the bytes of the output depend on it.
inline constexpr Numerics kDefaultNumerics = Numerics::kI16;

enum class IoChoice : uint8_t { kAuto, kUring, kPread };

// kAuto: on while measurements say that it pays.
enum class Governed : uint8_t { kAuto, kOn, kOff };

struct EngineOptions {
  std::optional<int64_t> budget_bytes = std::nullopt;  // resident weights: cores + expert slots + ring; empty = auto
  std::optional<int64_t> memory_bytes = std::nullopt;  // the whole process instead: the budget follows from it
  std::optional<double> expert_cache_fraction = std::nullopt;  // expert share of the budget; empty = chosen by the plan
  int64_t context = 4096;                                      // positions the KV cache has room for, per sequence
  int32_t max_sequences = 1;                                   // that a GroupSession runs together
  int32_t prefill_chunk = 1024;                                // prompt tokens per pass
  int threads = 0;                                             // 0 = all CPUs this process may use
  KvType kv = KvType::kF16;
  Numerics numerics = kDefaultNumerics;
  bool prefetch = true;     // false: nothing is read ahead of need
  int32_t warm_window = 1;  // layers prefetched ahead
  // Passes of one token: the next layer's router, run on this layer's output, says which experts to read ahead.
  Governed lookahead = Governed::kAuto;
  int32_t lookahead_top = 12;    // experts that it names
  double prediction_recall = 1;  // for benchmarks: the share of its predictions that is not replaced by wrong ones
  // Passes of several tokens: what the next layers needed in the pass before is read ahead.
  Governed expert_prefetch = Governed::kAuto;
  IoChoice io = IoChoice::kAuto;
  bool direct_io = true;       // bypass the page cache where the file system allows it
  bool lock_memory = true;     // keep weights from being swapped out, where the system allows it
  bool give_back = true;       // slots of experts, between passes, when the system runs short of memory
  std::string mirror_dir{};    // a second copy of the model, on another drive: reads go to both
  double read_timeout_s = 30;  // a drive that does not answer for so long fails the request
  std::string io_trace{};      // diagnostics: a file that gets a line for each read request; empty = none
  std::string expert_trace{};  // a file that gets a line for each call of a layer with experts; empty = none
};

// temperature <= 0 is greedy (the lowest id wins ties) and ignores the rest. Otherwise logits / temperature, then
// top_k, top_p, min_p in this order, then one draw keyed by (seed, position): the same seed gives the same text.
struct SamplingOptions {
  double temperature = 0;
  int32_t top_k = 0;  // 0 = off
  double top_p = 1;   // 1 = off
  double min_p = 0;   // 0 = off
  uint64_t seed = 0;
};

struct GenerateOptions {
  int32_t max_tokens = 32;
  SamplingOptions sampling{};
  bool ignore_eos = false;
};

enum class FinishReason : uint8_t { kStop, kLength, kCancelled };

}  // namespace nunspark

#endif  // NUNSPARK_OPTIONS_H_
