#include "nunspark/engine.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>

#include <fmt/format.h>

#include "base/check.h"
#include "base/mapped_memory.h"
#include "base/memory_reservation.h"
#include "base/thread_pool.h"
#include "decode/generate.h"
#include "decode/model_drafter.h"
#include "decode/ngram_drafter.h"
#include "decode/sequence_group.h"
#include "decode/sequence_run.h"
#include "engine/engine_plan.h"
#include "engine/model_files.h"
#include "engine/scheduler.h"
#include "engine/warm_start_file.h"
#include "formats/content_hash.h"
#include "io/file.h"
#include "io/mirror_queue.h"
#include "io/read_queue.h"
#include "io/read_trace.h"
#include "kernels/kernels.h"
#include "kv/kv_cache.h"
#include "kv/prefix_store.h"
#include "models/model.h"
#include "weights/expert_trace.h"
#include "weights/piece_cache.h"

namespace nunspark {
namespace {

IoBackend BackendOf(IoChoice choice) {
  switch (choice) {
    case IoChoice::kAuto: return IoBackend::kAuto;
    case IoChoice::kUring: return IoBackend::kUring;
    case IoChoice::kPread: return IoBackend::kPread;
  }
  return IoBackend::kAuto;
}

std::chrono::milliseconds ReadTimeoutOf(const EngineOptions& options) {
  return std::chrono::milliseconds(static_cast<int64_t>(options.read_timeout_s * 1e3));
}

PieceCacheOptions CacheOptionsOf(const EngineOptions& options) {
  return {.prefetch = options.prefetch,
          .warm_window = options.warm_window,
          .lookahead = options.lookahead,
          .lookahead_top = options.lookahead_top,
          .prediction_recall = options.prediction_recall,
          .expert_prefetch = options.expert_prefetch,
          .lock_memory = options.lock_memory,
          .give_back = options.give_back,
          .read_timeout = ReadTimeoutOf(options)};
}

// VmHWM of /proc/self/status.
int64_t PeakResidentBytes() {
  std::ifstream status("/proc/self/status");
  std::string key;
  while (status >> key) {
    int64_t kilobytes = 0;
    if (key == "VmHWM:" && status >> kilobytes) return kilobytes * 1024;
    status.ignore(4096, '\n');
  }
  return 0;
}

class SessionImpl;

// What runs one model.
struct ModelRuntime {
  std::unique_ptr<PieceCache> cache;
  std::unique_ptr<KvPool> kv_pool;
  std::unique_ptr<Model> model;
};

class EngineImpl : public Engine {
 public:
  EngineImpl(const ModelFilesImpl& files, const EngineOptions& options) : files_(files), options_(options) {}

  ~EngineImpl() override { KeepWarmStart(); }

  Status Start();

  Result<std::unique_ptr<Session>> NewSession() override;
  Result<std::unique_ptr<Scheduler>> NewScheduler(const SchedulerOptions& options) override;
  const PlanSummary& plan() const override { return summary_; }
  EngineStats stats() const override {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return {.cache = target_.cache->stats(),
            .kv = target_.kv_pool->stats(),
            .prefix_lookups = prefixes_ != nullptr ? prefixes_->stats().lookups : 0,
            .prefix_tokens_asked = prefixes_ != nullptr ? prefixes_->stats().tokens_asked : 0,
            .prefix_tokens_found = prefixes_ != nullptr ? prefixes_->stats().tokens_found : 0,
            .prefix_bytes = prefixes_ != nullptr ? prefixes_->bytes() : 0,
            .process_peak_bytes = PeakResidentBytes(),
            .minor_page_faults = usage.ru_minflt,
            .major_page_faults = usage.ru_majflt,
            .layers = target_.cache->layer_stats()};
  }
  MemoryPages pages() const override {
    return {.weights = target_.cache->page_use(),
            .kv = target_.kv_pool->page_use(),
            .refusal = HugePageRefusal(),
            .locked_bytes = target_.cache->locked().bytes,
            .lock_refusal = target_.cache->locked().refusal,
            .parts = MemoryParts()};
  }
  std::string_view isa() const override { return Kernels().name; }
  std::string_view numerics() const override { return NumericsName(target_.model->numerics()); }
  int threads() const override { return plan_.threads; }
  std::string io_description() const override { return target_.cache->io_description(); }
  std::string_view prefix_note() const override { return prefix_note_; }
  Status SavePrefixes() const override;
  std::string_view warm_start_note() const override { return warm_start_.note; }

