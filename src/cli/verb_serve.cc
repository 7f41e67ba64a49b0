#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/size.h"
#include "cli/drafter_flags.h"
#include "cli/engine_flags.h"
#include "cli/interrupt.h"
#include "cli/model_argument.h"
#include "cli/server_keys.h"
#include "cli/verbs.h"
#include "nunspark/engine.h"
#include "server/access.h"
#include "server/batches.h"
#include "server/data_folder.h"
#include "server/http.h"
#include "server/service.h"
#include "server/web_service.h"

namespace nunspark::cli {
namespace {

constexpr int64_t kUsualContext = 8192;
constexpr double kMostSeconds = 24 * 3600;
constexpr int64_t kMostUploadBytes = int64_t{1000} * 1000 * 1000 * 1000;
constexpr int64_t kMostUploadsAtOnce = 4;  // of the largest size

struct Flags {
  std::string model;
  EngineFlags engine;
  DrafterFlags drafter;
  std::string host = "127.0.0.1";
  int port = 8080;
  std::string model_name;
  std::vector<std::string> aliases;
  bool no_prefix_cache = false;
  std::string prefix_file;
  int64_t parallel = 4, queue = 64, max_tokens = 256;
  std::string api_key_file, cors_origin;
  double timeout_s = 0, drain_s = 30, client_timeout_s = 30;
  bool log_requests = false, ui = false;
  std::string data_dir, max_upload = "200MB";
};

Result<int> Run(const Flags& flags) {
  ASSIGN_OR_RETURN(EngineOptions options, MakeEngineOptions(flags.engine));
  ASSIGN_OR_RETURN(options.drafter, MakeDrafterOptions(flags.drafter));
  if (flags.parallel < 1 || flags.parallel > 1024) {
    return InvalidArgumentError(fmt::format("--parallel must be from 1 to 1024, found {}", flags.parallel));
  }
  if (flags.queue < 1 || flags.queue > (1 << 20)) {
    return InvalidArgumentError(fmt::format("--queue must be from 1 to {}, found {}", 1 << 20, flags.queue));
  }
  if (flags.no_prefix_cache && !flags.prefix_file.empty()) {
    return InvalidArgumentError("--prefix-file does not go with --no-prefix-cache");
  }
  if (flags.max_tokens < 1 || flags.max_tokens > (1 << 28)) {
    return InvalidArgumentError(fmt::format("--max-tokens must be from 1 to 2^28, found {}", flags.max_tokens));
  }
  for (const auto& [name, seconds] : {std::pair("--timeout", flags.timeout_s),
                                      {"--drain", flags.drain_s},
                                      {"--client-timeout", flags.client_timeout_s}}) {
    if (seconds >= 0 && seconds <= kMostSeconds) continue;
    return InvalidArgumentError(fmt::format("{} must be from 0 to {} seconds, found {}", name, kMostSeconds, seconds));
  }
  if (flags.client_timeout_s == 0) return InvalidArgumentError("--client-timeout must be above 0");
  if (std::any_of(flags.cors_origin.begin(), flags.cors_origin.end(), [](char c) { return c <= ' ' || c > '~'; })) {
    return InvalidArgumentError(fmt::format(
        "--cors-origin must be '*' or one origin such as https://example.org, found '{}'", flags.cors_origin));
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> keys, ReadKeys(flags.api_key_file));
  const Result<int64_t> max_upload_bytes = ParseSize(flags.max_upload);
  RETURN_IF_ERROR(max_upload_bytes.status().WithContext("--max-upload"));
  if (*max_upload_bytes < 1 || *max_upload_bytes > kMostUploadBytes) {
    return InvalidArgumentError(fmt::format("--max-upload must be from 1 B to 1 TB, found {}", flags.max_upload));
  }
  // The address is tried before the model is read, which may take long.
  RETURN_IF_ERROR(server::HttpServer::Listen({.host = flags.host, .port = flags.port}, {}).status());
  std::optional<server::DataFolder> data;
  std::unique_ptr<server::Batches> batches;
  if (!flags.data_dir.empty()) {
    ASSIGN_OR_RETURN(data, server::DataFolder::Open(flags.data_dir));
    ASSIGN_OR_RETURN(batches, server::Batches::Open(*data));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<ModelFiles> files, ModelFiles::Open(flags.model));
  if (!files->has_tokenizer()) {
    return UnsupportedError(fmt::format("{} has no tokenizer; a server needs one", files->folder()));
  }
  WarnOfContext(flags.engine.context, *files);
  // Before the plan is made, which counts what is there.
  const Result<std::shared_ptr<const text::GrammarVocabulary>> vocabulary = server::VocabularyOf(*files);
  if (!vocabulary.ok()) {
    std::fprintf(stderr, "Note: answers cannot be held to a schema (%s)\n", vocabulary.status().message().c_str());
  }
  options.context = flags.engine.context > 0   ? flags.engine.context
                    : files->max_context() > 0 ? std::min(files->max_context(), kUsualContext)
                                               : kUsualContext;
  options.max_sequences = static_cast<int32_t>(flags.parallel);
  options.reuse_prefixes = !flags.no_prefix_cache;
  options.prefix_tokens = options.reuse_prefixes ? options.context : 0;
  options.prefix_file = flags.prefix_file;
  // A server has time before it is asked.
  options.warm_start = !flags.engine.no_warm_start;
  options.caller_bytes = server::kServiceBytes;
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Start(*files, options));
  if (!engine->prefix_note().empty()) {
    std::fprintf(stderr, "Note: %s is not used and will be replaced (%s)\n", flags.prefix_file.c_str(),
                 std::string(engine->prefix_note()).c_str());
  }
  if (!engine->warm_start_note().empty()) {
    std::fprintf(stderr, "Note: no warm start: %s\n", std::string(engine->warm_start_note()).c_str());
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Scheduler> scheduler,
                   engine->NewScheduler({.queue = static_cast<int32_t>(flags.queue)}));

