#include "cli/run_report.h"

#include <algorithm>
#include <functional>

#include <fmt/format.h>

#include "base/json.h"
#include "base/size.h"
#include "engine/drive_probe.h"

namespace nunspark::cli {
namespace {

// Small enough to stay inside the plan's reserve.
constexpr ProbeOptions kProbe{.max_bytes = 64 << 20, .max_seconds = 0.1, .request_bytes = 256 << 10, .in_flight = 6};

// Shares of a run's time above which that part is what bound it.
constexpr double kBoundByDrive = 0.4;

struct Figures {
  double wall_s = 0;
  double tokens_per_s = 0;
  double decode_tokens_per_s = 0;
  double second_half_tokens_per_s = 0;
  double bytes_per_token = 0;
  double second_half_bytes_per_token = 0;
  double stall_share = 0;
  double bandwidth_achieved = 0;  // while at least one read was in flight
  double bandwidth_probed = 0;    // 0: could not be probed
  int64_t hits = 0, misses = 0;
  std::string bound, help;
};

std::string Rate(double bytes_per_s) {
  return bytes_per_s > 0 ? FormatSize(static_cast<int64_t>(bytes_per_s)) + "/s" : "unknown";
}

// Bytes per second of scattered reads from the model's largest file; 0 where that cannot be measured.
double ProbedRate(const RunReport& r) {
  const Result<ProbeResult> probe = ProbeDrive(LargestWeightFile(r.model_folder), r.io_choice, r.direct_io, kProbe);
  return probe.ok() ? probe->bytes_per_second : 0;
}

// What bound the steps (or the prompt, where there were none), and what would help.
void SayBound(const RunReport& r, Figures& f) {
  const CacheStats& cache = r.stats.cache;
  const PassStats& passes = cache.decode.passes > 0 ? cache.decode : cache.prompt;
  const double stalled = Ratio(static_cast<double>(passes.stall_us), static_cast<double>(passes.wall_us));
  const std::string stalled_text = fmt::format("{:.0f} % of a step stalled", stalled * 100);
  if (stalled <= kBoundByDrive) {
    f.bound = fmt::format("compute: {}", stalled_text);
    f.help = "more cores, or weights of fewer bits; more memory or a faster drive would change little";
    return;
  }
  const std::string share = f.bandwidth_probed > 0 ? fmt::format("{:.0f} % of probed {}",
                                                                 Ratio(f.bandwidth_achieved, f.bandwidth_probed) * 100,
                                                                 Rate(f.bandwidth_probed))
                                                   : std::string("its rate is unknown");
  f.bound = fmt::format("drive: {}; {}", share, stalled_text);
  const KindStats& expert = cache.expert;
  f.help = "a larger --budget, a faster drive";
  if (expert.misses > 0) {
    f.help +=
        fmt::format("; {:.0f} % of the experts were in memory, `nunspark plan` says what more would bring",
                    100 * Ratio(static_cast<double>(expert.hits), static_cast<double>(expert.hits + expert.misses)));
  }
}

Figures Compute(const RunReport& r) {
  Figures f;
  const CacheStats& cache = r.stats.cache;
  const double tokens = static_cast<double>(r.result.ids.size());
  f.wall_s = r.result.prompt_s + r.result.decode_s;
  f.tokens_per_s = Ratio(tokens, f.wall_s);
  f.decode_tokens_per_s = Ratio(tokens - 1, r.result.decode_s);
  const double second_half_tokens = tokens - 1 - static_cast<double>(r.result.ids.size() / 2);
  f.second_half_tokens_per_s = Ratio(second_half_tokens, r.result.decode_second_half_s);
  f.second_half_bytes_per_token =
      Ratio(static_cast<double>(r.result.decode_second_half_bytes_read), second_half_tokens);
  f.bytes_per_token = Ratio(static_cast<double>(r.result.decode_bytes_read), std::max(1.0, tokens - 1));
  f.stall_share = std::min(1.0, Ratio(static_cast<double>(cache.stall_us) / 1e6, f.wall_s));
  f.bandwidth_achieved = Ratio(static_cast<double>(cache.bytes_read()), static_cast<double>(cache.read_us) / 1e6);
  f.bandwidth_probed = ProbedRate(r);
  f.hits = cache.dense.hits + cache.core.hits + cache.expert.hits;
  f.misses = cache.dense.misses + cache.core.misses + cache.expert.misses;
  SayBound(r, f);
  return f;
}

std::string Gigabytes(int64_t bytes) { return fmt::format("{:.2f} GB", static_cast<double>(bytes) / 1e9); }

Json KindJson(const KindStats& kind) {
  return Json::Object{
      {"hits", kind.hits}, {"misses", kind.misses}, {"coalesced", kind.coalesced}, {"bytes_read", kind.bytes_read}};
}

Json PrefetchJson(const PrefetchStats& ahead) {
  return Json::Object{{"issued", ahead.issued},
                      {"used", ahead.used},
                      {"wasted", ahead.wasted},
                      {"withdrawn", ahead.withdrawn},
                      {"issued_bytes", ahead.issued_bytes},
                      {"used_bytes", ahead.used_bytes},
                      {"wasted_bytes", ahead.wasted_bytes}};
}

std::string PartsText(const std::vector<MemoryPart>& parts) {
  std::string text;
  for (const MemoryPart& part : parts) {
    if (part.planned_bytes == 0) continue;
    text += fmt::format("{}{} {} of {}", text.empty() ? "" : ", ", part.name, FormatSize(part.peak_bytes),
                        FormatSize(part.planned_bytes));
  }
  return text;
}

Json PartsJson(const std::vector<MemoryPart>& parts) {
  Json::Object object;
  for (const MemoryPart& part : parts) {
    object.emplace_back(std::string(part.name),
                        Json::Object{{"peak_bytes", part.peak_bytes}, {"plan_bytes", part.planned_bytes}});
  }
  return object;
}

std::string PrefetchText(const PrefetchStats& ahead) {
  return fmt::format("{} issued, {} used, {} wasted", ahead.issued, ahead.used, ahead.wasted);
}

Json PassJson(const PassStats& passes) {
  return Json::Object{{"passes", passes.passes},
                      {"rows", passes.rows},
                      {"wall_us", passes.wall_us},
                      {"stall_us", passes.stall_us},
                      {"bytes_read", passes.bytes_read}};
}

Json LayersJson(const std::vector<LayerStats>& layers) {
  Json::Array array;
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    const LayerStats& l = layers[layer];
    array.push_back(Json::Object{{"layer", static_cast<int64_t>(layer)},
                                 {"hits", l.hits},
                                 {"misses", l.misses},
                                 {"coalesced", l.coalesced},
                                 {"bytes_read", l.bytes_read},
                                 {"stall_us", l.stall_us},
                                 {"prefetch_issued", l.prefetch_issued},
                                 {"prefetch_used", l.prefetch_used},
                                 {"prefetch_wasted", l.prefetch_wasted}});
  }
  return array;
}

double HugeShare(const PageUse& use) {
  return Ratio(static_cast<double>(use.huge_bytes), static_cast<double>(use.resident_bytes));
}

std::string HugeText(const PageUse& use) {
  return fmt::format("{:.0f} % of {}", HugeShare(use) * 100, FormatSize(use.resident_bytes));
}

Json::Object HugeJson(const PageUse& use) {
  return {{"bytes", use.huge_bytes}, {"resident_bytes", use.resident_bytes}, {"share", HugeShare(use)}};
}

// The original's lines for a drafter (contract 1.2), and ours.
void AddDraftLines(const RunReport& r, const Figures& f,
                   const std::function<void(std::string_view, std::string)>& line) {
  const DraftStats& d = r.result.drafts;
  const DrafterOptions& options = r.drafter;
  const double m = Multiplier(d);
  line("draft model", options.ngram ? "None" : !options.eagle_dir.empty() ? options.eagle_dir : options.draft_model);
  line("draft tokens / sweep", std::to_string(options.tokens));
  line("accept-top-k",
       fmt::format("{}  ({})", options.accept_top_k, options.accept_top_k > 1 ? "fast mode" : "lossless"));
  line("deviation rate",
       fmt::format("{:.3f}  (off-path {}/{} accepted)",
                   Ratio(static_cast<double>(d.off_path), static_cast<double>(d.accepted)), d.off_path, d.accepted));
  line("target passes (sweeps)", std::to_string(d.passes));
  line("acceptance multiplier", fmt::format("{:.2f}  (tokens {} / passes {})", m, d.tokens, d.passes));
  line("effective speed", fmt::format("{:.2f} tok/s (vs ~{:.2f} tok/s naive-stream equivalent)", f.tokens_per_s,
                                      Ratio(f.tokens_per_s, m)));
  line("drafted", fmt::format("{} tokens, {} accepted; {} to {} a pass, {} passes without", d.proposed, d.accepted,
                              d.shortest, d.longest, d.plain_passes));
  line("near ties", fmt::format("{} of {} rows", d.near_tie_rows, d.passes + d.proposed));
}

Json DraftJson(const RunReport& r) {
  const DraftStats& d = r.result.drafts;
  return Json::Object{{"passes", d.passes},         {"tokens", d.tokens},     {"proposed", d.proposed},
                      {"accepted", d.accepted},     {"off_path", d.off_path}, {"near_tie_rows", d.near_tie_rows},
                      {"shortest", d.shortest},     {"longest", d.longest},   {"plain_passes", d.plain_passes},
                      {"multiplier", Multiplier(d)}};
}

}  // namespace

