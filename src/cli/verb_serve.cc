#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/in_range.h"
#include "cli/drafter_flags.h"
#include "cli/engine_flags.h"
#include "cli/listening.h"
#include "cli/model_argument.h"
#include "cli/verbs.h"
#include "engine/text_options.h"
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

Status CheckSeconds(const Flags& flags) {
  for (const auto& [name, seconds] : {std::pair("--timeout", flags.timeout_s),
                                      {"--drain", flags.drain_s},
                                      {"--client-timeout", flags.client_timeout_s}}) {
    if (seconds >= 0 && seconds <= kMostSeconds) continue;
    return InvalidArgumentError(fmt::format("{} must be from 0 to {} seconds, found {}", name, kMostSeconds, seconds));
  }
  if (flags.client_timeout_s == 0) return InvalidArgumentError("--client-timeout must be above 0");
  return Status();
}

// The engine as it is asked for; what depends on the model is set once that is open.
Result<EngineOptions> MakeOptions(const Flags& flags) {
  ASSIGN_OR_RETURN(EngineOptions options, MakeEngineOptions(flags.engine));
  ASSIGN_OR_RETURN(options.drafter, MakeDrafterOptions(flags.drafter));
  ASSIGN_OR_RETURN(options.max_sequences, InRange("--parallel", flags.parallel, 1, 1024));
  if (flags.no_prefix_cache && !flags.prefix_file.empty()) {
    return InvalidArgumentError("--prefix-file does not go with --no-prefix-cache");
  }
  options.reuse_prefixes = !flags.no_prefix_cache;
  options.prefix_file = flags.prefix_file;
  options.caller_bytes = server::kServiceBytes;
  return options;
}

Result<server::ServiceOptions> MakeServiceOptions(const Flags& flags) {
  server::ServiceOptions options{.model_name = flags.model_name,
                                 .aliases = flags.aliases,
                                 .timeout_s = flags.timeout_s,
                                 .log_requests = flags.log_requests};
  ASSIGN_OR_RETURN(options.default_max_tokens, InRange("--max-tokens", flags.max_tokens, 1, kMostTokens));
  ASSIGN_OR_RETURN(options.keys, ReadKeys(flags.api_key_file));
  return options;
}

// With `data`, uploads of clients that have one of `keys` go there as they come.
Result<server::HttpOptions> MakeHttpOptions(const Flags& flags, const std::optional<server::DataFolder>& data,
                                            const std::vector<std::string>& keys) {
  if (std::any_of(flags.cors_origin.begin(), flags.cors_origin.end(), [](char c) { return c <= ' ' || c > '~'; })) {
    return InvalidArgumentError(fmt::format(
        "--cors-origin must be '*' or one origin such as https://example.org, found '{}'", flags.cors_origin));
  }
  ASSIGN_OR_RETURN(const int64_t max_upload_bytes, ParseSizeFlag("--max-upload", flags.max_upload));
  if (max_upload_bytes < 1 || max_upload_bytes > kMostUploadBytes) {
    return InvalidArgumentError(fmt::format("--max-upload must be from 1 B to 1 TB, found {}", flags.max_upload));
  }
  server::HttpOptions options{.host = flags.host,
                              .port = flags.port,
                              .header_timeout_s = flags.client_timeout_s,
                              .body_timeout_s = flags.client_timeout_s,
                              .write_timeout_s = flags.client_timeout_s,
                              .cors_origin = flags.cors_origin};
  if (!data) return options;
  const auto wanted = [keys](const server::HttpRequest& head) {
    return server::Batches::IsUpload(head) && server::HasKey(head, keys);
  };
  options.spool = {.wanted = wanted,
                   .folder = data->path(),
                   .max_body_bytes = max_upload_bytes,
                   .max_total_bytes = kMostUploadsAtOnce * max_upload_bytes};
  return options;
}

void WarnOfStrangers(const Flags& flags, const std::vector<std::string>& keys) {
  if (server::IsLoopback(flags.host) || !keys.empty()) return;
  std::fprintf(stderr,
               "WARNING: everybody who reaches %s may use this server: it listens beyond this machine and has no "
               "--api-key-file\n",
               flags.host.c_str());
}

Result<int> Run(const Flags& flags) {
  ASSIGN_OR_RETURN(EngineOptions options, MakeOptions(flags));
  ASSIGN_OR_RETURN(const int32_t queue, InRange("--queue", flags.queue, 1, 1 << 20));
  RETURN_IF_ERROR(CheckSeconds(flags));
  ASSIGN_OR_RETURN(server::ServiceOptions service_options, MakeServiceOptions(flags));
  // The address is tried before the model is read, which may take long.
  RETURN_IF_ERROR(server::HttpServer::Listen({.host = flags.host, .port = flags.port}, {}).status());
  std::optional<server::DataFolder> data;
  std::unique_ptr<server::Batches> batches;
  if (!flags.data_dir.empty()) {
    ASSIGN_OR_RETURN(data, server::DataFolder::Open(flags.data_dir));
    ASSIGN_OR_RETURN(batches, server::Batches::Open(*data));
  }
  ASSIGN_OR_RETURN(const server::HttpOptions http_options, MakeHttpOptions(flags, data, service_options.keys));
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
  options.context = ContextOf(flags.engine, *files, kUsualContext);
  options.prefix_tokens = options.reuse_prefixes ? options.context : 0;
  // A server has time before it is asked.
  options.warm_start = !flags.engine.no_warm_start;
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Start(*files, options));
  NoteUnusedPrefixes(*engine, flags.prefix_file);
  if (!engine->warm_start_note().empty()) {
    std::fprintf(stderr, "Note: no warm start: %s\n", std::string(engine->warm_start_note()).c_str());
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Scheduler> scheduler, engine->NewScheduler({.queue = queue}));

  WarnOfStrangers(flags, service_options.keys);
  service_options.vocabulary = vocabulary.ok() ? *vocabulary : nullptr;
  service_options.context = options.context;
  service_options.batches = batches.get();
  server::Service service(*files, *scheduler, service_options);
  const auto handle = [&](server::HttpRequest request, std::shared_ptr<server::Exchange> exchange) {
    if (flags.ui && server::AnswerPage(request, *exchange, service_options.keys, flags.model_name,
                                       files->weight_bytes(), engine->plan(), *scheduler)) {
      return;
    }
    service.Handle(std::move(request), std::move(exchange));
  };
  ASSIGN_OR_RETURN(const std::unique_ptr<server::HttpServer> http, server::HttpServer::Listen(http_options, handle));
  if (batches != nullptr) {
    RETURN_IF_ERROR(batches->Start(
        {.parallel = flags.parallel,
         .stats = [&scheduler] { return scheduler->stats(); },
         .answer = [&service](
                       const server::HttpRequest& request,
                       const std::shared_ptr<server::Exchange>& exchange) { service.Answer(request, exchange); }}));
  }
  std::fprintf(stderr, "Serving %s at %s/v1 (%d at once, %lld tokens each)\n", flags.model_name.c_str(),
               AddressOf(flags.host, http->port()).c_str(), options.max_sequences,
               static_cast<long long>(options.context));
  std::thread connections([&http] { http->Run(); });
  WaitForInterrupt();
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
  verb->add_option("model", flags->model, kModelArgument)->required();
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
