// /v1/files and /v1/batches: OpenAI's routes in front of the store and the runner.
#ifndef NUNSPARK_SERVER_BATCHES_H_
#define NUNSPARK_SERVER_BATCHES_H_

#include <cstdint>
#include <memory>
#include <string>

#include "nunspark/status.h"
#include "server/batch_runner.h"
#include "server/data_folder.h"
#include "server/http.h"
#include "server/prometheus.h"

namespace nunspark::server {

class Batches {
 public:
  // Opens what `folder` holds and puts it in order; nothing runs yet. `folder` must outlive it.
  static Result<std::unique_ptr<Batches>> Open(const DataFolder& folder);
  virtual ~Batches() = default;
  Batches(const Batches&) = delete;

  // Goes on with the batches that have not ended.
  virtual Status Start(BatchRunnerOptions options) = 0;

  // Answers a request for which Routes is true, on a thread of its own.
  virtual void Handle(HttpRequest request, std::shared_ptr<Exchange> exchange) = 0;

  // What runs is taken back, to be run at the next start. Before the scheduler ends.
  virtual void Stop() = 0;
  // No request is looked at any more. Before the HTTP server ends.
  virtual void Close() = 0;

  virtual void AddTo(PrometheusText& text) const = 0;

  static bool Routes(const std::string& path);
  // By its head: a request whose body is a form with a file.
  static bool IsUpload(const HttpRequest& head);
  // What servers without a data folder answer.
  static HttpResponse NotThere();

 protected:
  Batches() = default;
};

// The part of docs/serving-api.md.
std::string BatchesDocument();

}  // namespace nunspark::server

#endif  // NUNSPARK_SERVER_BATCHES_H_