double Ratio(double a, double b) { return b > 0 ? a / b : 0; }

Json IdsJson(const std::vector<int32_t>& ids) {
  Json::Array array;
  array.reserve(ids.size());
  for (const int32_t id : ids) array.emplace_back(int64_t{id});
  return array;
}

double Multiplier(const DraftStats& d) { return Ratio(static_cast<double>(d.tokens), static_cast<double>(d.passes)); }

Json LogprobsJson(const GenerateResult& result) {
  Json::Array tokens;
  const size_t best = result.ids.empty() ? 0 : result.best_logprobs.size() / result.ids.size();
  for (size_t i = 0; i < result.logprobs.size(); ++i) {
    Json::Array others;
    for (size_t n = i * best; n < (i + 1) * best; ++n) {
      const TokenLogprob& other = result.best_logprobs[n];
      others.push_back(Json::Object{{"id", int64_t{other.token}}, {"logprob", static_cast<double>(other.logprob)}});
    }
    tokens.push_back(Json::Object{{"id", int64_t{result.ids[i]}},
                                  {"logprob", static_cast<double>(result.logprobs[i])},
                                  {"best", std::move(others)}});
  }
  return tokens;
}

std::string FinishName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kCancelled: return "cancelled";
  }
  return "";
}

std::string ReportText(const RunReport& r) {
  const Figures f = Compute(r);
  std::string text = "\n--- metrics ---\n";
  const auto line = [&text](std::string_view label, const std::string& value) {
    text += fmt::format("{:<22}: {}\n", label, value);
  };
  // The original's lines, in its layout.
  line("budget", fmt::format("{}  ({})", r.budget_text, Gigabytes(r.plan.budget)));
  line("generated tokens", fmt::format("{} in {:.1f}s  ({:.2f} tok/s, prefetch={})", r.result.ids.size(), f.wall_s,
                                       f.tokens_per_s, r.prefetch ? "on" : "off"));
  line("peak unified memory", Gigabytes(r.stats.process_peak_bytes));
  line("resident weight peak",
       fmt::format("{}  (of {} model)", Gigabytes(r.stats.cache.resident_peak_bytes), Gigabytes(r.model_bytes)));
  line("cache hits / misses", fmt::format("{} / {}", f.hits, f.misses));
  line("kv-budget", fmt::format("{}  ({})", r.kv_budget_text, Gigabytes(r.kv_budget_bytes)));
  line("kv resident peak", Gigabytes(r.stats.kv.resident_peak_bytes));
  line("kv hits / misses", fmt::format("{} / {}", r.stats.kv.hits, r.stats.kv.misses));
  const CacheStats& cache = r.stats.cache;
  if (r.lookahead) {
    line("lookahead issued", std::to_string(cache.expert_prefetch.issued));
    line("lookahead skip (core)", std::to_string(cache.lookahead_skipped));
  }
  if (r.drafter.any()) AddDraftLines(r, f, line);
  // Ours.
  line("budget set by", fmt::format("{}; resident weight peak {} of {}", r.plan.budget_bound,
                                    FormatSize(r.stats.cache.resident_peak_bytes), FormatSize(r.plan.budget)));
  line("process peak / plan", fmt::format("{} / {}", FormatSize(r.stats.process_peak_bytes), FormatSize(r.plan.total)));
  line("peaks by part", PartsText(r.pages.parts));
  line("huge pages", r.pages.refusal.empty()
                         ? fmt::format("weights {}, KV {}", HugeText(r.pages.weights), HugeText(r.pages.kv))
                         : "none: " + r.pages.refusal);
  line("locked weights", r.pages.lock_refusal.empty()
                             ? FormatSize(r.pages.locked_bytes)
                             : fmt::format("{} ({})", FormatSize(r.pages.locked_bytes), r.pages.lock_refusal));
  const std::string cached =
      r.result.cached_tokens > 0 ? fmt::format(", {} of them known before", r.result.cached_tokens) : std::string();
  line("prompt", fmt::format("{} tokens in {:.2f}s{}, {} read", r.result.prompt_tokens, r.result.prompt_s, cached,
                             FormatSize(r.result.prompt_bytes_read)));
  line("decode",
       fmt::format("{:.2f} tok/s, second half {:.2f} tok/s", f.decode_tokens_per_s, f.second_half_tokens_per_s));
  line("bytes / token", FormatSize(static_cast<int64_t>(f.bytes_per_token)));
  line("prefetched layers", PrefetchText(cache.core_prefetch));
  line("prefetched experts", PrefetchText(cache.expert_prefetch));
  if (cache.warm_start.issued > 0) line("warm start", PrefetchText(cache.warm_start));
  if (!r.warm_start_note.empty()) line("no warm start", r.warm_start_note);
  if (r.stats.kv.spilled_bytes > 0) {
    line("kv spilled",
         fmt::format("{} written, {} read back, {:.2f}s waited", FormatSize(r.stats.kv.spilled_bytes),
                     FormatSize(r.stats.kv.reloaded_bytes), static_cast<double>(r.stats.kv.stall_us) / 1e6));
  }
  line("stall share", fmt::format("{:.1f} %", f.stall_share * 100));
  line("read bandwidth", fmt::format("{} achieved, {} probed", Rate(f.bandwidth_achieved), Rate(f.bandwidth_probed)));
  line("reads", r.io);
  line("page faults", fmt::format("{} with a read, {} without", r.stats.major_page_faults, r.stats.minor_page_faults));
  line("bound by", f.bound);
  line("would help", f.help);
  line("compute", fmt::format("{}, {} threads, numerics {}, kv {}", r.isa, r.threads, r.numerics, r.plan.kv_format));
  return text;
}

