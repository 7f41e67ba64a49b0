// The routes of `nunspark web`: models, packing, files, jobs, chats, figures, and the page itself.
#ifndef NUNSPARK_SERVER_WEB_SERVICE_H_
#define NUNSPARK_SERVER_WEB_SERVICE_H_

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "hub/environment.h"
#include "nunspark/status.h"
#include "server/engine_pool.h"
#include "server/http.h"
#include "server/job_queue.h"
#include "server/long_task.h"
#include "server/web_models.h"
#include "server/workers.h"

namespace nunspark::server {

struct WebOptions {
  std::string packed_root;              // absolute; where packs are looked for and made
  std::optional<HubEnvironment> hub{};  // where models are looked for and got from; nullopt: nowhere
  std::string state;                    // folder of jobs and uploads
  std::string outputs{};                // that the page suggests
  std::vector<std::string> keys{};      // of clients; empty: everybody may ask
  std::vector<std::string> hosts{};     // names, beside localhost and addresses, that this server may be asked by
  EnginePoolOptions engine{};
};

class WebService {
 public:
  // Errors: JobQueue::Open's.
  static Result<std::unique_ptr<WebService>> Create(WebOptions options);
  ~WebService();
  WebService(const WebService&) = delete;

  // An HttpHandler.
  void Handle(HttpRequest request, std::shared_ptr<Exchange> exchange);

  // Ends what runs, so that no exchange is left; requests that still come are refused. Before the HTTP server ends.
  void Close();

 private:
  explicit WebService(WebOptions options);

  void Answer(HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void AnswerApi(HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void AnswerJob(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void AnswerChat(HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  HttpResponse Output(const std::string& id) const;
  HttpResponse Models();
  HttpResponse ModelList();
  HttpResponse Files(const HttpRequest& request);
  HttpResponse SubmitJobs(const HttpRequest& request);
  void Pack(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void Pull(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  HttpResponse Stats() const;

  const WebOptions options_;
  WebModels models_;
  EnginePool pool_;
  std::unique_ptr<JobQueue> jobs_;
  std::unique_ptr<LongTask> task_;
  std::mutex workers_mutex_;
  std::unique_ptr<Workers> workers_;  // nullptr: closed
};

// Answers GET of the page and of its figures beside an API (`serve --ui`): chats and plots of one engine. False: the
// request is for something else. `keys`: whoever wants the figures needs one.
bool AnswerPage(const HttpRequest& request, Exchange& exchange, const std::vector<std::string>& keys,
                const std::string& model, int64_t weight_bytes, const PlanSummary& plan, const Scheduler& scheduler);

// {"detail": text}
HttpResponse DetailError(int status, const std::string& text);

}  // namespace nunspark::server

#endif  // NUNSPARK_SERVER_WEB_SERVICE_H_
