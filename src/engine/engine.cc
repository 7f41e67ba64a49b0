#include "nunspark/engine.h"

#include <atomic>
#include <fstream>

#include <fmt/format.h>

#include "base/size.h"
#include "base/thread_pool.h"
#include "decode/generate.h"
#include "engine/model_files.h"
#include "io/read_queue.h"
#include "kernels/kernels.h"
#include "kv/kv_cache.h"
#include "models/model.h"
#include "weights/memory_plan.h"
#include "weights/piece_cache.h"
#include "weights/piece_index.h"

namespace nunspark {
namespace {

FloatType KvFloatType(KvType type) {
  switch (type) {
    case KvType::kF32: return FloatType::kF32;
    case KvType::kF16: return FloatType::kF16;
    case KvType::kBF16: return FloatType::kBF16;
  }
  return FloatType::kF16;
}

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

Status CheckOptions(const ModelFiles& files, const EngineOptions& options) {
  if (options.context < 1) {
    return InvalidArgumentError(fmt::format("context must be at least 1, found {}", options.context));
  }
  if (files.max_context() > 0 && options.context > files.max_context()) {
    return InvalidArgumentError(fmt::format("{} positions are more than the {} this model was made for; shorten the prompt or "
                                            "--max-tokens",
                                            options.context, files.max_context()));
  }
  if (options.prefill_chunk < 1) {
    return InvalidArgumentError(fmt::format("prefill chunk must be at least 1, found {}", options.prefill_chunk));
  }
  if (options.threads < 0 || options.threads > 1024) {
    return InvalidArgumentError(fmt::format("threads must be from 0 (all) to 1024, found {}", options.threads));
  }
  if (options.expert_cache_fraction > 1) {
    return InvalidArgumentError(
        fmt::format("the expert share of the budget must be at most 1, found {}", options.expert_cache_fraction));
  }
  return Status();
}

class SessionImpl;

class EngineImpl : public Engine {
 public:
  EngineImpl(const ModelFilesImpl& files, const EngineOptions& options)
      : files_(files), options_(options), pool_(options.threads > 0 ? options.threads : DefaultThreads()) {}

  Status Start();

  Result<std::unique_ptr<Session>> NewSession() override;
  const PlanSummary& plan() const override { return summary_; }
  EngineStats stats() const override {
    return {.cache = cache_->stats(), .kv_peak_bytes = kv_pool_->used_peak_bytes(), .process_peak_bytes = PeakResidentBytes()};
  }
  std::string_view isa() const override { return Kernels().name; }
  int threads() const override { return pool_.threads(); }
  std::string io_description() const override { return cache_->io_description(); }

  const ModelFilesImpl& files() const { return files_; }

 private:
  friend class SessionImpl;

  const ModelFilesImpl& files_;
  const EngineOptions options_;
  ThreadPool pool_;
  PieceIndex index_;
  MemoryPlan plan_;
  PlanSummary summary_;
  std::unique_ptr<PieceCache> cache_;
  std::unique_ptr<KvPool> kv_pool_;
  std::unique_ptr<Model> model_;
  bool in_use_ = false;
};

class SessionImpl : public Session {
 public:
  explicit SessionImpl(EngineImpl& engine) : engine_(engine), kv_(*engine.kv_pool_) {}
  ~SessionImpl() override { engine_.in_use_ = false; }

  Status Logits(std::span<const int32_t> tokens, const LogitsCallback& callback) override {
    RETURN_IF_ERROR(CheckLength(static_cast<int64_t>(tokens.size()), 0));
    Target target = MakeTarget();
    return RunPrompt(target, tokens, PromptLogits::kAll, callback);
  }

  Status Append(int32_t token, const LogitsCallback& callback) override {
    RETURN_IF_ERROR(CheckLength(kv_.length(), 1));
    Target target = MakeTarget();
    return RunToken(target, token, [&](const float* logits) { return callback(0, 1, logits); });
  }

  Result<GenerateResult> Generate(std::span<const int32_t> prompt, const GenerateOptions& options,
                                  const TokenCallback& on_token, const PromptCallback& on_prompt) override {
    RETURN_IF_ERROR(CheckLength(static_cast<int64_t>(prompt.size()), options.max_tokens));
    Target target = MakeTarget();
    return RunGenerate(target, prompt, options, engine_.files_.stop_ids(),
                       [this] { return engine_.cache_->stats().bytes_read(); }, on_token, on_prompt);
  }