  const std::string& name = flags.model_name;
  if (!server::IsLoopback(flags.host) && keys.empty()) {
    std::fprintf(stderr,
                 "WARNING: everybody who reaches %s may use this server: it listens beyond this machine and has no "
                 "--api-key-file\n",
                 flags.host.c_str());
  }
  server::Service service(*files, *scheduler,
                          {.model_name = name,
                           .aliases = flags.aliases,
                           .keys = keys,
                           .vocabulary = vocabulary.ok() ? *vocabulary : nullptr,
                           .timeout_s = flags.timeout_s,
                           .context = options.context,
                           .default_max_tokens = static_cast<int32_t>(flags.max_tokens),
                           .log_requests = flags.log_requests,
                           .batches = batches.get()});
  server::HttpOptions http_options{.host = flags.host,
                                   .port = flags.port,
                                   .header_timeout_s = flags.client_timeout_s,
                                   .body_timeout_s = flags.client_timeout_s,
                                   .write_timeout_s = flags.client_timeout_s,
                                   .cors_origin = flags.cors_origin};
  if (data) {
    http_options.spool = {.wanted =
                              [&keys](const server::HttpRequest& head) {
                                return server::Batches::IsUpload(head) && server::HasKey(head, keys);
                              },
                          .folder = data->path(),
                          .max_body_bytes = *max_upload_bytes,
                          .max_total_bytes = kMostUploadsAtOnce * *max_upload_bytes};
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<server::HttpServer> http,
                   server::HttpServer::Listen(
                       http_options, [&](server::HttpRequest request, std::shared_ptr<server::Exchange> exchange) {
                         if (flags.ui && server::AnswerPage(request, *exchange, keys, name, files->weight_bytes(),
                                                            engine->plan(), *scheduler)) {
                           return;
                         }
                         service.Handle(std::move(request), std::move(exchange));
                       }));
  if (batches != nullptr) {
    RETURN_IF_ERROR(batches->Start(
        {.parallel = flags.parallel,
         .stats = [&scheduler] { return scheduler->stats(); },
         .answer = [&service](
                       const server::HttpRequest& request,
                       const std::shared_ptr<server::Exchange>& exchange) { service.Answer(request, exchange); }}));
  }
  std::fprintf(stderr, "Serving %s at http://%s:%d/v1 (%lld at once, %lld tokens each)\n", name.c_str(),
               flags.host.c_str(), http->port(), static_cast<long long>(flags.parallel),
               static_cast<long long>(options.context));
  std::thread connections([&http] { http->Run(); });
  while (!Interrupted()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  std::fprintf(stderr, "stopping: answers under way have %.0f s to end; once more to stop at once\n", flags.drain_s);
  service.Drain();
  http->Stop(flags.drain_s);
  if (batches != nullptr) batches->Stop();
  connections.join();
  if (batches != nullptr) batches->Close();
  service.Close();
  scheduler.reset();
  if (const Status saved = engine->SavePrefixes(); !saved.ok()) {
    std::fprintf(stderr, "Note: prefixes are not kept: %s\n", saved.message().c_str());
  }
  return 0;
}

}  // namespace

void AddServe(CLI::App& app, Action* action) {
  auto flags = std::make_shared<Flags>();
  CLI::App* const verb =
      app.add_subcommand("serve", "answer OpenAI's and Anthropic's HTTP API, many requests at once, from one model");
  verb->add_option("model", flags->model, "pack, checkpoint folder or .gguf file")->required();
  verb->add_option("--host", flags->host, "address to listen at")->capture_default_str();
  verb->add_option("--port", flags->port, "0: any that is free")->capture_default_str();
  verb->add_option("--model-name", flags->model_name, "what clients call the model; else the folder's name");
  verb->add_option("--alias", flags->aliases, "another name for it; may be given several times")
      ->allow_extra_args(false);
  verb->add_option("--parallel", flags->parallel, "requests that run together")->capture_default_str();
  verb->add_option("--queue", flags->queue, "requests that wait beside them; more are told to come again")
      ->capture_default_str();
  verb->add_option("--max-tokens", flags->max_tokens, "of an answer, where the request does not say")
      ->capture_default_str();
  verb->add_option("--api-key-file", flags->api_key_file, "file of keys, one a line; only who has one may ask");
  verb->add_option("--cors-origin", flags->cors_origin, "web pages from here may ask ('*': from anywhere)");
  verb->add_option("--timeout", flags->timeout_s, "seconds that a request may take; 0 = any")->capture_default_str();
  verb->add_option("--client-timeout", flags->client_timeout_s,
                   "seconds that a client may take for a request's head, or be silent in its body or beside its answer")
      ->capture_default_str();
  verb->add_option("--drain", flags->drain_s, "seconds that answers have to end after Ctrl-C")->capture_default_str();
  verb->add_flag("--no-prefix-cache", flags->no_prefix_cache, "compute every prompt from its beginning");
  verb->add_option("--prefix-file", flags->prefix_file, "keep what is computed for prompts here between runs");
  verb->add_option("--data-dir", flags->data_dir, "folder for files and batches, kept between runs; made if not there");
  verb->add_option("--max-upload", flags->max_upload, "the largest file that clients may upload")
      ->capture_default_str();
  verb->add_flag("--log-requests", flags->log_requests, "a line for each request, without its text");
  verb->add_flag("--ui", flags->ui, "show a page with chats and plots at /");
  AddDrafterFlags(*verb, flags->drafter);
  AddContextFlag(*verb, flags->engine);
  AddEngineFlags(*verb, flags->engine);
  RefuseEmptyValues(*verb);
  verb->footer("Example: nunspark serve ./Qwen3-30B-A3B-4bit --memory 8GB --parallel 4");
  verb->callback([flags, action] {
    *action = [flags]() -> Result<int> {
      // Named as it was asked for, wherever it lies.
      if (flags->model_name.empty()) flags->model_name = server::ModelNameOf(flags->model);
      RETURN_IF_ERROR(ResolveModelIn(flags->model));
      return Run(*flags);
    };
  });
}

void AddServingApi(CLI::App& app, Action* action) {
  CLI::App* const verb = app.add_subcommand("serving-api", "write docs/serving-api.md to standard output")->group("");
  verb->callback([action] {
    *action = []() -> Result<int> {
      std::fputs(server::ServingApiDocument().c_str(), stdout);
      return 0;
    };
  });
}

}  // namespace nunspark::cli
