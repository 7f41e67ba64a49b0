#include "server/service.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include <fmt/format.h>

#include "engine/model_files.h"
#include "server/access.h"
#include "server/answers.h"
#include "server/batches.h"

namespace nunspark::server {
namespace {

enum class Api : uint8_t { kChat, kCompletion, kMessages };

bool IsAnthropic(const std::string& path) {
  return path == "/v1/messages" || path == "/messages" || path == "/v1/messages/count_tokens";
}

void SendError(const HttpRequest& request, Exchange& exchange, int status, const std::string& message,
               const std::string& code = {}) {
  exchange.Send(IsAnthropic(request.path) ? AnthropicError(status, message) : OpenAiError(status, message, code));
}

int64_t CountOf(std::string_view text, std::string_view word) {
  int64_t count = 0;
  for (size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + word.size())) ++count;
  return count;
}

// All that stats.h counts.
void AddEngine(const EngineStats& engine, PrometheusText& text) {
  const CacheStats& cache = engine.cache;
  const auto by_kind = [&](std::string_view name, std::string_view help, int64_t KindStats::*member) {
    text.Counters(name, help, "kind",
                  {{"dense", cache.dense.*member}, {"core", cache.core.*member}, {"expert", cache.expert.*member}});
  };
  by_kind("piece_hits_total", "Weights used while in memory.", &KindStats::hits);
  by_kind("piece_misses_total", "Weights that had to be read, or were still being read.", &KindStats::misses);
  by_kind("piece_coalesced_total", "Of them, already on their way.", &KindStats::coalesced);
  by_kind("piece_bytes_read_total", "Bytes of such weights read from the drive.", &KindStats::bytes_read);
  text.Counter("bytes_read_total", "Bytes of weights read from the drive.", cache.bytes_read());

  const auto prefetched = [&](std::string_view name, std::string_view help, int64_t PrefetchStats::*member) {
    text.Counters(name, help, "kind",
                  {{"core", cache.core_prefetch.*member},
                   {"expert", cache.expert_prefetch.*member},
                   {"warm_start", cache.warm_start.*member}});
  };
  prefetched("prefetch_issued_total", "Weights read ahead.", &PrefetchStats::issued);
  prefetched("prefetch_used_total", "Of them, used in time.", &PrefetchStats::used);
  prefetched("prefetch_wasted_total", "Of them, not used in time.", &PrefetchStats::wasted);
  prefetched("prefetch_withdrawn_total", "Of them, taken back before they were read.", &PrefetchStats::withdrawn);
  prefetched("prefetch_issued_bytes_total", "Bytes read ahead.", &PrefetchStats::issued_bytes);
  prefetched("prefetch_used_bytes_total", "Of them, used.", &PrefetchStats::used_bytes);
  prefetched("prefetch_wasted_bytes_total", "Of them, not used.", &PrefetchStats::wasted_bytes);
  text.Counter("lookahead_passes_total", "Passes with predictions of experts.", cache.lookahead_passes);
  text.Counter("lookahead_skipped_total", "Predictions not made for want of a core.", cache.lookahead_skipped);

  const auto by_pass = [&](std::string_view name, std::string_view help, int64_t PassStats::*member) {
    text.Counters(name, help, "kind", {{"decode", cache.decode.*member}, {"prompt", cache.prompt.*member}});
  };
  by_pass("passes_total", "Passes of one row of each sequence, and of several.", &PassStats::passes);
  by_pass("pass_rows_total", "Their rows.", &PassStats::rows);
  by_pass("pass_microseconds_total", "Their time.", &PassStats::wall_us);
  by_pass("pass_stall_microseconds_total", "Of it, waiting for the drive.", &PassStats::stall_us);
  by_pass("pass_bytes_read_total", "Bytes read for them.", &PassStats::bytes_read);

  const auto by_layer = [&](std::string_view name, std::string_view help, int64_t LayerStats::*member) {
    PrometheusText::Values values;
    for (const LayerStats& layer : engine.layers) values.emplace_back(fmt::format("{}", values.size()), layer.*member);
    text.Counters(name, help, "layer", values);
  };
  by_layer("layer_hits_total", "Weights of a layer used while in memory.", &LayerStats::hits);
  by_layer("layer_misses_total", "Those that were not there yet.", &LayerStats::misses);
  by_layer("layer_coalesced_total", "Of them, already on their way.", &LayerStats::coalesced);
  by_layer("layer_bytes_read_total", "Bytes of a layer read from the drive.", &LayerStats::bytes_read);
  by_layer("layer_stall_microseconds_total", "Time that its passes waited for the drive.", &LayerStats::stall_us);
  by_layer("layer_prefetch_issued_total", "Its weights read ahead.", &LayerStats::prefetch_issued);
  by_layer("layer_prefetch_used_total", "Of them, used in time.", &LayerStats::prefetch_used);
  by_layer("layer_prefetch_wasted_total", "Of them, not used in time.", &LayerStats::prefetch_wasted);

  text.Counter("stall_microseconds_total", "Time the passes waited for the drive.", cache.stall_us);
  text.Counter("read_microseconds_total", "Time with a read under way.", cache.read_us);
  text.Counter("read_timeouts_total", "Reads that the drive did not answer in time.", cache.read_timeouts);
  text.Gauge("quarantined_slots", "Slots held by such reads.", cache.quarantined_slots);
  text.Gauge("given_back_slots", "Slots given back to a system short of memory.", cache.given_back_slots);
  text.Gauge("weights_resident_bytes", "Weights in memory inside the budget.", cache.resident_bytes);
  text.Gauge("weights_resident_peak_bytes", "The most there were.", cache.resident_peak_bytes);
  text.Gauge("cores_peak_bytes", "Of them, cores and dense layers.", cache.core_peak_bytes);
  text.Gauge("experts_peak_bytes", "Of them, experts.", cache.expert_peak_bytes);
  text.Gauge("kv_peak_bytes", "Keys and values, the most there were.", engine.kv.resident_peak_bytes);
  text.Counter("kv_hits_total", "Blocks of keys and values used while in memory.", engine.kv.hits);
  text.Counter("kv_misses_total", "Those that had to be read back.", engine.kv.misses);
  text.Counter("kv_spilled_bytes_total", "Keys and values written to the drive.", engine.kv.spilled_bytes);
  text.Counter("kv_reloaded_bytes_total", "Those read back.", engine.kv.reloaded_bytes);
  text.Counter("kv_stall_microseconds_total", "Time the passes waited for them.", engine.kv.stall_us);
  text.Gauge("prefix_bytes", "Keys and values kept of earlier prompts.", engine.prefix_bytes);
  text.Counter("prefix_lookups_total", "Prompts looked up among earlier ones.", engine.prefix_lookups);
  text.Counter("prefix_tokens_asked_total", "Their tokens.", engine.prefix_tokens_asked);
  text.Counter("prefix_tokens_found_total", "Of them, those that did not have to be computed.",
               engine.prefix_tokens_found);
  text.Gauge("process_peak_bytes", "Memory of the process, the most there was.", engine.process_peak_bytes);
  text.Counter("page_faults_minor_total", "Page faults without a read.", engine.minor_page_faults);
  text.Counter("page_faults_major_total", "Page faults with a read.", engine.major_page_faults);
}

// Of models opened by ModelFiles::Open, which makes no others.
const ModelFilesImpl& Impl(const ModelFiles& files) { return static_cast<const ModelFilesImpl&>(files); }

}  // namespace