std::string ReportJson(const RunReport& r) {
  const Figures f = Compute(r);
  const GenerateResult& result = r.result;
  const int64_t decode_tokens = std::max<int64_t>(0, static_cast<int64_t>(result.ids.size()) - 1);
  Json report(Json::Object{
      {"text", r.text},
      {"ids", IdsJson(result.ids)},
      {"prompt_ids", IdsJson(r.prompt)},
      {"finish_reason", FinishName(result.finish_reason)},
      {"timings", Json::Object{{"load_s", r.load_s},
                               {"prompt_s", result.prompt_s},
                               {"prompt_tokens", result.prompt_tokens},
                               {"cached_tokens", result.cached_tokens},
                               {"first_token_s", result.first_token_s},
                               {"decode_s", result.decode_s},
                               {"decode_tokens", decode_tokens},
                               {"decode_tok_per_s", f.decode_tokens_per_s},
                               {"decode_tok_per_s_second_half", f.second_half_tokens_per_s}}},
      {"memory", Json::Object{{"peak_bytes", r.stats.process_peak_bytes},
                              {"plan_bytes", r.plan.total},
                              {"budget_bytes", r.plan.budget},
                              {"parts", PartsJson(r.pages.parts)},
                              {"resident_weight_peak_bytes", r.stats.cache.resident_peak_bytes},
                              {"kv_peak_bytes", r.stats.kv.resident_peak_bytes},
                              {"kv_spilled_bytes", r.stats.kv.spilled_bytes},
                              {"kv_reloaded_bytes", r.stats.kv.reloaded_bytes},
                              {"kv_format", r.plan.kv_format},
                              {"weight_huge_pages", HugeJson(r.pages.weights)},
                              {"kv_huge_pages", HugeJson(r.pages.kv)},
                              {"huge_pages_refused", r.pages.refusal},
                              {"locked_bytes", r.pages.locked_bytes},
                              {"lock_refused", r.pages.lock_refusal}}},
      {"io", Json::Object{{"bytes_read", r.stats.cache.bytes_read()},
                          {"bytes_per_token", f.bytes_per_token},
                          {"bytes_per_token_second_half", f.second_half_bytes_per_token},
                          {"decode_second_half_bytes", result.decode_second_half_bytes_read},
                          {"stall_share", f.stall_share},
                          {"bandwidth_achieved", f.bandwidth_achieved},
                          {"bandwidth_probed", f.bandwidth_probed},
                          {"backend", r.io}}},
      {"cache", Json::Object{{"dense", KindJson(r.stats.cache.dense)},
                             {"core", KindJson(r.stats.cache.core)},
                             {"expert", KindJson(r.stats.cache.expert)},
                             {"prefetch_issued", r.stats.cache.core_prefetch.issued},
                             {"prefetch_used", r.stats.cache.core_prefetch.used}}},
      {"prefetch", Json::Object{{"layers", PrefetchJson(r.stats.cache.core_prefetch)},
                                {"experts", PrefetchJson(r.stats.cache.expert_prefetch)},
                                {"warm_start", PrefetchJson(r.stats.cache.warm_start)},
                                {"lookahead_passes", r.stats.cache.lookahead_passes},
                                {"lookahead_skipped", r.stats.cache.lookahead_skipped}}},
      {"passes", Json::Object{{"decode", PassJson(r.stats.cache.decode)}, {"prompt", PassJson(r.stats.cache.prompt)}}},
      {"layers", LayersJson(r.stats.layers)},
      {"page_faults", Json::Object{{"major", r.stats.major_page_faults}, {"minor", r.stats.minor_page_faults}}},
      {"bound", f.bound},
      {"help", f.help},
      {"isa", r.isa},
      {"threads", r.threads},
      {"numerics", r.numerics}});
  if (r.drafter.any()) report.Set("drafts", DraftJson(r));
  if (!result.logprobs.empty()) report.Set("logprobs", LogprobsJson(result));
  return WriteJson(report);
}

}  // namespace nunspark::cli
