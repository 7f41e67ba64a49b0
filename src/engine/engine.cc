#include "nunspark/engine.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "base/check.h"
#include "base/mapped_memory.h"
#include "base/memory_reservation.h"
#include "base/thread_pool.h"
#include "decode/generate.h"
#include "decode/sequence_group.h"
#include "decode/sequence_run.h"
#include "engine/engine_plan.h"
#include "engine/model_files.h"
#include "io/file.h"
#include "io/mirror_queue.h"
#include "io/read_queue.h"
#include "io/read_trace.h"
#include "kernels/kernels.h"
#include "kv/kv_cache.h"
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

PieceCacheOptions CacheOptionsOf(const EngineOptions& options) {
  return {.prefetch = options.prefetch,
          .warm_window = options.warm_window,
          .lookahead = options.lookahead,
          .lookahead_top = options.lookahead_top,
          .prediction_recall = options.prediction_recall,
          .expert_prefetch = options.expert_prefetch,
          .lock_memory = options.lock_memory,
          .give_back = options.give_back,
          .read_timeout = std::chrono::milliseconds(static_cast<int64_t>(options.read_timeout_s * 1e3))};
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
class GroupSessionImpl;

class EngineImpl : public Engine {
 public:
  EngineImpl(const ModelFilesImpl& files, const EngineOptions& options) : files_(files), options_(options) {}

  Status Start();

  Result<std::unique_ptr<Session>> NewSession() override;
  Result<std::unique_ptr<GroupSession>> NewGroupSession() override;
  const PlanSummary& plan() const override { return summary_; }
  EngineStats stats() const override {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return {.cache = cache_->stats(),
            .kv_peak_bytes = kv_pool_->used_peak_bytes(),
            .process_peak_bytes = PeakResidentBytes(),
            .minor_page_faults = usage.ru_minflt,
            .major_page_faults = usage.ru_majflt,
            .layers = cache_->layer_stats()};
  }
  MemoryPages pages() const override {
    return {.weights = cache_->page_use(),
            .kv = kv_pool_->page_use(),
            .refusal = HugePageRefusal(),
            .locked_bytes = cache_->locked().bytes,
            .lock_refusal = cache_->locked().refusal};
  }
  std::string_view isa() const override { return Kernels().name; }
  std::string_view numerics() const override { return NumericsName(model_->numerics()); }
  int threads() const override { return plan_.threads; }
  std::string io_description() const override { return cache_->io_description(); }

 private:
  friend class SessionImpl;
  friend class GroupSessionImpl;

  Result<std::unique_ptr<ReadQueue>> OpenQueue(const ReadQueueOptions& io) const;
  Status TakeTurn();
  // What a run has added to the trace of experts is written when the run ends, however it ends.
  Status FlushTrace() { return trace_ != nullptr ? trace_->Flush() : Status(); }
  int64_t bytes_read() const { return cache_->stats().bytes_read(); }

  const ModelFilesImpl& files_;
  const EngineOptions options_;
  EnginePlan plan_;
  MemoryReservation reservation_;
  PlanSummary summary_;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<ExpertTraceWriter> trace_;
  std::unique_ptr<PieceCache> cache_;
  std::unique_ptr<KvPool> kv_pool_;
  std::unique_ptr<Model> model_;
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
        kv_(*engine.kv_pool_, engine.options_.context),
        target_{.model = *engine.model_,
                .weights = *engine.cache_,
                .kv = kv_,
                .prefill_chunk = engine.options_.prefill_chunk,
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
    RETURN_IF_ERROR(CheckContext(static_cast<int64_t>(prompt.size()), options.max_tokens, engine_.options_.context));
    const ClearOnReturn clear(cancelled_);
    Result<GenerateResult> result = RunGenerate(
        target_, prompt, options, engine_.files_.stop_ids(), [this] { return engine_.bytes_read(); }, on_token,
        on_prompt);
    const Status traced = engine_.FlushTrace();
    return result.ok() && !traced.ok() ? traced : std::move(result);
  }

  void Cancel() override { cancelled_.store(true, std::memory_order_relaxed); }

 private:
  EngineImpl& engine_;
  KvSequence kv_;
  std::atomic<bool> cancelled_{false};
  Target target_;
};

class GroupSessionImpl : public GroupSession {
 public:
  explicit GroupSessionImpl(EngineImpl& engine)
      : engine_(engine), cancelled_one_(static_cast<size_t>(engine.options_.max_sequences)) {}
  ~GroupSessionImpl() override { engine_.in_use_ = false; }

  Result<std::vector<GenerateResult>> Generate(std::span<const SequenceRequest> requests,
                                               const GroupTokenCallback& on_token) override {
    const ClearAllOnReturn clear(*this);
    const int32_t count = static_cast<int32_t>(requests.size());
    if (requests.size() > cancelled_one_.size()) {
      return ResourceExhaustedError(
          fmt::format("{} sequences asked, {} planned; raise the engine's max_sequences or split the requests",
                      requests.size(), cancelled_one_.size()));
    }
    std::vector<GenerateResult> results(requests.size());
    SequenceGroup group(Target(), {.on_token = on_token, .on_end = [&](int32_t index, GenerateResult result) {
                                     results[static_cast<size_t>(index)] = std::move(result);
                                   }});
    for (int32_t i = 0; i < count; ++i) {
      const Status joined = group.Join(i, requests[static_cast<size_t>(i)]);
      if (!joined.ok()) return joined.WithContext(fmt::format("request {}", i));
    }
    const Status ran = Run(group);
    const Status traced = engine_.FlushTrace();
    RETURN_IF_ERROR(ran);
    RETURN_IF_ERROR(traced);
    return results;
  }

  void Cancel() override { cancelled_.store(true, std::memory_order_relaxed); }

  void CancelOne(int32_t index) override {
    CHECK(index >= 0 && static_cast<size_t>(index) < cancelled_one_.size());
    cancelled_one_[static_cast<size_t>(index)].store(true, std::memory_order_relaxed);
    any_cancelled_.store(true, std::memory_order_release);
  }

 private:
  // As ClearOnReturn, for every flag.
  struct ClearAllOnReturn {
    explicit ClearAllOnReturn(GroupSessionImpl& its_session) : session(its_session) {}
    ~ClearAllOnReturn() {
      session.cancelled_.store(false, std::memory_order_relaxed);
      session.any_cancelled_.store(false, std::memory_order_relaxed);
      for (std::atomic<bool>& one : session.cancelled_one_) one.store(false, std::memory_order_relaxed);
    }
    GroupSessionImpl& session;
  };

  GroupTarget Target() const {
    return {.model = *engine_.model_,
            .weights = *engine_.cache_,
            .kv = *engine_.kv_pool_,
            .context = engine_.options_.context,
            .max_sequences = engine_.options_.max_sequences,
            .prefill_chunk = engine_.options_.prefill_chunk,
            .cancelled = cancelled_,
            .stop_ids = engine_.files_.stop_ids(),
            .bytes_read = [this] { return engine_.bytes_read(); }};
  }

  Status Run(SequenceGroup& group) {
    while (!group.empty()) {
      if (any_cancelled_.exchange(false, std::memory_order_acquire)) {
        for (size_t i = 0; i < cancelled_one_.size(); ++i) {
          if (cancelled_one_[i].load(std::memory_order_relaxed)) group.Leave(static_cast<int32_t>(i));
        }
        continue;
      }
      const Status status = cancelled_.load(std::memory_order_relaxed) ? CancelledError("cancelled") : group.Step();
      if (status.code() == StatusCode::kCancelled) {
        group.LeaveAll();
      } else if (!status.ok()) {
        return status;
      }
    }
    return Status();
  }

  EngineImpl& engine_;
  std::atomic<bool> cancelled_{false};
  std::vector<std::atomic<bool>> cancelled_one_;  // [max_sequences]
  std::atomic<bool> any_cancelled_{false};        // one of them is set and was not seen yet
};

Status EngineImpl::Start() {
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
              .kv = memory.kv_bytes};

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
  ASSIGN_OR_RETURN(cache_,
                   PieceCache::Create(files_.layout(), plan_.index, memory, std::move(queue), std::move(cache)));
  ASSIGN_OR_RETURN(kv_pool_, KvPool::Create(plan_.kv_shapes, plan_.kv_type, plan_.kv_positions));
  ASSIGN_OR_RETURN(model_, Model::Create(files_.layout(), *pool_, plan_.max_rows, options_.numerics));
  return Status();
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

Result<std::unique_ptr<GroupSession>> EngineImpl::NewGroupSession() {
  RETURN_IF_ERROR(TakeTurn());
  return std::unique_ptr<GroupSession>(new GroupSessionImpl(*this));
}

Status EngineImpl::TakeTurn() {
  if (in_use_) return ResourceExhaustedError("this engine runs one session at a time; close the other one first");
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
