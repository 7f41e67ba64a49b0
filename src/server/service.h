// The server's routes in front of an engine's scheduler.
#ifndef NUNSPARK_SERVER_SERVICE_H_
#define NUNSPARK_SERVER_SERVICE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "nunspark/engine.h"
#include "server/generation.h"
#include "server/http.h"
#include "server/request.h"
#include "server/workers.h"
#include "text/grammar/compiled_grammar.h"
#include "text/grammar/grammar_vocabulary.h"

namespace nunspark::server {

class Batches;

struct ServiceOptions {
  std::string model_name;              // what is served
  std::vector<std::string> aliases{};  // other names for it
  std::vector<std::string> keys{};     // of clients; empty: everybody may ask
  // Of the model's tokenizer, for outputs that have to be of a form; nullptr: such requests are refused.
  std::shared_ptr<const text::GrammarVocabulary> vocabulary{};
  double timeout_s = 0;  // of one request; 0: none
  int64_t context = 0;   // positions of one request; 0: what the model was made for
  int32_t default_max_tokens = 256;
  int workers = 2;             // threads that read requests, fill templates and tokenize
  bool log_requests = false;   // a line for each, without its text
  Batches* batches = nullptr;  // of the routes for files and batches; nullptr: they are refused
};

// Beside the engine: compiled grammars and what they learned.
inline constexpr int64_t kServiceBytes = 64 << 20;

class Service {
 public:
  // `files`, which have a tokenizer, and `scheduler` must outlive the service.
  Service(const ModelFiles& files, Scheduler& scheduler, ServiceOptions options);
  ~Service();
  Service(const Service&) = delete;

  // An HttpHandler.
  void Handle(HttpRequest request, std::shared_ptr<Exchange> exchange);

  // Answers a request of the server's own, by the thread that calls: as if it had come with a key.
  void Answer(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);

  // No request is looked at any more. Before the scheduler ends, after which the service may.
  void Close();

  // From now on /ready says no.
  void Drain() { draining_.store(true, std::memory_order_relaxed); }

 private:
  void Generate(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  // The prompt of a request, and how its answer is to be read.
  struct Prepared {
    std::vector<int32_t> prompt;
    OutputReading reading;
    std::shared_ptr<text::CompiledGrammar> form{};
  };
  Result<Prepared> Prepare(const TextRequest& request);
  Result<std::string> FormatChat(Json context) const;
  // In tokens; -1: none.
  int64_t ReasoningBudgetOf(const TextRequest& request) const;
  // What the answer has to look like; nullptr: anything.
  Result<std::shared_ptr<text::CompiledGrammar>> FormOf(const TextRequest& request, const OutputReading& reading);
  void CountTokens(const HttpRequest& request, Exchange& exchange);
  HttpResponse Models(const std::string& path) const;
  HttpResponse Metrics() const;
  Json ModelJson(const std::string& name) const;
  bool Serves(const std::string& name) const;

  const ModelFiles& files_;
  const std::string template_text_;
  const text::Tokenizer& tokenizer_;
  const text::OutputFormat format_;
  Scheduler& scheduler_;
  const ServiceOptions options_;
  GenerationMetrics metrics_;
  std::unique_ptr<text::GrammarCache> grammars_;  // nullptr: no vocabulary
  std::atomic<bool> draining_{false};
  std::unique_ptr<Workers> workers_;
};

// What the model at `path` is called where nobody says: the last part of the path.
std::string ModelNameOf(std::string path);

// What structured output needs of a model. Errors: GrammarVocabulary::Create's.
Result<std::shared_ptr<const text::GrammarVocabulary>> VocabularyOf(const ModelFiles& files);

// docs/serving-api.md.
std::string ServingApiDocument();

}  // namespace nunspark::server

#endif  // NUNSPARK_SERVER_SERVICE_H_
