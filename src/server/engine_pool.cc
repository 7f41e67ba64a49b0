#include "server/engine_pool.h"

#include <algorithm>
#include <thread>

#include <fmt/format.h>

#include "base/align.h"
#include "base/ascii.h"
#include "base/memory_info.h"
#include "base/size.h"
#include "engine/model_files.h"
#include "engine/model_needs.h"
#include "server/answers.h"
#include "server/service.h"

namespace nunspark::server {
namespace {

// What an engine has room for where nobody needs more: chats, and most files.
constexpr int64_t kUsualContext = 8192;
constexpr size_t kMostWaiting = 256;

}  // namespace

class EnginePool::Model : public TextModel {
 public:
  static Result<std::shared_ptr<Model>> Open(const std::string& path) {
    ASSIGN_OR_RETURN(std::unique_ptr<ModelFilesImpl> files, ModelFilesImpl::OpenFolder(path));
    if (!files->has_tokenizer()) {
      return UnsupportedError(fmt::format("{} has no tokenizer: it takes no text", path));
    }
    return std::make_shared<Model>(path, std::move(files));
  }
  Model(std::string path, std::unique_ptr<ModelFilesImpl> files) : path_(std::move(path)), files_(std::move(files)) {}

  const std::string& path() const { return path_; }
  const ModelFiles& files() const { return *files_; }

  Result<std::vector<int32_t>> Encode(const std::string& prompt, bool chat_template) const override {
    if (chat_template) {
      const Json context(Json::Object{{"messages", Json::Array{Json::Object{{"role", "user"}, {"content", prompt}}}},
                                      {"tools", Json()},
                                      {"documents", Json()},
                                      {"add_generation_prompt", true}});
      const Result<std::string> text = files_->FormatChat(WriteJson(context));
      if (text.ok()) return files_->Encode(*text);
    }
    return files_->EncodeWithSpecials(prompt);
  }
  Result<std::unique_ptr<ModelFiles::TextStream>> NewTextStream() const override { return files_->NewTextStream({}); }
  bool EndsOutput(int32_t token) const override {
    const std::vector<int32_t>& ends = files_->stop_ids();
    return std::binary_search(ends.begin(), ends.end(), token);
  }
  int64_t max_context() const override { return files_->max_context(); }
  int64_t kv_bytes_per_token() const override { return KvBytesPerToken(*files_); }

 private:
  const std::string path_;
  const std::unique_ptr<ModelFilesImpl> files_;
};

// An engine with everything in front of it.
class EnginePool::Open {
 public:
  // Errors: Engine::Start's.
  static Result<std::unique_ptr<Open>> Start(std::shared_ptr<Model> model, const EngineSettings& settings,
                                             const EngineRoom& room, EngineOptions options) {
    const Result<std::shared_ptr<const text::GrammarVocabulary>> vocabulary = VocabularyOf(model->files());
    options.caller_bytes = kServiceBytes;
    options.reuse_prefixes = true;
    options.prefix_tokens = std::min(room.context, kUsualContext);
    options.context = room.context;
    options.kv_tokens = room.kv_tokens;
    options.max_sequences = kMostGrouped;
    std::unique_ptr<Open> open(new Open(std::move(model), settings, room));
    ASSIGN_OR_RETURN(open->engine_, Engine::Start(open->model_->files(), options));
    ASSIGN_OR_RETURN(open->scheduler_, open->engine_->NewScheduler({}));
    open->service_ = std::make_unique<Service>(open->model_->files(), *open->scheduler_,
                                               ServiceOptions{.model_name = ModelNameOf(settings.model),
                                                              .aliases = {settings.model},
                                                              .vocabulary = vocabulary.ok() ? *vocabulary : nullptr,
                                                              .context = room.context,
                                                              .default_max_tokens = 1024});
    return open;
  }
  ~Open() {
    if (service_ != nullptr) service_->Close();
    scheduler_.reset();
  }

  const EngineSettings& settings() const { return settings_; }
  bool HasRoom(const EngineRoom& room) const { return room.context <= room_.context; }
  Scheduler& scheduler() { return *scheduler_; }
  Service& service() { return *service_; }
  Json StatsJson() const {
    return EngineStatsJson(settings_.model, model_->files().weight_bytes(), engine_->plan(), *scheduler_);
  }

