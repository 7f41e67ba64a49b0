#include "cli/engine_flags.h"

#include <algorithm>
#include <charconv>
#include <cstdio>

#include <fmt/format.h>

#include "base/ascii.h"
#include "base/in_range.h"
#include "base/size.h"
#include "io/file.h"

namespace nunspark::cli {
namespace {

template <typename T>
struct Choice {
  std::string_view name;
  T value;
};

constexpr Choice<KvType> kKvTypes[] = {{"f16", KvType::kF16}, {"bf16", KvType::kBF16}, {"f32", KvType::kF32}};
constexpr Choice<IoChoice> kIoChoices[] = {
    {"auto", IoChoice::kAuto}, {"uring", IoChoice::kUring}, {"pread", IoChoice::kPread}};

template <typename T, size_t kCount>
Result<T> Choose(const Choice<T> (&choices)[kCount], const std::string& flag, const std::string& text) {
  std::string names;
  for (const Choice<T>& choice : choices) {
    if (choice.name == text) return choice.value;
    names += (names.empty() ? "" : ", ") + std::string(choice.name);
  }
  return InvalidArgumentError(fmt::format("{}: '{}' is not one of {}", flag, text, names));
}

Governed GovernedBy(bool on, bool off) { return on ? Governed::kOn : off ? Governed::kOff : Governed::kAuto; }

}  // namespace

void AddMemoryFlags(CLI::App& verb, EngineFlags& flags) {
  verb.add_option("--budget", flags.budget, "memory for resident weights: a size (6GB) or auto")->capture_default_str();
  verb.add_option("--memory", flags.memory, "memory for the whole process instead: weights get what the rest leaves");
  verb.add_option("--kv", flags.kv, "storage of keys and values: f16, bf16, f32")->capture_default_str();
  verb.add_option("--kv-bits", flags.kv_bits,
                  "8 or 4: keys and values of layers without a sliding window as integers of so many bits; 0 = off")
      ->capture_default_str();
  verb.add_option("--kv-group-size", flags.kv_group_size,
                  "with --kv-bits: elements of a head that share a scale: 32, 64 or 128")
      ->capture_default_str();
  verb.add_option("--kv-budget", flags.kv_budget,
                  "memory for keys and values; what is beyond it goes to a temporary file")
      ->capture_default_str();
}

void AddContextFlag(CLI::App& verb, EngineFlags& flags) {
  verb.add_option("--context", flags.context,
                  "positions a sequence may have, also beyond what the model was made for; 0 = what that is")
      ->capture_default_str();
}

void AddEngineFlags(CLI::App& verb, EngineFlags& flags) {
  AddMemoryFlags(verb, flags);
  verb.add_option("--kv-spill-dir", flags.kv_spill_dir, "folder of that file; else TMPDIR, or /var/tmp");
  verb.add_option("--numerics", flags.numerics, "how activations meet integer weights: f32, or rounded to i16 or i8")
      ->capture_default_str();
  verb.add_option("--threads", flags.threads, "compute threads; 0 = all CPUs this process may use")
      ->capture_default_str();
  verb.add_option("--prefill-chunk", flags.prefill_chunk,
                  "prompt tokens per pass; fewer where a limit of memory makes them crowd out weights")
      ->capture_default_str();
  verb.add_option("--expert-cache-frac", flags.expert_cache_frac,
                  "expert share of the budget; chosen by the plan if not given");
  verb.add_flag("--no-prefetch", flags.no_prefetch, "read nothing ahead of need");
  verb.add_option("--warm-window", flags.warm_window, "layers prefetched ahead")->capture_default_str();
  verb.add_option("--io", flags.io, "how to read: auto, uring, pread")->capture_default_str();
  verb.add_flag("--no-direct-io", flags.no_direct_io, "read through the page cache");
  verb.add_option("--mirror", flags.mirror, "a second copy of the model, on another drive: reads go to both");
  verb.add_option("--read-timeout", flags.read_timeout,
                  "seconds after which a read that the drive does not answer fails the request")
      ->capture_default_str();
  verb.add_flag("--no-give-back", flags.no_give_back,
                "keep the memory for experts when the system runs short of it; else some is given back");
  CLI::Option* const warm_start =
      verb.add_flag("--warm-start", flags.warm_start,
                    "read the experts that the last runs used most while nobody waits, and keep for the next run which "
                    "they are; what serve does anyway");
  verb.add_flag("--no-warm-start", flags.no_warm_start, "never do that")->excludes(warm_start);
  verb.add_option("--io-trace", flags.io_trace, "write a line for each read request to this file")
      ->group("Diagnostics");
  const char* const kGroup = "Of the original";
  verb.add_option("--io-threads", flags.io_threads, "extra page-cache readers: changes nothing, reads go around it")
      ->capture_default_str()
      ->group(kGroup);
  CLI::Option* const lookahead =
      verb.add_flag("--lookahead", flags.lookahead, "predict the next layer's experts always; else while it pays")
          ->group(kGroup);
  verb.add_flag("--no-lookahead", flags.no_lookahead, "never predict the next layer's experts")
      ->group(kGroup)
      ->excludes(lookahead);
  CLI::Option* const prefetch =
      verb.add_flag(
              "--expert-prefetch", flags.expert_prefetch,
              "read ahead what the next layers of a prompt chunk needed in the one before, always; else while it pays")
          ->group(kGroup);
  verb.add_flag("--no-expert-prefetch", flags.no_expert_prefetch, "never do that")->group(kGroup)->excludes(prefetch);
  verb.add_flag("--no-wire", flags.no_wire,
                "let weights be swapped out; else they are locked in memory where that is allowed")
      ->group(kGroup);
  verb.add_flag("--compact-scatter", flags.compact_scatter, "changes nothing: only fired experts are ever read")
      ->group(kGroup);
  verb.add_option("--eval-window", flags.eval_window, "changes nothing: layers are not synchronised here")
      ->capture_default_str()
      ->group(kGroup);
}

Result<EngineOptions> MakeEngineOptions(const EngineFlags& flags) {
  EngineOptions options;
  if (AsciiLower(AsciiTrim(flags.budget)) != "auto") {
    ASSIGN_OR_RETURN(options.budget_bytes, ParseSizeFlag("--budget", flags.budget));
  }
  if (!flags.memory.empty()) {
    ASSIGN_OR_RETURN(options.memory_bytes, ParseSizeFlag("--memory", flags.memory));
  }
  ASSIGN_OR_RETURN(options.kv_budget_bytes, ParseSizeFlag("--kv-budget", flags.kv_budget));
  options.kv_spill_dir = flags.kv_spill_dir;
  ASSIGN_OR_RETURN(options.kv, Choose(kKvTypes, "--kv", flags.kv));
  options.kv_bits = flags.kv_bits;
  options.kv_group_size = flags.kv_group_size;
  ASSIGN_OR_RETURN(options.io, Choose(kIoChoices, "--io", flags.io));
  const std::optional<Numerics> numerics = FindNumerics(flags.numerics);
  if (!numerics) {
    return InvalidArgumentError(fmt::format("--numerics: '{}' is not one of f32, i16, i8", flags.numerics));
  }
  options.numerics = *numerics;
  ASSIGN_OR_RETURN(options.prefill_chunk, InRange("--prefill-chunk", flags.prefill_chunk, 1, 65536));
  ASSIGN_OR_RETURN(options.warm_window, InRange("--warm-window", flags.warm_window, 0, 1000));
  if (flags.context < 0) {
    return InvalidArgumentError(fmt::format("--context must be at least 0, found {}", flags.context));
  }
  options.context_limit = flags.context;
  options.threads = flags.threads;
  options.expert_cache_fraction = flags.expert_cache_frac;
  options.prefetch = !flags.no_prefetch;
  options.lookahead = GovernedBy(flags.lookahead, flags.no_lookahead);
  options.expert_prefetch = GovernedBy(flags.expert_prefetch, flags.no_expert_prefetch);
  options.direct_io = !flags.no_direct_io;
  options.lock_memory = !flags.no_wire;
  options.mirror_dir = flags.mirror;
  options.read_timeout_s = flags.read_timeout;
  options.give_back = !flags.no_give_back;
  options.warm_start = flags.warm_start;
  options.io_trace = flags.io_trace;
  return options;
}

Result<int64_t> ParseSizeFlag(std::string_view flag, const std::string& text) {
  Result<int64_t> bytes = ParseSize(text);
  return bytes.ok() ? bytes : bytes.status().WithContext(flag);
}

int64_t ContextOf(const EngineFlags& flags, const ModelFiles& files, int64_t usual) {
  if (flags.context > 0) return flags.context;
  return files.max_context() > 0 ? std::min(files.max_context(), usual) : usual;
}

void WarnOfContext(int64_t context, const ModelFiles& files) {
  if (files.max_context() == 0 || context <= files.max_context()) return;
  std::fprintf(stderr, "Note: --context %lld goes beyond the %lld positions that this model was made for\n",
               static_cast<long long>(context), static_cast<long long>(files.max_context()));
}

void NoteUnusedPrefixes(const Engine& engine, const std::string& prefix_file) {
  if (engine.prefix_note().empty()) return;
  std::fprintf(stderr, "Note: %s is not used and will be replaced (%s)\n", prefix_file.c_str(),
               std::string(engine.prefix_note()).c_str());
}

void AddPromptIdFlags(CLI::App& verb, PromptFlags& flags) {
  verb.add_option("--prompt-ids", flags.ids, "token ids, separated by commas; no template");
  verb.add_option("--prompt-ids-file", flags.ids_file, "file of token ids, separated by commas, spaces or lines");
}

Result<std::vector<int32_t>> ParseTokenIds(const std::string& text, const std::string& what) {
  std::vector<int32_t> ids;
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto separator = [](char c) { return IsAsciiSpace(c) || c == ',' || c == '[' || c == ']'; };
  while (true) {
    while (at < end && separator(*at)) ++at;
    if (at == end) break;
    int32_t id = 0;
    const auto [next, error] = std::from_chars(at, end, id);
    if (error != std::errc() || id < 0 || (next < end && !separator(*next))) {
      const char* stop = at;
      while (stop < end && !separator(*stop) && stop - at < 40) ++stop;
      return InvalidArgumentError(fmt::format("{}: '{}' is not a token id", what, std::string(at, stop)));
    }
    ids.push_back(id);
    at = next;
  }
  if (ids.empty()) return InvalidArgumentError(fmt::format("{}: no token ids found", what));
  return ids;
}

Result<std::vector<int32_t>> ReadPromptIds(const PromptFlags& flags) {
  if (flags.ids_file.empty()) return ParseTokenIds(flags.ids, "--prompt-ids");
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(flags.ids_file));
  return ParseTokenIds(text, flags.ids_file);
}

}  // namespace nunspark::cli