  void Cancel() override { cancelled_.store(true, std::memory_order_relaxed); }

 private:
  Status CheckLength(int64_t prompt, int64_t more) const {
    if (prompt + more <= engine_.options_.context) return Status();
    return InvalidArgumentError(fmt::format("{} prompt tokens and {} to generate do not fit the context of {}", prompt, more,
                                            engine_.options_.context));
  }

  Target MakeTarget() {
    cancelled_.store(false, std::memory_order_relaxed);
    return {.model = *engine_.model_, .weights = *engine_.cache_, .kv = kv_,
            .prefill_chunk = engine_.options_.prefill_chunk, .cancelled = cancelled_};
  }

  EngineImpl& engine_;
  KvSequence kv_;
  std::atomic<bool> cancelled_{false};
};

std::string PlanTable(const MemoryPlan& plan) {
  std::string table;
  const auto line = [&](std::string_view part, int64_t bytes, const std::string& note) {
    table += fmt::format("  {:<24} {:>10}  {}\n", part, FormatSize(bytes), note);
  };
  line("cores", plan.core_region_bytes, fmt::format("{} pinned, ring of {}", plan.pinned_cores, plan.ring_slots));
  if (plan.expert_slots > 0) {
    line("expert slots", plan.expert_region_bytes,
         fmt::format("{} x {}", plan.expert_slots, FormatSize(plan.expert_slot_bytes)));
  }
  line("embedding", plan.embed_bytes, "");
  line("norm and head", plan.norm_head_bytes, "");
  line("read buffers", plan.read_buffer_bytes, "");
  line("KV cache", plan.kv_bytes, "");
  line("activations", plan.scratch_bytes, "");
  line("program and tokenizer", plan.process_bytes, "");
  line("reserve", plan.reserve_bytes, "");
  line("total", plan.total_bytes, fmt::format("of {} ({})", FormatSize(plan.ceiling_bytes), plan.ceiling_bound));
  return table;
}

Status EngineImpl::Start() {
  const ModelLayout& layout = files_.layout();
  const TensorIndex& tensors = files_.checkpoint().tensors;
  index_ = PieceIndex::Build(layout, tensors);
  const std::vector<KvLayerShape> shapes = Model::KvShapes(layout.hparams);
  const FloatType kv_type = KvFloatType(options_.kv);
  const int32_t rows = static_cast<int32_t>(std::min<int64_t>(options_.prefill_chunk, options_.context));

  MemoryRequest request;
  request.budget_bytes = options_.budget_bytes;
  request.expert_fraction = options_.expert_cache_fraction;
  request.kv_bytes = KvPool::PlanBytes(shapes, kv_type, options_.context);
  request.scratch_bytes = Model::ScratchBytes(layout, pool_.threads(), rows);
  ASSIGN_OR_RETURN(plan_, MakeMemoryPlan(layout, index_, request, MeasureSystemMemory()));
  summary_ = {.budget = plan_.budget_bytes, .budget_bound = plan_.budget_bound, .floor = plan_.floor_bytes,
              .total = plan_.total_bytes, .ceiling = plan_.ceiling_bytes, .kv = plan_.kv_bytes, .table = PlanTable(plan_)};

  const ReadQueueOptions io{.backend = BackendOf(options_.io), .direct = options_.direct_io};
  ASSIGN_OR_RETURN(std::unique_ptr<ReadQueue> queue, OpenReadQueue(index_.paths(), io));
  ASSIGN_OR_RETURN(cache_, PieceCache::Create(layout, index_, plan_, std::move(queue),
                                              {.prefetch = options_.prefetch, .warm_window = options_.warm_window}));
  ASSIGN_OR_RETURN(kv_pool_, KvPool::Create(shapes, kv_type, options_.context));
  ASSIGN_OR_RETURN(model_, Model::Create(layout, pool_, rows));
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
  RETURN_IF_ERROR(CheckOptions(files, options));
  // Open returns nothing else.
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
