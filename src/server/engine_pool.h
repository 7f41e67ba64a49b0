// The one engine of the web application: jobs and chats share it, and it is reopened only when its settings change.
#ifndef NUNSPARK_SERVER_ENGINE_POOL_H_
#define NUNSPARK_SERVER_ENGINE_POOL_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "nunspark/engine.h"
#include "server/http.h"
#include "server/job_queue.h"

namespace nunspark::server {

// Figures of an engine at this moment, for the page: the plan, counters since its start, what is in memory.
// `weight_bytes`: of all weights.
Json EngineStatsJson(const std::string& model, int64_t weight_bytes, const PlanSummary& plan,
                     const Scheduler& scheduler);

struct EnginePoolOptions {
  std::string kv_spill_dir{};
  int threads = 0;  // 0: all CPUs
};

class EnginePool : public EngineSource {
 public:
  explicit EnginePool(EnginePoolOptions options);
  // Chats that are under way end with the engine.
  ~EnginePool() override;

  // Of jobs; see EngineSource.
  Result<const TextModel*> OpenModel(const std::string& path) override;
  Result<Scheduler*> OpenEngine(const EngineSettings& settings, const EngineRoom& room) override;
  int64_t ram_bytes() const override;
  Result<int64_t> BudgetBytes(const std::string& budget) const override;
  void BetweenGroups() override;
  void Stop() override;

  // Answers a request of the OpenAI or Anthropic API with the model that it names (a path): at once where its engine is
  // open, else between two groups of jobs, which `wake` is called for. Thread-safe.
  void Chat(const std::string& model, HttpRequest request, std::shared_ptr<Exchange> exchange);
  void SetWake(std::function<void()> wake) { wake_ = std::move(wake); }

  // null: no engine is open. Thread-safe.
  Json StatsJson() const;

  // From now on chats that wait are refused, and those that run are ended. The queue's thread must have ended.
  void Close();

 private:
  class Model;
  class Open;
  class Counted;
  struct Waiting {
    std::string model;
    HttpRequest request;
    std::shared_ptr<Exchange> exchange;
  };

  Status Reopen(const EngineSettings& settings, const EngineRoom& room);
  void CloseEngine();

  const EnginePoolOptions options_;
  std::function<void()> wake_;
  std::shared_ptr<Model> model_;  // of the queue's thread

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::unique_ptr<Open> open_;  // replaced by the queue's thread alone
  int64_t chats_ = 0;           // under way in it
  bool closing_ = false;        // no new ones
  bool stopping_ = false;       // those that are under way are not waited for
  std::deque<Waiting> waiting_;
};

}  // namespace nunspark::server

#endif  // NUNSPARK_SERVER_ENGINE_POOL_H_