Service::Service(const ModelFiles& files, Scheduler& scheduler, ServiceOptions options)
    : files_(files),
      template_text_(Impl(files).template_text()),
      tokenizer_(*Impl(files).tokenizer()),
      format_(text::ChooseOutputFormat(template_text_, &tokenizer_)),
      scheduler_(scheduler),
      options_(std::move(options)),
      grammars_(options_.vocabulary != nullptr
                    ? std::make_unique<text::GrammarCache>(options_.vocabulary, kServiceBytes)
                    : nullptr),
      workers_(std::make_unique<Workers>(options_.workers)) {}

Service::~Service() = default;

void Service::Close() { workers_.reset(); }

void Service::Handle(HttpRequest request, std::shared_ptr<Exchange> exchange) {
  if (request.path == "/health") return exchange->Send({.body = R"({"status":"ok"})"});
  if (request.path == "/ready") {
    const bool draining = draining_.load(std::memory_order_relaxed);
    return exchange->Send(
        {.status = draining ? 503 : 200, .body = draining ? R"({"status":"stopping"})" : R"({"status":"ready"})"});
  }
  if (!HasKey(request, options_.keys)) {
    return SendError(request, *exchange, 401, "the API key is missing or not known; send Authorization: Bearer KEY",
                     "invalid_api_key");
  }
  if (Batches::Routes(request.path)) {
    if (options_.batches == nullptr) return exchange->Send(Batches::NotThere());
    return options_.batches->Handle(std::move(request), std::move(exchange));
  }
  if (workers_ == nullptr) return;
  workers_->Post([this, request = std::move(request), exchange = std::move(exchange)] { Answer(request, exchange); });
}