 private:
  Open(std::shared_ptr<Model> model, EngineSettings settings, EngineRoom room)
      : model_(std::move(model)), settings_(std::move(settings)), room_(room) {}

  const std::shared_ptr<Model> model_;
  const EngineSettings settings_;
  const EngineRoom room_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<Service> service_;
};

// An exchange of a chat: while anybody may still answer it, its engine stays.
class EnginePool::Counted : public Exchange {
 public:
  Counted(EnginePool& pool, std::shared_ptr<Exchange> exchange) : pool_(pool), exchange_(std::move(exchange)) {}
  ~Counted() override {
    exchange_.reset();
    // Told under the lock: who waits for the last one may end the pool right after.
    const std::lock_guard lock(pool_.mutex_);
    --pool_.chats_;
    pool_.changed_.notify_all();
  }
  void Send(HttpResponse response) override { exchange_->Send(std::move(response)); }
  void Begin(int status, std::string content_type, Headers headers, std::string keep_alive) override {
    exchange_->Begin(status, std::move(content_type), std::move(headers), std::move(keep_alive));
  }
  void Write(std::string part) override { exchange_->Write(std::move(part)); }
  void End() override { exchange_->End(); }
  bool closed() const override { return exchange_->closed(); }
  void OnClosed(std::function<void()> callback) override { exchange_->OnClosed(std::move(callback)); }

 private:
  EnginePool& pool_;
  std::shared_ptr<Exchange> exchange_;
};

EnginePool::EnginePool(EnginePoolOptions options) : options_(std::move(options)) {}

EnginePool::~EnginePool() { Close(); }

void EnginePool::Close() {
  std::deque<Waiting> waiting;
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    waiting.swap(waiting_);
  }
  for (const Waiting& chat : waiting) chat.exchange->Send(OpenAiError(503, "the server is stopping"));
  waiting.clear();
  std::unique_ptr<Open> open;
  {
    const std::lock_guard lock(mutex_);
    open.swap(open_);
  }
  // Ends what still runs.
  open.reset();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return chats_ == 0; });
}

Result<const TextModel*> EnginePool::OpenModel(const std::string& path) {
  if (model_ == nullptr || model_->path() != path) {
    model_.reset();
    ASSIGN_OR_RETURN(model_, Model::Open(path));
  }
  return model_.get();
}

Result<Scheduler*> EnginePool::OpenEngine(const EngineSettings& settings, const EngineRoom& room) {
  {
    const std::lock_guard lock(mutex_);
    if (open_ != nullptr && open_->settings() == settings && open_->HasRoom(room)) return &open_->scheduler();
  }
  RETURN_IF_ERROR(Reopen(settings, room));
  return &open_->scheduler();
}

void EnginePool::CloseEngine() {
  std::unique_lock lock(mutex_);
  if (open_ == nullptr) return;
  closing_ = true;
  changed_.wait(lock, [this] { return chats_ == 0 || stopping_; });
  std::unique_ptr<Open> open = std::move(open_);
  lock.unlock();
  open.reset();
  lock.lock();
  closing_ = false;
}

// The old engine ends before the new one is planned: its memory counts as taken until then.
Status EnginePool::Reopen(const EngineSettings& settings, const EngineRoom& room) {
  RETURN_IF_ERROR(OpenModel(settings.model).status());
  EngineOptions options;
  if (settings.budget != "auto") {
    ASSIGN_OR_RETURN(options.budget_bytes, BudgetBytes(settings.budget));
  }
  options.threads = options_.threads;
  options.kv_spill_dir = options_.kv_spill_dir;
  options.kv_bits = settings.kv_bits;
  options.kv_group_size = settings.kv_group_size;
  options.drafter.draft_model = settings.draft;
  options.drafter.tokens = settings.draft_tokens;
  options.drafter.accept_top_k = settings.accept_top_k;
  CloseEngine();
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return CancelledError("the server is stopping");
  }
  const int64_t most = model_->max_context() > 0 ? model_->max_context() : kUsualContext;
  EngineRoom usual{.context = std::max(room.context, std::min(most, kUsualContext))};
  usual.kv_tokens = std::max(room.kv_tokens, 2 * usual.context);
  Result<std::unique_ptr<Open>> open = Open::Start(model_, settings, usual, options);
  // With less room the rows of a group come one after the other.
  if (open.status().code() == StatusCode::kResourceExhausted) {
    const int64_t least = room.context > 0 ? room.context : usual.context;
    open = Open::Start(model_, settings, {.context = least, .kv_tokens = least}, options);
  }
  RETURN_IF_ERROR(open.status());
  const std::lock_guard lock(mutex_);
  open_ = std::move(*open);
  return Status();
}

