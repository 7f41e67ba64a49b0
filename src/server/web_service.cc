#include "server/web_service.h"

#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "base/ascii.h"
#include "io/file.h"
#include "server/access.h"
#include "server/answers.h"
#include "server/request.h"
#include "server/service.h"
#include "server/upload.h"
#include "server/web_assets.h"

namespace nunspark::server {
namespace {

constexpr int kWorkers = 2;

HttpResponse JsonResponse(Json json) { return {.body = WriteJson(json), .headers = {{"Cache-Control", "no-store"}}}; }

int DetailStatusOf(const Status& status) {
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kUnsupported: return 400;
    case StatusCode::kResourceExhausted: return 503;
    default: return 500;
  }
}

HttpResponse FailureResponse(const Status& status) { return DetailError(DetailStatusOf(status), status.message()); }

bool IsPack(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(std::filesystem::path(path) / "manifest.json", error);
}

std::string TextOf(const Json& body, std::string_view name) {
  const Json* const value = body.Find(name);
  return value != nullptr && value->is_string() ? std::string(AsciiTrim(value->as_string())) : std::string();
}

std::function<void(Result<Json>)> AnswerWith(const std::shared_ptr<Exchange>& exchange) {
  return [exchange](Result<Json> result) {
    exchange->Send(result.ok() ? JsonResponse(std::move(*result)) : DetailError(500, result.status().message()));
  };
}

bool IsChat(const std::string& path) {
  return path == "/v1/chat/completions" || path == "/chat/completions" || path == "/v1/completions" ||
         path == "/completions" || path == "/v1/messages" || path == "/messages" || path == "/v1/messages/count_tokens";
}

}  // namespace

HttpResponse DetailError(int status, const std::string& text) {
  return {.status = status, .body = WriteJson(Json(Json::Object{{"detail", text}}))};
}

WebService::WebService(WebOptions options)
    : options_(std::move(options)),
      models_({.packed_root = options_.packed_root, .cache = options_.hub ? options_.hub->cache : std::string()}),
      pool_(options_.engine),
      task_(std::make_unique<LongTask>()),
      workers_(std::make_unique<Workers>(kWorkers)) {}

Result<std::unique_ptr<WebService>> WebService::Create(WebOptions options) {
  std::unique_ptr<WebService> service(new WebService(std::move(options)));
  ASSIGN_OR_RETURN(service->jobs_, JobQueue::Open(service->options_.state, service->pool_));
  service->pool_.SetWake([jobs = service->jobs_.get()] { jobs->Wake(); });
  // What models need is found before the first engine takes its memory.
  RETURN_IF_ERROR(service->models_.List().status());
  service->jobs_->Start();
  return service;
}

WebService::~WebService() { Close(); }

void WebService::Close() {
  std::unique_ptr<Workers> workers;
  {
    const std::lock_guard lock(workers_mutex_);
    workers.swap(workers_);
  }
  workers.reset();
  task_.reset();
  jobs_.reset();
  pool_.Close();
}

void WebService::Handle(HttpRequest request, std::shared_ptr<Exchange> exchange) {
  if (const std::optional<std::string> foreign = ForeignPage(request, options_.hosts)) {
    return exchange->Send(DetailError(403, *foreign));
  }
  if (request.path == "/health") return exchange->Send({.body = R"({"status":"ok"})"});
  if (request.method == "GET" || request.method == "HEAD") {
    if (std::optional<HttpResponse> file = PageFile(request.path)) return exchange->Send(std::move(*file));
  }
  if (!HasKey(request, options_.keys)) {
    return exchange->Send(DetailError(401, "the API key is missing or not known"));
  }
  const std::lock_guard lock(workers_mutex_);
  if (workers_ == nullptr) return exchange->Send(DetailError(503, "the server is stopping"));
  workers_->Post(
      [this, request = std::move(request), exchange = std::move(exchange)]() mutable { Answer(request, exchange); });
}

void WebService::Answer(HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  if (request.path.starts_with("/api/")) return AnswerApi(request, exchange);
  if (request.path == "/v1/models") return exchange->Send(ModelList());
  if (IsChat(request.path)) return AnswerChat(request, exchange);
  exchange->Send(DetailError(404, fmt::format("there is no {}", request.path)));
}

