#include "nunspark/engine.h"

#include <algorithm>
#include <atomic>
#include <fstream>

#include <fmt/format.h>

#include "base/thread_pool.h"
#include "decode/generate.h"
#include "engine/engine_plan.h"
#include "engine/model_files.h"
#include "io/read_queue.h"
#include "kernels/kernels.h"
#include "kv/kv_cache.h"
#include "models/model.h"
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

class EngineImpl : public Engine {
 public:
  EngineImpl(const ModelFilesImpl& files, const EngineOptions& options) : files_(files), options_(options) {}

  Status Start();

  Result<std::unique_ptr<Session>> NewSession() override;
  const PlanSummary& plan() const override { return summary_; }
  EngineStats stats() const override {
    return {.cache = cache_->stats(),
            .kv_peak_bytes = kv_pool_->used_peak_bytes(),
            .process_peak_bytes = PeakResidentBytes()};
  }
  std::string_view isa() const override { return Kernels().name; }
  int threads() const override { return plan_.threads; }
  std::string io_description() const override { return cache_->io_description(); }

 private:
  friend class SessionImpl;

  const ModelFilesImpl& files_;
  const EngineOptions options_;
  EnginePlan plan_;
  PlanSummary summary_;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<PieceCache> cache_;
  std::unique_ptr<KvPool> kv_pool_;
  std::unique_ptr<Model> model_;
  bool in_use_ = false;
};

class SessionImpl : public Session {
 public:
  explicit SessionImpl(EngineImpl& engine)
      : engine_(engine),
        kv_(*engine.kv_pool_),
        target_{.model = *engine.model_,
                .weights = *engine.cache_,
                .kv = kv_,
                .prefill_chunk = engine.plan_.max_rows,
                .cancelled = cancelled_,
                .batch = {}} {}
  ~SessionImpl() override { engine_.in_use_ = false; }

  Status Logits(std::span<const int32_t> tokens, const LogitsCallback& callback) override {
    RETURN_IF_ERROR(CheckLength(static_cast<int64_t>(tokens.size()), 0));
    const ClearOnReturn clear(cancelled_);
    return RunPrompt(target_, tokens, PromptLogits::kAll, callback);
  }

  Status Append(int32_t token, const LogitsCallback& callback) override {
    RETURN_IF_ERROR(CheckLength(kv_.length(), 1));
    const ClearOnReturn clear(cancelled_);
    return RunToken(target_, token, [&](const float* logits) { return callback(0, 1, logits); });
  }

  Result<GenerateResult> Generate(std::span<const int32_t> prompt, const GenerateOptions& options,
                                  const TokenCallback& on_token, const PromptCallback& on_prompt) override {
    RETURN_IF_ERROR(CheckLength(static_cast<int64_t>(prompt.size()), options.max_tokens));
    const ClearOnReturn clear(cancelled_);
    return RunGenerate(
        target_, prompt, options, engine_.files_.stop_ids(), [this] { return engine_.cache_->stats().bytes_read(); },
        on_token, on_prompt);
  }

  void Cancel() override { cancelled_.store(true, std::memory_order_relaxed); }

 private:
  Status CheckLength(int64_t prompt, int64_t more) const {
    // The last token generated is not processed, so it needs no position.
    if (prompt + std::max<int64_t>(more - 1, 0) <= engine_.options_.context) return Status();
    return InvalidArgumentError(fmt::format("{} prompt tokens and {} to generate do not fit the context of {}", prompt,
                                            more, engine_.options_.context));
  }

  // A cancellation ends one call, whenever it came, and not the one after.
  struct ClearOnReturn {
    explicit ClearOnReturn(std::atomic<bool>& flag_to_clear) : flag(flag_to_clear) {}
    ~ClearOnReturn() { flag.store(false, std::memory_order_relaxed); }
    std::atomic<bool>& flag;
  };

  EngineImpl& engine_;
  KvSequence kv_;
  std::atomic<bool> cancelled_{false};
  Target target_;
};

Status EngineImpl::Start() {
  ASSIGN_OR_RETURN(plan_, MakeEnginePlan(files_, options_));
  const MemoryPlan& memory = plan_.memory;
  summary_ = {.budget = memory.budget_bytes,
              .budget_bound = memory.budget_bound,
              .floor = memory.floor_bytes,
              .total = memory.total_bytes,
              .ceiling = memory.ceiling_bytes,
              .kv = memory.kv_bytes};

  ASSIGN_OR_RETURN(pool_, ThreadPool::Create(plan_.threads));
  const ReadQueueOptions io{.backend = BackendOf(options_.io), .direct = options_.direct_io};
  ASSIGN_OR_RETURN(std::unique_ptr<ReadQueue> queue, OpenReadQueue(plan_.index.paths(), io));
  ASSIGN_OR_RETURN(cache_, PieceCache::Create(files_.layout(), plan_.index, memory, std::move(queue),
                                              {.prefetch = options_.prefetch, .warm_window = options_.warm_window}));
  ASSIGN_OR_RETURN(kv_pool_, KvPool::Create(plan_.kv_shapes, plan_.kv_type, options_.context));
  ASSIGN_OR_RETURN(model_, Model::Create(files_.layout(), *pool_, plan_.max_rows));
  return Status();
}

Result<std::unique_ptr<Session>> EngineImpl::NewSession() {
  if (in_use_) return ResourceExhaustedError("this engine runs one session at a time; close the other one first");
  in_use_ = true;
  return std::unique_ptr<Session>(new SessionImpl(*this));
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