void Service::Answer(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  const std::string& path = request.path;
  const bool read = request.method == "GET" || request.method == "HEAD";
  const auto need = [&](bool right, const char* method) {
    if (!right) {
      HttpResponse response = OpenAiError(405, fmt::format("{} takes {}", path, method));
      response.headers.emplace_back("Allow", method);
      exchange->Send(std::move(response));
    }
    return right;
  };
  if (path == "/v1/models" || path.starts_with("/v1/models/")) {
    if (need(read, "GET")) exchange->Send(Models(path));
  } else if (path == "/metrics") {
    if (need(read, "GET")) exchange->Send(Metrics());
  } else if (path == "/v1/chat/completions" || path == "/chat/completions" || path == "/v1/completions" ||
             path == "/completions" || path == "/v1/messages" || path == "/messages") {
    if (need(request.method == "POST", "POST")) Generate(request, exchange);
  } else if (path == "/v1/messages/count_tokens") {
    if (need(request.method == "POST", "POST")) CountTokens(request, *exchange);
  } else {
    exchange->Send(OpenAiError(404, fmt::format("there is no {}", path), "not_found"));
  }
}

bool Service::Serves(const std::string& name) const {
  return name.empty() || name == options_.model_name ||
         std::find(options_.aliases.begin(), options_.aliases.end(), name) != options_.aliases.end();
}

Result<Service::Prepared> Service::Prepare(const TextRequest& request) {
  Prepared prepared;
  if (request.messages.is_null()) {
    prepared.prompt = request.prompt_ids;
    if (prepared.prompt.empty()) {
      ASSIGN_OR_RETURN(prepared.prompt, files_.EncodeWithSpecials(request.prompt));
    }
    ASSIGN_OR_RETURN(prepared.form, FormOf(request, prepared.reading));
    return prepared;
  }
  if (request.tools.is_null() && (request.tool_use == ToolUse::kRequired || request.tool_use == ToolUse::kNamed)) {
    return InvalidArgumentError("\"tool_choice\" asks for a call, but there are no \"tools\"");
  }
  const bool tools = !request.tools.is_null() && request.tool_use != ToolUse::kNone;
  if (tools && format_.tools == text::ToolFamily::kNone) {
    return UnsupportedError("\"tools\": this model's chat template knows no way to call them");
  }
  Json context(Json::Object{{"messages", request.messages},
                            {"tools", tools ? request.tools : Json()},
                            {"documents", Json()},
                            {"add_generation_prompt", true}});
  text::ReasoningControl control;
  const int64_t budget = ReasoningBudgetOf(request);
  if (const std::optional<bool> thinking = budget == 0 ? false : request.thinking) {
    control = text::ControlReasoning(format_, template_text_, *thinking ? text::Reasoning::kOn : text::Reasoning::kOff);
    for (const auto& [name, value] : control.template_kwargs) context.Set(name, value);
  }
  if (request.template_kwargs.is_object()) {
    for (const auto& [name, value] : request.template_kwargs.as_object()) context.Set(name, value);
  }
  Result<std::string> text = FormatChat(std::move(context));
  if (!text.ok() && text.status().code() == StatusCode::kNotFound) {
    return InvalidArgumentError("this model has no chat template; send its prompts to /v1/completions");
  }
  RETURN_IF_ERROR(text.status());
  const bool open = text::StartAfter(format_, *text) == text::OutputStart::kReasoning;
  *text += open ? control.append_when_open : control.append;
  prepared.reading = {.format = format_,
                      .tools = tools ? request.tools : Json(),
                      .start = text::StartAfter(format_, *text),
                      .reasoning_budget = budget};
  ASSIGN_OR_RETURN(prepared.prompt, files_.Encode(*text));
  ASSIGN_OR_RETURN(prepared.form, FormOf(request, prepared.reading));
  // What a form says follows the marker is the form's own.
  const text::ReasoningEnd end = text::ReasoningEndOf(format_);
  if (!end.marker.empty()) {
    ASSIGN_OR_RETURN(prepared.reading.reasoning_end,
                     files_.Encode(end.before + end.marker + (prepared.form == nullptr ? end.after : "")));
  }
  return prepared;
}

