// The models that the page offers, with what each needs of this machine.
#ifndef NUNSPARK_SERVER_WEB_MODELS_H_
#define NUNSPARK_SERVER_WEB_MODELS_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "base/json.h"
#include "engine/model_needs.h"
#include "hub/catalogue.h"
#include "nunspark/status.h"

namespace nunspark::server {

// Thread-safe. Scans anew for each list; what models need is found by a thread of its own and kept.
class WebModels {
 public:
  explicit WebModels(CatalogueOptions options);
  ~WebModels();
  WebModels(const WebModels&) = delete;

  // [{"kind", "name", "path", "size", "badge"}]; "badge" is null until it is known, then {"state": "fits" | "streams" |
  // "too small" | "drafts" | "unsupported", "tok_per_s" or null, "text", "reason"}. Errors: ScanCatalogue's.
  Result<Json::Array> List();

  // The path of what `source` names: a model of the list by its name, else `source` itself. Errors: ScanCatalogue's.
  Result<std::string> PathOf(const std::string& source) const;

 private:
  void Run();
  Json Badge(const std::string& path);

  const CatalogueOptions options_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::map<std::string, Json> badges_;                      // by path, size and snapshot; null: not known yet
  std::deque<std::pair<std::string, std::string>> wanted_;  // key, path
  bool stopping_ = false;
  RateMeter rates_;  // of the thread
  std::thread thread_;
};

}  // namespace nunspark::server

#endif  // NUNSPARK_SERVER_WEB_MODELS_H_