void EnginePool::Stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
}

int64_t EnginePool::ram_bytes() const { return ReadMachineMemory().total_bytes; }

Result<int64_t> EnginePool::BudgetBytes(const std::string& budget) const {
  if (AsciiLower(AsciiTrim(budget)) == "auto") return AutomaticBudget();
  return ParseSize(budget);
}

void EnginePool::Chat(const std::string& model, HttpRequest request, std::shared_ptr<Exchange> exchange) {
  Service* service = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (open_ != nullptr && !closing_ && open_->settings().model == model) {
      // From here on the engine stays until the exchange is let go.
      ++chats_;
      service = &open_->service();
    } else if (waiting_.size() < kMostWaiting) {
      waiting_.push_back({.model = model, .request = std::move(request), .exchange = std::move(exchange)});
    }
  }
  if (service != nullptr) {
    service->Handle(std::move(request), std::make_shared<Counted>(*this, std::move(exchange)));
  } else if (exchange == nullptr) {
    wake_();
  } else {
    exchange->Send(OpenAiError(503, "too many chats wait for another model; try again later"));
  }
}

void EnginePool::BetweenGroups() {
  while (true) {
    Waiting chat;
    {
      const std::lock_guard lock(mutex_);
      if (waiting_.empty()) return;
      chat = std::move(waiting_.front());
      waiting_.pop_front();
    }
    if (chat.exchange->closed()) continue;
    bool is_open = false;
    {
      const std::lock_guard lock(mutex_);
      is_open = open_ != nullptr && open_->settings().model == chat.model;
    }
    if (!is_open) {
      // Positions of a chat come as they are needed; an engine for them has the usual room.
      const Status opened = Reopen({.model = chat.model}, {});
      if (!opened.ok()) {
        chat.exchange->Send(OpenAiError(HttpStatusOf(opened), opened.message()));
        continue;
      }
    }
    Chat(chat.model, std::move(chat.request), std::move(chat.exchange));
  }
}

Json EnginePool::StatsJson() const {
  const std::lock_guard lock(mutex_);
  return open_ == nullptr ? Json() : open_->StatsJson();
}

Json EngineStatsJson(const std::string& model, int64_t weight_bytes, const PlanSummary& plan,
                     const Scheduler& scheduler) {
  const SchedulerStats counts = scheduler.stats();
  const EngineStats engine = scheduler.engine_stats();
  const CacheStats& cache = engine.cache;
  return Json::Object{{"model", model},
                      {"name", ModelNameOf(model)},
                      {"running", counts.running},
                      {"waiting", counts.waiting},
                      {"tokens", counts.tokens},
                      {"steps", counts.steps},
                      {"bytes_read", cache.bytes_read()},
                      {"hits", cache.expert.hits + cache.core.hits + cache.dense.hits},
                      {"misses", cache.expert.misses + cache.core.misses + cache.dense.misses},
                      {"pass_us", cache.decode.wall_us + cache.prompt.wall_us},
                      {"stall_us", cache.decode.stall_us + cache.prompt.stall_us},
                      {"memory", Json::Object{{"weights", std::min(plan.budget, weight_bytes)},
                                              {"resident", cache.resident_bytes},
                                              {"kv", plan.kv},
                                              {"drafter", plan.drafter},
                                              {"total", plan.total},
                                              {"ceiling", plan.ceiling},
                                              {"process_peak", engine.process_peak_bytes}}}};
}

}  // namespace nunspark::server