// Some templates ask whether a message's content is null; others fail on null, or write "None": these get "" instead.
Result<std::string> Service::FormatChat(Json context) const {
  Result<std::string> text = files_.FormatChat(WriteJson(context));
  const Json* const messages = context.Find("messages");
  if (!messages->is_array()) return text;
  Json::Array filled = messages->as_array();
  bool any = false;
  for (Json& message : filled) {
    const Json* const content = message.Find("content");
    if (!message.is_object() || (content != nullptr && !content->is_null())) continue;
    message.Set("content", "");
    any = true;
  }
  if (!any) return text;
  context.Set("messages", std::move(filled));
  Result<std::string> filled_text = files_.FormatChat(WriteJson(context));
  const bool writes_none = text.ok() && filled_text.ok() && CountOf(*text, "None") > CountOf(*filled_text, "None");
  return text.ok() && !writes_none ? text : filled_text;
}

int64_t Service::ReasoningBudgetOf(const TextRequest& request) const {
  if (request.reasoning_budget) return *request.reasoning_budget;
  if (template_text_.find("reasoning_effort") != std::string::npos) return -1;
  constexpr std::pair<std::string_view, int64_t> kShares[] = {{"minimal", 10}, {"low", 5}, {"medium", 2}};
  for (const auto& [effort, share] : kShares) {
    if (request.reasoning_effort == effort) return request.text.generate.max_tokens / share;
  }
  return -1;
}

Result<std::shared_ptr<text::CompiledGrammar>> Service::FormOf(const TextRequest& request,
                                                               const OutputReading& reading) {
  using Part = text::GrammarPart;
  std::vector<Part> ways;
  const bool forced =
      !reading.tools.is_null() && (request.tool_use == ToolUse::kRequired || request.tool_use == ToolUse::kNamed);
  if (forced) {
    for (text::ForcedCall& call : text::ForcedCalls(reading.format, reading.tools, request.tool_name, reading.start)) {
      ways.push_back(Part::Sequence({Part::Literal(std::move(call.prefix)), Part::JsonSchema(WriteJson(call.schema)),
                                     Part::Literal(std::move(call.suffix))}));
    }
    if (ways.empty()) {
      return InvalidArgumentError(fmt::format("\"tool_choice\": there is no tool '{}'", request.tool_name));
    }
  } else if (request.response == ResponseKind::kJsonObject) {
    ways.push_back(Part::JsonObject());
  } else if (request.response == ResponseKind::kJsonSchema) {
    ways.push_back(Part::JsonSchema(request.response_form));
  } else if (request.response == ResponseKind::kGrammar) {
    ways.push_back(Part::Gbnf(request.response_form));
  } else {
    return std::shared_ptr<text::CompiledGrammar>();
  }
  if (grammars_ == nullptr) {
    return UnsupportedError(
        "this model's tokenizer does not say which bytes its tokens are: outputs cannot be held to a form");
  }
  Part form = ways.size() == 1 ? std::move(ways.front()) : Part::OneOf(std::move(ways));
  // Reasoning that the prompt has opened is free, and ends before the answer. Forced calls have what stands between.
  if (reading.start == text::OutputStart::kReasoning) {
    const text::ReasoningEnd end = text::ReasoningEndOf(reading.format);
    std::vector<Part> parts{Part::TextUntil(end.marker)};
    if (!forced && end.after_required) parts.push_back(Part::Literal(end.after));
    parts.push_back(std::move(form));
    form = Part::Sequence(std::move(parts));
  }
  Result<std::shared_ptr<text::CompiledGrammar>> grammar = grammars_->Get(form);
  // Too large: that will not be better later.
  if (grammar.status().code() == StatusCode::kResourceExhausted) {
    return InvalidArgumentError(grammar.status().message());
  }
  return grammar;
}