void WebService::AnswerApi(HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  const std::string route = request.method + " " + request.path;
  if (route == "GET /api/models") return exchange->Send(Models());
  if (route == "POST /api/files") return exchange->Send(Files(request));
  if (route == "POST /api/batch") return exchange->Send(SubmitJobs(request));
  if (route == "POST /api/pack") return Pack(request, exchange);
  if (route == "POST /api/pull") return Pull(request, exchange);
  if (route == "GET /api/task") return exchange->Send(JsonResponse(task_->StateJson()));
  if (route == "POST /api/task/cancel") {
    task_->Cancel();
    return exchange->Send(JsonResponse(Json::Object{{"ok", true}}));
  }
  if (route == "GET /api/events") return jobs_->SubscribeAll(exchange);
  if (route == "GET /api/stats") return exchange->Send(Stats());
  if (route == "GET /api/jobs") {
    Json::Array jobs;
    for (const Job& job : jobs_->Jobs()) jobs.push_back(ToJson(job));
    return exchange->Send(JsonResponse(Json::Object{{"jobs", std::move(jobs)}}));
  }
  if (route == "POST /api/jobs/clear") {
    const Result<int64_t> cleared = jobs_->Clear();
    return exchange->Send(cleared.ok() ? JsonResponse(Json::Object{{"cleared", *cleared}})
                                       : FailureResponse(cleared.status()));
  }
  if (request.path.starts_with("/api/jobs/")) return AnswerJob(request, exchange);
  exchange->Send(DetailError(404, fmt::format("there is no {}", route)));
}

void WebService::AnswerJob(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  constexpr std::string_view kPrefix = "/api/jobs/";
  const std::string rest = request.path.substr(kPrefix.size());
  const size_t slash = rest.find('/');
  const std::string id = rest.substr(0, slash);
  const std::string action = slash == std::string::npos ? "" : rest.substr(slash + 1);
  bool found = false;
  if (request.method == "POST" && action == "cancel") {
    found = jobs_->Cancel(id);
    if (found) return exchange->Send(JsonResponse(Json::Object{{"ok", true}}));
  } else if (request.method == "GET" && action == "events") {
    found = jobs_->Subscribe(id, exchange);
  } else if (request.method == "GET" && action == "output") {
    return exchange->Send(Output(id));
  } else {
    return exchange->Send(DetailError(404, fmt::format("there is no {} {}", request.method, request.path)));
  }
  if (!found) exchange->Send(DetailError(404, fmt::format("there is no job '{}'", id)));
}

HttpResponse WebService::Output(const std::string& id) const {
  const Result<std::string> path = jobs_->OutputPath(id);
  if (!path.ok()) return DetailError(404, path.status().message());
  Result<File> file = File::OpenRead(*path);
  if (!file.ok()) return DetailError(404, file.status().message());
  return {.content_type = "text/plain; charset=utf-8",
          .headers = {{"Cache-Control", "no-store"}, {"X-Content-Type-Options", "nosniff"}},
          .body_file = std::make_shared<const File>(std::move(*file))};
}

HttpResponse WebService::Models() {
  Result<Json::Array> models = models_.List();
  return models.ok() ? JsonResponse(Json::Object{{"models", std::move(*models)}}) : FailureResponse(models.status());
}

HttpResponse WebService::ModelList() {
  Result<Json::Array> models = models_.List();
  if (!models.ok()) return OpenAiError(500, models.status().message());
  Json::Array list;
  for (const Json& model : *models) {
    list.push_back(Json::Object{
        {"id", *model.Find("path")}, {"object", "model"}, {"created", int64_t{0}}, {"owned_by", "nunspark"}});
  }
  return JsonResponse(Json::Object{{"object", "list"}, {"data", std::move(list)}});
}

HttpResponse WebService::Files(const HttpRequest& request) {
  const Result<std::vector<UploadedFile>> files = FilesOfForm(request.Header("content-type"), request.body, "files");
  if (!files.ok()) return DetailError(422, files.status().message());
  if (files->empty()) return DetailError(422, "the upload has no part 'files'");
  const Result<std::vector<StoredFile>> stored = jobs_->AddFiles(*files);
  if (!stored.ok()) return FailureResponse(stored.status());
  Json::Array list;
  for (const StoredFile& file : *stored) list.push_back(Json::Object{{"id", file.id}, {"name", file.name}});
  return JsonResponse(Json::Object{{"files", std::move(list)}});
}

HttpResponse WebService::SubmitJobs(const HttpRequest& request) {
  const Result<Json> body = ParseBody(request.body);
  if (!body.ok()) return DetailError(422, body.status().message());
  Result<JobRequest> wanted = ParseJobRequest(*body);
  if (!wanted.ok()) return DetailError(422, wanted.status().message());
  if (!wanted->output_dir.starts_with('/')) {
    return DetailError(400, fmt::format("\"output_dir\" must be an absolute path, found '{}'", wanted->output_dir));
  }
  if (!IsPack(wanted->model)) {
    return DetailError(
        400, fmt::format("\"model\": {} is no packed model (it has no manifest.json); pack it first", wanted->model));
  }
  // A folder that cannot be made is each job's error, told where its result would be.
  std::error_code ignored;
  std::filesystem::create_directories(wanted->output_dir, ignored);
  const Result<std::vector<Job>> jobs = jobs_->Submit(std::move(*wanted));
  if (!jobs.ok()) {
    return jobs.status().code() == StatusCode::kInvalidArgument ? DetailError(422, jobs.status().message())
                                                                : FailureResponse(jobs.status());
  }
  Json::Array list;
  for (const Job& job : *jobs) list.push_back(ToJson(job));
  return JsonResponse(Json::Object{{"jobs", std::move(list)}});
}

