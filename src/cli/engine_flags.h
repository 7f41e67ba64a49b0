// Flags that every verb which runs a model shares, and what they become.
#ifndef NUNSPARK_CLI_ENGINE_FLAGS_H_
#define NUNSPARK_CLI_ENGINE_FLAGS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "kernels/numerics.h"
#include "nunspark/engine.h"
#include "nunspark/options.h"
#include "nunspark/status.h"

namespace nunspark::cli {

struct EngineFlags {
  std::string budget = "auto";
  std::string memory;
  int64_t context = 0;
  std::string kv = "f16";
  int32_t kv_bits = 0, kv_group_size = 64;
  std::string kv_budget = "1TB";
  std::string kv_spill_dir;
  std::string numerics{NumericsName(kDefaultNumerics)};
  std::string io = "auto";
  int threads = 0;
  int64_t prefill_chunk = 1024;
  std::optional<double> expert_cache_frac;
  bool no_prefetch = false;
  int64_t warm_window = 1;
  bool no_direct_io = false;
  std::string mirror;
  double read_timeout = 30;
  bool no_give_back = false;
  bool warm_start = false, no_warm_start = false;
  std::string io_trace;
  // Of the original.
  int64_t io_threads = 1, eval_window = 1;
  bool lookahead = false, no_lookahead = false, expert_prefetch = false, no_expert_prefetch = false;
  bool no_wire = false, compact_scatter = false;
};

void AddEngineFlags(CLI::App& verb, EngineFlags& flags);
// For verbs whose sequences may be as long as the user says.
void AddContextFlag(CLI::App& verb, EngineFlags& flags);
// Those of them that say how much memory there is and what keys and values take; AddEngineFlags includes them.
void AddMemoryFlags(CLI::App& verb, EngineFlags& flags);

// Errors: kInvalidArgument naming the flag. `context` is set by the verb.
Result<EngineOptions> MakeEngineOptions(const EngineFlags& flags);

// Errors: kInvalidArgument naming the flag.
Result<int64_t> ParseSizeFlag(std::string_view flag, const std::string& text);

// Positions that plans are made for where nothing is said.
inline constexpr int64_t kPlannedContext = 4096;

// Positions to plan for: --context, else `usual`, or what the model was made for if that is less.
int64_t ContextOf(const EngineFlags& flags, const ModelFiles& files, int64_t usual);

// Says on standard error when --context goes beyond what the model was made for.
void WarnOfContext(int64_t context, const ModelFiles& files);

// Says on standard error why what --prefix-file names is not used, if it is not.
void NoteUnusedPrefixes(const Engine& engine, const std::string& prefix_file);

// A prompt as the verbs take it.
struct PromptFlags {
  std::string text;
  std::string file;
  std::string ids;
  std::string ids_file;
  bool text_given = false;

  bool given() const { return text_given || !file.empty() || !ids.empty() || !ids_file.empty(); }
};

void AddPromptIdFlags(CLI::App& verb, PromptFlags& flags);

// "1, 2,3" or lines of ids. Errors: kInvalidArgument naming the bad item.
Result<std::vector<int32_t>> ParseTokenIds(const std::string& text, const std::string& what);

// The ids of --prompt-ids or --prompt-ids-file. Errors: as above.
Result<std::vector<int32_t>> ReadPromptIds(const PromptFlags& flags);

}  // namespace nunspark::cli

#endif  // NUNSPARK_CLI_ENGINE_FLAGS_H_