void Service::Generate(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  const Api api = IsAnthropic(request.path)                          ? Api::kMessages
                  : request.path.find("/chat/") != std::string::npos ? Api::kChat
                                                                     : Api::kCompletion;
  const auto fail = [&](const Status& status) {
    SendError(request, *exchange, HttpStatusOf(status), status.message());
  };
  TextRequest defaults;
  defaults.text.generate.max_tokens = options_.default_max_tokens;
  const std::span<const Field> fields = api == Api::kMessages ? MessagesFields()
                                        : api == Api::kChat   ? ChatFields()
                                                              : CompletionFields();
  Result<TextRequest> parsed = ParseRequest(request.body, fields, defaults);
  if (!parsed.ok()) return fail(parsed.status());
  if (!Serves(parsed->model)) {
    return SendError(request, *exchange, 404,
                     fmt::format("the model '{}' is not served here; this is '{}'", parsed->model, options_.model_name),
                     "model_not_found");
  }
  if (api != Api::kCompletion && parsed->messages.is_null()) {
    return fail(InvalidArgumentError("\"messages\" is missing"));
  }
  if (api == Api::kCompletion && parsed->prompt.empty() && parsed->prompt_ids.empty()) {
    return fail(InvalidArgumentError("\"prompt\" is missing or empty"));
  }
  if (parsed->echo && parsed->text.generate.logprobs >= 0) {
    return fail(UnsupportedError("\"echo\" with \"logprobs\" is not supported: there are none of the prompt's tokens"));
  }
  Result<Prepared> prepared = Prepare(*parsed);
  if (!prepared.ok()) return fail(prepared.status());

  AnswerContext context{.exchange = exchange, .model = options_.model_name, .files = files_};
  std::unique_ptr<AnswerSink> sink = api == Api::kMessages
                                         ? MessagesAnswer(std::move(context), *parsed, std::ssize(prepared->prompt))
                                     : api == Api::kChat ? ChatAnswer(std::move(context), *parsed)
                                                         : CompletionAnswer(std::move(context), *parsed);
  if (options_.log_requests) {
    std::fprintf(
        stderr, "%s\n",
        fmt::format("{} {}: {} prompt tokens, at most {}, {}", request.method, request.path, prepared->prompt.size(),
                    parsed->text.generate.max_tokens, parsed->stream ? "streamed" : "whole")
            .c_str());
  }
  const Result<std::shared_ptr<Generation>> generation = Generation::Start(
      {.files = files_,
       .tokenizer = tokenizer_,
       .scheduler = scheduler_,
       .metrics = metrics_,
       .timeout_s = options_.timeout_s,
       .urgency = exchange->background() ? Urgency::kBackground : Urgency::kNormal},
      *parsed, std::move(prepared->reading), std::move(prepared->prompt), std::move(prepared->form), std::move(sink));
  if (!generation.ok()) return fail(generation.status());
  exchange->OnClosed([weak = std::weak_ptr<Generation>(*generation)] {
    if (const std::shared_ptr<Generation> running = weak.lock()) running->Cancel();
  });
}