 private:
  friend class SessionImpl;

  Result<std::unique_ptr<ReadQueue>> OpenQueue(const ReadQueueOptions& io) const;
  Result<ModelRuntime> StartModel(const ModelLayout& layout, const ModelPlan& plan, std::unique_ptr<ReadQueue> queue,
                                  PieceCacheOptions options, KvSpillOptions spill);
  Status StartDrafter();
  void StartPrefixes();
  std::vector<MemoryPart> MemoryParts() const;
  std::vector<PieceId> WarmStartPieces() const;
  void KeepWarmStart() const;
  std::string PrefixFingerprint() const;
  GroupTarget TargetOf(const std::atomic<bool>& cancelled, int32_t max_sequences);
  Status TakeTurn();
  // What a run has added to the trace of experts is written when the run ends, however it ends.
  Status FlushTrace() { return trace_ != nullptr ? trace_->Flush() : Status(); }

  const ModelFilesImpl& files_;
  const EngineOptions options_;
  EnginePlan plan_;
  MemoryReservation reservation_;
  PlanSummary summary_;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<ExpertTraceWriter> trace_;
  ModelRuntime target_;
  std::unique_ptr<PrefixStore> prefixes_;  // nullptr: none; before the pool it is of, after all that uses it
  std::string prefix_note_;
  WarmStartFile warm_start_;
  ModelRuntime draft_;        // empty unless a model drafts
  HiddenDraft hidden_draft_;  // empty unless an EAGLE head or an assistant does
  std::unique_ptr<Drafter> drafter_;
  bool in_use_ = false;
};

// A cancellation ends one call, whenever it came, and not the one after.
struct ClearOnReturn {
  explicit ClearOnReturn(std::atomic<bool>& flag_to_clear) : flag(flag_to_clear) {}
  ~ClearOnReturn() { flag.store(false, std::memory_order_relaxed); }
  std::atomic<bool>& flag;
};

class SessionImpl : public Session {
 public:
  explicit SessionImpl(EngineImpl& engine)
      : engine_(engine),
        kv_(*engine.target_.kv_pool, engine.options_.context),
        target_{.model = *engine.target_.model,
                .weights = *engine.target_.cache,
                .kv = kv_,
                .prefill_chunk = std::min(engine.options_.prefill_chunk, engine.target_.model->max_rows()),
                .cancelled = cancelled_,
                .batch = {}} {}
  ~SessionImpl() override { engine_.in_use_ = false; }

  Status Logits(std::span<const int32_t> tokens, const LogitsCallback& callback) override {
    RETURN_IF_ERROR(CheckContext(static_cast<int64_t>(tokens.size()), 0, engine_.options_.context));
    const ClearOnReturn clear(cancelled_);
    RETURN_IF_ERROR(RunPrompt(target_, tokens, PromptLogits::kAll, callback));
    return engine_.FlushTrace();
  }

  Status Append(int32_t token, const LogitsCallback& callback) override {
    // The token is processed, unlike the last one of a generation.
    RETURN_IF_ERROR(CheckContext(kv_.length() + 1, 0, engine_.options_.context));
    const ClearOnReturn clear(cancelled_);
    RETURN_IF_ERROR(RunToken(target_, token, [&](const float* logits) { return callback(0, 1, logits); }));
    return engine_.FlushTrace();
  }

