// nunspark's library interface: open a model's files, start an engine under a memory budget, run sessions.
//
//   auto files = ModelFiles::Open("models/demo-moe-4bit");                       // check ok() after each
//   auto engine = Engine::Start(**files, {.budget_bytes = 4'000'000'000});
//   auto session = (*engine)->NewSession();
//   auto prompt = (*files)->Encode("Once upon a time");
//   auto result = (*session)->Generate(*prompt, {.max_tokens = 64}, [&](int32_t token) { ...; return true; });
#ifndef NUNSPARK_ENGINE_H_
#define NUNSPARK_ENGINE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nunspark/options.h"
#include "nunspark/scheduler.h"
#include "nunspark/session.h"
#include "nunspark/stats.h"
#include "nunspark/status.h"

namespace nunspark {

// A model on disk, understood but not loaded: configuration, tensors, tokenizer, chat template. Immutable; thread-safe.
class ModelFiles {
 public:
  virtual ~ModelFiles() = default;
  ModelFiles(const ModelFiles&) = delete;

  // `folder`: a Hugging Face or MLX checkpoint folder, or a pack.
  // Errors name the file or tensor, what was expected and what was found. A missing tokenizer is no error here.
  static Result<std::unique_ptr<ModelFiles>> Open(const std::string& folder);

  virtual const std::string& folder() const = 0;
  virtual std::string_view model_type() const = 0;
  virtual int64_t vocab_size() const = 0;
  virtual int64_t max_context() const = 0;   // as the model states it; 0 = not stated
  virtual int64_t weight_bytes() const = 0;  // of all weights that are used

  // Whether there is a tokenizer; the calls below fail with kNotFound otherwise.
  virtual bool has_tokenizer() const = 0;

  // No specials are added; special tokens spelled in the text are recognised.
  virtual Result<std::vector<int32_t>> Encode(std::string_view text) const = 0;
  // The same with the special tokens that the tokenizer puts around a text (a leading BOS), for prompts without chat
  // template. Nothing is added to a text that begins with them already.
  virtual Result<std::vector<int32_t>> EncodeWithSpecials(std::string_view text) const = 0;
  virtual Result<std::string> Decode(std::span<const int32_t> ids, bool skip_special) const = 0;

  // The model's chat template over `context_json` (an object with messages and what else the template sees; the model's
  // special tokens are filled in). Errors: kNotFound without a template; kInvalidArgument with the template's own
  // message.
  virtual Result<std::string> FormatChat(std::string_view context_json) const = 0;

  // Tokens that end a generation: generation_config.json's or config.json's, the tokenizer's own, and the well-known
  // end-of-turn specials of its vocabulary.
  virtual const std::vector<int32_t>& stop_ids() const = 0;

  // Incremental decoding of one stream of tokens; never returns half a character.
  class TextStream {
   public:
    virtual ~TextStream() = default;
    virtual std::string Push(int32_t token) = 0;
    virtual std::string Finish() = 0;
    // Whether a stop string has come: then nothing more does.
    virtual bool stopped() const = 0;
    // The string that came. REQUIRES: stopped().
    virtual const std::string& stop() const = 0;
  };
  // `stops`: strings that end the text. The text before the first is delivered, it itself is not, and what could still
  // become one is held back.
  virtual Result<std::unique_ptr<TextStream>> NewTextStream(std::vector<std::string> stops = {}) const = 0;

 private:
  friend class ModelFilesImpl;  // the only implementation: the engine reaches into it
  ModelFiles() = default;
};

// The memory plan in force, in bytes.
struct PlanSummary {
  int64_t budget = 0;  // resident weights
  std::string
      budget_bound;       // what set it: "flag"; of auto "ram", "cgroup", "available", "unknown-ram", or the ceiling's
  int64_t floor = 0;      // smallest budget the model takes
  int64_t total = 0;      // whole process
  int64_t ceiling = 0;    // what the system leaves us
  int64_t kv = 0;         // resident at most; what is beyond it is in a temporary file
  std::string kv_format;  // of layers without a window: "f16", or "kv8-g64": 8 bits in groups of 64
  int64_t drafter = 0;    // all of it
};

struct EngineStats {
  CacheStats cache;
  KvStats kv;
  int64_t prefix_lookups = 0;       // prompts looked up among earlier ones
  int64_t prefix_tokens_asked = 0;  // their tokens
  int64_t prefix_tokens_found = 0;  // of them, that did not have to be computed
  int64_t prefix_bytes = 0;         // kept now
  int64_t process_peak_bytes = 0;   // peak resident set of the process, as the system counts it
  int64_t minor_page_faults = 0;    // of the process since its start
  int64_t major_page_faults = 0;    // those that had to read from a drive
  std::vector<LayerStats> layers;   // of the model, first to last
};

// What the system says of the process's memory. It reads faster from huge pages (2 MiB) than from small ones.
struct MemoryPages {
  PageUse weights;
  PageUse kv;
  std::string refusal;       // why the system gives no huge pages; empty when it does
  int64_t locked_bytes = 0;  // of the weights' memory, that cannot be swapped out
  std::string lock_refusal;  // why that is not all; empty when it is, or was not asked for
  std::vector<MemoryPart> parts;
};

// Weights under a budget, threads, KV memory. Must not outlive its ModelFiles.
class Engine {
 public:
  virtual ~Engine() = default;

  // Makes the memory plan, reserves it and opens the weight files. Reads only what always stays resident.
  // Errors: kResourceExhausted with the numbers when the budget is below the floor or the plan beyond the ceiling.
  static Result<std::unique_ptr<Engine>> Start(const ModelFiles& files, const EngineOptions& options);

  // One at a time, of either kind.
  virtual Result<std::unique_ptr<Session>> NewSession() = 0;
  virtual Result<std::unique_ptr<Scheduler>> NewScheduler(const SchedulerOptions& options) = 0;

  virtual const PlanSummary& plan() const = 0;
  virtual EngineStats stats() const = 0;          // not while a scheduler runs: it tells them itself
  virtual MemoryPages pages() const = 0;          // now; takes milliseconds
  virtual std::string_view isa() const = 0;       // kernel table in use
  virtual std::string_view numerics() const = 0;  // in use; "f32" for a model without integer codes
  virtual int threads() const = 0;
  // Why what EngineOptions::prefix_file held was not used; empty: it was, or there is none.
  virtual std::string_view prefix_note() const = 0;
  // Writes EngineOptions::prefix_file, if there is one. Not while a session or scheduler runs.
  virtual Status SavePrefixes() const = 0;
  // Why the file of EngineOptions::warm_start was not used, or this run's cannot be kept; else empty.
  virtual std::string_view warm_start_note() const = 0;
  virtual std::string io_description() const = 0;  // "io_uring+O_DIRECT", and why not, where it is something less
};

// Three lines: "nunspark 0.1.0", "compiler: GCC 12.2.0", "instruction sets: avx512, avx2, scalar" (those that this
// build has and this processor can run, best first).
std::string VersionText();

}  // namespace nunspark

#endif  // NUNSPARK_ENGINE_H_