void Service::CountTokens(const HttpRequest& request, Exchange& exchange) {
  const Result<TextRequest> parsed = ParseRequest(request.body, MessagesFields(), {});
  Status status = parsed.status();
  if (status.ok() && parsed->messages.is_null()) status = InvalidArgumentError("\"messages\" is missing");
  if (!status.ok()) return exchange.Send(AnthropicError(HttpStatusOf(status), status.message()));
  const Result<Prepared> prepared = Prepare(*parsed);
  if (!prepared.ok())
    return exchange.Send(AnthropicError(HttpStatusOf(prepared.status()), prepared.status().message()));
  exchange.Send({.body = WriteJson(Json(Json::Object{{"input_tokens", std::ssize(prepared->prompt)}}))});
}

Json Service::ModelJson(const std::string& name) const {
  return Json::Object{{"id", name},
                      {"object", "model"},
                      {"created", int64_t{0}},
                      {"owned_by", "nunspark"},
                      {"max_model_len", options_.context > 0 ? options_.context : files_.max_context()}};
}

HttpResponse Service::Models(const std::string& path) const {
  constexpr std::string_view kPrefix = "/v1/models/";
  if (path.starts_with(kPrefix)) {
    const std::string name = path.substr(kPrefix.size());
    if (!name.empty() && Serves(name)) return {.body = WriteJson(ModelJson(name))};
    return OpenAiError(404, fmt::format("the model '{}' is not served here", name), "model_not_found");
  }
  Json::Array models{ModelJson(options_.model_name)};
  for (const std::string& alias : options_.aliases) models.push_back(ModelJson(alias));
  return {.body = WriteJson(Json(Json::Object{{"object", "list"}, {"data", std::move(models)}}))};
}

HttpResponse Service::Metrics() const {
  const SchedulerStats scheduler = scheduler_.stats();
  PrometheusText text(options_.model_name);
  metrics_.AddTo(text);
  text.Gauge("requests_running", "Sequences that are being decoded.", scheduler.running);
  text.Gauge("requests_waiting", "Requests in the queue.", scheduler.waiting);
  text.Gauge("batch_sequences_running", "Of those that are being decoded, lines of batches.",
             scheduler.background_running);
  text.Counter("steps_total", "Passes of the model.", scheduler.steps);
  AddEngine(scheduler_.engine_stats(), text);
  if (options_.batches != nullptr) options_.batches->AddTo(text);
  return {.content_type = "text/plain; version=0.0.4; charset=utf-8", .body = text.Take()};
}

std::string ModelNameOf(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path.substr(path.rfind('/') + 1);
}

Result<std::shared_ptr<const text::GrammarVocabulary>> VocabularyOf(const ModelFiles& files) {
  return text::GrammarVocabulary::Create(*Impl(files).tokenizer(),
                                         {.end_tokens = files.stop_ids(), .spelled_only = {}});
}

std::string ServingApiDocument() {
  std::string text =
      "# What the server honours\n\nWritten by `nunspark serving-api`, from the tables that parse requests; a test "
      "compares. "
      "Fields that stand in no table are ignored. A field that is null counts as absent; one of a wrong type is "
      "refused by "
      "its name.\n";
  const auto table = [&](std::string_view title, std::span<const Field> fields) {
    text += fmt::format("\n## {}\n\n| field | | |\n|---|---|---|\n", title);
    for (const Field& field : fields) {
      const std::string_view use = field.use == FieldUse::kHonoured  ? "honoured"
                                   : field.use == FieldUse::kIgnored ? "ignored"
                                                                     : "refused";
      text += fmt::format("| `{}` | {} | {} |\n", field.name, use, field.note);
    }
  };
  table("POST /v1/chat/completions", ChatFields());
  table("POST /v1/completions", CompletionFields());
  table("POST /v1/messages, /v1/messages/count_tokens", MessagesFields());
  return text + BatchesDocument();
}

}  // namespace nunspark::server