  Result<GenerateResult> Generate(std::span<const int32_t> prompt, const GenerateOptions& options,
                                  const TokenCallback& on_token, const PromptCallback& on_prompt) override {
    const ClearOnReturn clear(cancelled_);
    kv_.Truncate(0);
    target_.tokens.clear();
    std::optional<Result<GenerateResult>> ended;
    GroupCallbacks callbacks{
        .on_token = [&](int32_t, const GeneratedToken& token) { return on_token(token.token); },
        .on_prompt = {},
        .on_end = [&](int32_t, Result<GenerateResult> result) { ended.emplace(std::move(result)); }};
    if (on_prompt) callbacks.on_prompt = [&](int32_t, int64_t done, int64_t total) { return on_prompt(done, total); };
    SequenceGroup group(engine_.TargetOf(cancelled_, 1), std::move(callbacks));
    RETURN_IF_ERROR(group.Join(0, {.prompt = {prompt.begin(), prompt.end()}, .options = options}));
    while (!group.empty()) {
      const Status status = cancelled_.load(std::memory_order_relaxed) ? CancelledError("cancelled") : group.Step();
      if (!status.ok()) group.EndAll(status.code() == StatusCode::kCancelled ? Status() : status);
    }
    const Status traced = engine_.FlushTrace();
    return ended->ok() && !traced.ok() ? traced : std::move(*ended);
  }

  void Cancel() override { cancelled_.store(true, std::memory_order_relaxed); }