void WebService::Pack(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  const Result<Json> body = ParseBody(request.body);
  if (!body.ok()) return exchange->Send(DetailError(422, body.status().message()));
  const std::string source = TextOf(*body, "source");
  if (source.empty()) return exchange->Send(DetailError(400, "\"source\" is missing: the model that is to be packed"));
  const Result<std::string> path = models_.PathOf(source);
  if (!path.ok()) return exchange->Send(FailureResponse(path.status()));
  std::string out = TextOf(*body, "out_dir");
  if (out.find('\0') != std::string::npos) return exchange->Send(DetailError(400, "\"out_dir\" holds a NUL"));
  const auto in_root = [this](const std::string& name) {
    return (std::filesystem::path(options_.packed_root) / name).lexically_normal();
  };
  if (out.empty()) {
    out = ModelNameOf(source);
    if (AsciiLower(out).ends_with(".gguf")) out.resize(out.size() - 5);
    // A checkpoint that lies where packs are keeps its name.
    if (in_root(out) == std::filesystem::path(*path).lexically_normal()) out += "-packed";
  }
  const std::string out_dir = in_root(out).string();
  const Status started = task_->Start(
      "pack", source, out_dir, [path = *path, out_dir](LongTask& task) { return PackModel(path, out_dir, task); },
      AnswerWith(exchange));
  if (!started.ok()) exchange->Send(DetailError(409, started.message()));
}

void WebService::Pull(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  const Result<Json> body = ParseBody(request.body);
  if (!body.ok()) return exchange->Send(DetailError(422, body.status().message()));
  if (!options_.hub) return exchange->Send(DetailError(400, "there is no folder for the hub's cache"));
  if (options_.hub->offline) return exchange->Send(DetailError(400, "HF_HUB_OFFLINE is set: nothing is downloaded"));
  const Result<RepoRef> ref = ParseRepoRef(TextOf(*body, "repo"));
  if (!ref.ok()) return exchange->Send(DetailError(400, ref.status().WithContext("\"repo\"").message()));
  const Status started = task_->Start(
      "pull", ref->Text(), options_.hub->cache,
      [hub = *options_.hub, ref = *ref](LongTask& task) { return PullModel(hub, ref, task); }, AnswerWith(exchange));
  if (!started.ok()) exchange->Send(DetailError(409, started.message()));
}

HttpResponse WebService::Stats() const {
  return JsonResponse(Json::Object{{"mode", "web"},
                                   {"version", NUNSPARK_VERSION},
                                   {"packed_root", options_.packed_root},
                                   {"outputs", options_.outputs},
                                   {"engine", pool_.StatsJson()}});
}

bool AnswerPage(const HttpRequest& request, Exchange& exchange, const std::vector<std::string>& keys,
                const std::string& model, int64_t weight_bytes, const PlanSummary& plan, const Scheduler& scheduler) {
  if (request.method != "GET" && request.method != "HEAD") return false;
  if (std::optional<HttpResponse> file = PageFile(request.path)) {
    exchange.Send(std::move(*file));
    return true;
  }
  if (request.path != "/api/stats") return false;
  exchange.Send(HasKey(request, keys)
                    ? JsonResponse(Json::Object{{"mode", "serve"},
                                                {"version", NUNSPARK_VERSION},
                                                {"engine", EngineStatsJson(model, weight_bytes, plan, scheduler)}})
                    : DetailError(401, "the API key is missing or not known"));
  return true;
}

void WebService::AnswerChat(HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  if (request.method != "POST") return exchange->Send(OpenAiError(405, request.path + " takes POST"));
  const Result<Json> body = ParseBody(request.body);
  if (!body.ok()) return exchange->Send(OpenAiError(400, body.status().message()));
  const Json* const model = body->Find("model");
  if (model == nullptr || !model->is_string() || model->as_string().empty()) {
    return exchange->Send(OpenAiError(400, "\"model\" is missing: the path of one of /v1/models"));
  }
  pool_.Chat(model->as_string(), std::move(request), exchange);
}

}  // namespace nunspark::server