 private:
  EngineImpl& engine_;
  KvSequence kv_;
  std::atomic<bool> cancelled_{false};
  Target target_;
};

// Whether what is written much later can be written.
Status CheckFolders(const EngineOptions& options) {
  if (!options.kv_spill_dir.empty()) {
    RETURN_IF_ERROR(File::CreateTemporary(options.kv_spill_dir).status().WithContext("--kv-spill-dir"));
  }
  const std::string& prefixes = options.prefix_file;
  if (prefixes.empty()) return Status();
  std::error_code unknown;
  if (std::filesystem::exists(prefixes, unknown) && !FileExists(prefixes)) {
    return InvalidArgumentError(fmt::format("--prefix-file: {} is there and is no file", prefixes));
  }
  return AtomicFile::Create(prefixes).status().WithContext("--prefix-file");
}

Status EngineImpl::Start() {
  RETURN_IF_ERROR(CheckFolders(options_));
  {
    const PlanningLock lock;
    ASSIGN_OR_RETURN(plan_, MakeEnginePlan(files_, options_));
    reservation_ = MemoryReservation::Take(plan_.memory.total_bytes);
  }
  const MemoryPlan& memory = plan_.memory;
  summary_ = {.budget = memory.budget_bytes,
              .budget_bound = memory.budget_bound,
              .floor = memory.floor_bytes,
              .total = memory.total_bytes,
              .ceiling = memory.ceiling_bytes,
              .kv = memory.kv_bytes,
              .kv_format = KvFormatName(KvFormatOf(options_)),
              .drafter = memory.drafter_bytes};

  ASSIGN_OR_RETURN(pool_, ThreadPool::Create(plan_.threads));
  const ReadQueueOptions io{.backend = BackendOf(options_.io), .direct = options_.direct_io};
  ASSIGN_OR_RETURN(std::unique_ptr<ReadQueue> queue, OpenQueue(io));
  if (!options_.io_trace.empty()) {
    ASSIGN_OR_RETURN(queue, TraceReads(std::move(queue), plan_.index.paths(), io, options_.io_trace));
  }
  PieceCacheOptions cache = CacheOptionsOf(options_);
  if (!options_.expert_trace.empty()) {
    ASSIGN_OR_RETURN(trace_, ExpertTraceWriter::Create(options_.expert_trace, files_.layout()));
    cache.trace = trace_.get();
  }
  std::vector<PieceId> warm_pieces;
  if (options_.warm_start && files_.layout().hparams.experts > 0) {
    warm_start_ = LoadWarmStart(files_.checkpoint(), files_.layout().hparams);
    // Said now: when it is written, nobody listens any more.
    if (const Status keeps = CheckWarmStart(files_.checkpoint()); !keeps.ok()) {
      warm_start_.note = fmt::format("this run's cannot be kept: {}", keeps.message());
    }
    warm_pieces = WarmStartPieces();
    cache.warm_start = warm_pieces;
  }
  KvSpillOptions spill{.folder = options_.kv_spill_dir,
                       .prefetch = options_.prefetch,
                       .order = Model::KvOrder(files_.layout().hparams),
                       .io = io,
                       .read_timeout = ReadTimeoutOf(options_)};
  if (options_.kv_budget_bytes.has_value()) spill.budget_bytes = *options_.kv_budget_bytes;
  ASSIGN_OR_RETURN(target_, StartModel(files_.layout(), plan_, std::move(queue), std::move(cache), std::move(spill)));
  if (options_.reuse_prefixes) StartPrefixes();
  return StartDrafter();
}

// What memory is never given back is as large as it ever was, but for slots given back to a system short of it.
std::vector<MemoryPart> EngineImpl::MemoryParts() const {
  const MemoryPlan& plan = plan_.memory;
  const CacheStats cache = target_.cache->stats();
  const int64_t outside = plan.embed_bytes + plan.norm_head_bytes;
  const int64_t weights = target_.cache->page_use().resident_bytes;
  int64_t drafter = 0;
  if (draft_.cache != nullptr) {
    drafter = draft_.cache->page_use().resident_bytes + draft_.kv_pool->page_use().resident_bytes +
              draft_.model->page_use().resident_bytes;
  }
  if (hidden_draft_.cache != nullptr) {
    drafter = hidden_draft_.cache->page_use().resident_bytes + hidden_draft_.network->resident_bytes();
  }
  std::vector<MemoryPart> parts = {
      {"embedding and head", outside,
       std::clamp<int64_t>(weights - cache.core_peak_bytes - cache.expert_peak_bytes, 0, outside)},
      {"cores", plan.core_region_bytes, cache.core_peak_bytes},
      {"expert slots", plan.expert_region_bytes, cache.expert_peak_bytes},
      {"KV", plan.kv_bytes, target_.kv_pool->stats().resident_peak_bytes},
      {"activations", plan.scratch_bytes, target_.model->page_use().resident_bytes},
      {"drafter", plan.drafter_bytes, drafter}};
  int64_t known = 0;
  for (const MemoryPart& part : parts) known += part.peak_bytes;
  parts.push_back({"program and reads", plan.process_bytes + plan.reserve_bytes + plan.read_buffer_bytes,
                   std::max<int64_t>(PeakResidentBytes() - known, 0)});
  return parts;
}

// As many as there are slots.
std::vector<PieceId> EngineImpl::WarmStartPieces() const {
  std::vector<PieceId> pieces;
  for (const ExpertUses& entry : warm_start_.uses) {
    const PieceId first = files_.layout().first_expert[static_cast<size_t>(entry.layer)];
    if (std::ssize(pieces) == plan_.memory.expert_slots) break;
    if (first >= 0) pieces.push_back(first + entry.expert);
  }
  return pieces;
}

// A hint for the next engine: that it cannot be written (Start has said so) is no failure of this one.
void EngineImpl::KeepWarmStart() const {
  if (!options_.warm_start || target_.cache == nullptr) return;
  const std::vector<int32_t> uses = target_.cache->expert_uses();
  std::vector<ExpertUses> run;
  for (size_t id = 0; id < uses.size(); ++id) {
    if (uses[id] == 0) continue;
    const PieceLayout& piece = files_.layout().pieces[id];
    const PieceId first = files_.layout().first_expert[static_cast<size_t>(piece.layer)];
    run.push_back({.layer = piece.layer, .expert = static_cast<int32_t>(id) - first, .uses = uses[id]});
  }
  if (run.empty()) return;
  const CacheStats stats = target_.cache->stats();
  (void)SaveWarmStart(files_.checkpoint(), AddUses(warm_start_.uses, run, stats.decode.passes + stats.prompt.passes));
}

std::string EngineImpl::PrefixFingerprint() const {
  // The hash is of names, sizes and headers: a file that was written anew may hold other weights.
  std::string written;
  for (const std::string& path : plan_.index.paths()) {
    std::error_code unknown;
    const auto time = std::filesystem::last_write_time(path, unknown).time_since_epoch().count();
    written += fmt::format("{} {}\n", std::filesystem::path(path).filename().string(), time);
  }
  return fmt::format("{} {} written {:016x} numerics {} kv {} {}", NUNSPARK_VERSION, files_.checkpoint().source_hash,
                     Hash64(written), numerics(), static_cast<int>(options_.kv), KvFormatName(KvFormatOf(options_)));
}

void EngineImpl::StartPrefixes() {
  prefixes_ = std::make_unique<PrefixStore>(*target_.kv_pool, target_.kv_pool->bytes());
  if (options_.prefix_file.empty()) return;
  const Status loaded = prefixes_->Load(PrefixFingerprint(), options_.prefix_file);
  if (!loaded.ok() && loaded.code() != StatusCode::kNotFound) prefix_note_ = loaded.message();
}

Status EngineImpl::SavePrefixes() const {
  if (prefixes_ == nullptr || options_.prefix_file.empty()) return Status();
  return prefixes_->Save(PrefixFingerprint(), options_.prefix_file);
}

Result<ModelRuntime> EngineImpl::StartModel(const ModelLayout& layout, const ModelPlan& plan,
                                            std::unique_ptr<ReadQueue> queue, PieceCacheOptions options,
                                            KvSpillOptions spill) {
  ModelRuntime runtime;
  ASSIGN_OR_RETURN(runtime.cache,
                   PieceCache::Create(layout, plan.index, plan.memory, std::move(queue), std::move(options)));
  ASSIGN_OR_RETURN(runtime.kv_pool, KvPool::Create(plan.kv_shapes, plan.kv_room, std::move(spill)));
  ASSIGN_OR_RETURN(runtime.model, Model::Create(layout, *pool_, plan.max_rows, options_.numerics));
  return runtime;
}

Status EngineImpl::StartDrafter() {
  const DrafterOptions& options = options_.drafter;
  if (options.ngram) {
    const NgramOptions ngram{.longest_suffix = options.ngram_longest,
                             .most_tokens = options.tokens,
                             .adaptive = options.ngram_adaptive && options.adaptive};
    RETURN_IF_ERROR(CheckNgramOptions(ngram));
    drafter_ = std::make_unique<NgramDrafter>(ngram, options_.max_sequences);
    return Status();
  }
  const ReadQueueOptions io{.backend = BackendOf(options_.io), .direct = options_.direct_io};
  PieceCacheOptions cache = CacheOptionsOf(options_);
  cache.give_back = false;
  if (plan_.hidden_draft != nullptr) {
    ASSIGN_OR_RETURN(std::unique_ptr<ReadQueue> queue, OpenReadQueue(plan_.hidden_draft->index.paths(), io));
    ASSIGN_OR_RETURN(hidden_draft_, StartHiddenDraft(*plan_.hidden_draft, files_.layout(), *target_.cache, *pool_,
                                                     std::move(queue), cache, options_.numerics));
    drafter_ = std::make_unique<HiddenDrafter>(*hidden_draft_.network);
    return Status();
  }
  if (plan_.draft == nullptr) return Status();
  const DraftModelPlan& draft = *plan_.draft;
  ASSIGN_OR_RETURN(std::unique_ptr<ReadQueue> queue, OpenReadQueue(draft.model.index.paths(), io));
  ASSIGN_OR_RETURN(draft_, StartModel(draft.files->layout(), draft.model, std::move(queue), std::move(cache), {}));
  drafter_ = std::make_unique<ModelDrafter>(DraftTarget{.model = *draft_.model,
                                                        .weights = *draft_.cache,
                                                        .kv = *draft_.kv_pool,
                                                        .context = draft.context,
                                                        .slots = options_.max_sequences,
                                                        .paths = plan_.draft_shape.paths(),
                                                        .target_vocab = files_.vocab_size()});
  return Status();
}

GroupTarget EngineImpl::TargetOf(const std::atomic<bool>& cancelled, int32_t max_sequences) {
  return {.model = *target_.model,
          .weights = *target_.cache,
          .kv = *target_.kv_pool,
          .context = options_.context,
          .max_sequences = max_sequences,
          .prefill_chunk = std::min(options_.prefill_chunk, target_.model->max_rows()),
          .cancelled = cancelled,
          .stop_ids = files_.stop_ids(),
          .bytes_read = [this] { return target_.cache->stats().bytes_read(); },
          .prefixes = prefixes_.get(),
          .drafter = drafter_.get(),
          .shape = plan_.draft_shape,
          .governed = options_.drafter.adaptive,
          .accept_top_k = drafter_ != nullptr && !options_.drafter.ngram && options_.drafter.eagle_dir.empty()
                              ? options_.drafter.accept_top_k
                              : 1};
}

// Over the model's files, or over them and their copies.
Result<std::unique_ptr<ReadQueue>> EngineImpl::OpenQueue(const ReadQueueOptions& io) const {
  std::vector<std::string> paths = plan_.index.paths();
  if (options_.mirror_dir.empty()) return OpenReadQueue(paths, io);
  const auto copy_of = [&](const std::string& path) {
    return JoinPath(options_.mirror_dir, std::filesystem::path(path).filename().string());
  };
  std::vector<std::string> compared = paths;
  const std::string manifest = JoinPath(files_.folder(), "manifest.json");
  if (FileExists(manifest)) compared.push_back(manifest);
  std::vector<std::string> copies;
  for (const std::string& path : compared) copies.push_back(copy_of(path));
  if (const Status same = CheckMirror(compared, copies); !same.ok()) return same.WithContext("--mirror");
  const auto files = static_cast<int32_t>(paths.size());
  paths.insert(paths.end(), copies.begin(), copies.begin() + files);
  ASSIGN_OR_RETURN(std::unique_ptr<ReadQueue> queue, OpenReadQueue(paths, io));
  return MakeMirrorQueue(std::move(queue), files);
}

Result<std::unique_ptr<Session>> EngineImpl::NewSession() {
  RETURN_IF_ERROR(TakeTurn());
  return std::unique_ptr<Session>(new SessionImpl(*this));
}

Result<std::unique_ptr<Scheduler>> EngineImpl::NewScheduler(const SchedulerOptions& options) {
  RETURN_IF_ERROR(CheckSchedulerOptions(options));
  RETURN_IF_ERROR(TakeTurn());
  Result<std::unique_ptr<Scheduler>> scheduler = MakeScheduler(
      {.options = options,
       .kv_tokens = plan_.kv_tokens,
       .vocab_size = files_.vocab_size(),
       .target = [this](const std::atomic<bool>& cancelled) { return TargetOf(cancelled, options_.max_sequences); },
       .after_step = [this] { return FlushTrace(); },
       .engine_stats = [this] { return stats(); },
       .on_close = [this] { in_use_ = false; }});
  if (!scheduler.ok()) in_use_ = false;
  return scheduler;
}

Status EngineImpl::TakeTurn() {
  if (in_use_) {
    return ResourceExhaustedError("this engine runs one session or scheduler at a time; close the other one first");
  }
  in_use_ = true;
  return Status();
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::Start(const ModelFiles& files, const EngineOptions& options) {
  RETURN_IF_ERROR(CheckKernelChoice());
  // Open returns nothing else, and nobody else can derive from ModelFiles.
  auto engine = std::make_unique<EngineImpl>(static_cast<const ModelFilesImpl&>(files), options);
  RETURN_IF_ERROR(engine->Start());
  return std::unique_ptr<Engine>(std::move(engine));
}

std::string VersionText() {
#if defined(__clang__)
  const std::string compiler = fmt::format("Clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  const std::string compiler = fmt::format("GCC {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
  std::string found;
  for (const KernelTable* table : AvailableKernels()) found += (found.empty() ? "" : ", ") + std::string(table->name);
  return fmt::format("nunspark {}\ncompiler: {}\ninstruction sets: {}", NUNSPARK_VERSION, compiler, found);
}

}  // namespace nunspark
