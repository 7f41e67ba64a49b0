#include "server/answers.h"
#include "server/event_stream.h"

#include <atomic>
#include <chrono>
#include <mutex>
#include <random>
#include <utility>

#include <fmt/format.h>

#include "base/utf8.h"

namespace nunspark::server {
namespace {

using text::OutputDelta;

// Probabilities of an answer that is not a stream, which is in memory as a whole: about 100 MB of JSON.
constexpr int64_t kMostProbabilities = 1 << 17;

std::string_view FinishText(AnswerEnd end) {
  switch (end) {
    case AnswerEnd::kStop:
    case AnswerEnd::kStopString: return "stop";
    case AnswerEnd::kToolCalls: return "tool_calls";
    case AnswerEnd::kLength: return "length";
    case AnswerEnd::kCancelled: return "cancelled";
  }
  return "";
}

Json UsageJson(const Usage& usage) {
  return Json::Object{{"prompt_tokens", usage.prompt_tokens},
                      {"completion_tokens", usage.completion_tokens},
                      {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
                      {"prompt_tokens_details", Json::Object{{"cached_tokens", usage.cached_tokens}}}};
}

// The text of one token, as JSON wants it: bytes that are no UTF-8 by themselves stand as U+FFFD, and as numbers
// beside.
Json TokenJson(const ModelFiles& files, int32_t token, float logprob) {
  const Result<std::string> text = files.Decode({&token, 1}, false);
  Json::Array bytes;
  if (text.ok()) {
    for (const char byte : *text) bytes.emplace_back(int64_t{static_cast<uint8_t>(byte)});
  }
  return Json::Object{{"token", text.ok() ? *text : std::string()},
                      {"logprob", static_cast<double>(logprob)},
                      {"bytes", std::move(bytes)}};
}

Json ProbabilitiesJson(const ModelFiles& files, const std::vector<TokenProbability>& probabilities) {
  Json::Array content;
  for (const TokenProbability& one : probabilities) {
    Json token = TokenJson(files, one.token.token, one.token.logprob);
    Json::Array best;
    for (const TokenLogprob& other : one.best) best.push_back(TokenJson(files, other.token, other.logprob));
    token.Set("top_logprobs", std::move(best));
    content.push_back(std::move(token));
  }
  return Json::Object{{"content", std::move(content)}};
}

// As clients count them: Unicode characters.
int64_t Characters(std::string_view text) {
  int64_t count = 0;
  for (size_t at = 0; at < text.size(); ++count) at += DecodeUtf8(text, at).bytes;
  return count;
}

// As completions have them: by parallel lists. `offset`: characters before the first.
Json CompletionLogprobs(const ModelFiles& files, const std::vector<TokenProbability>& probabilities, int64_t offset) {
  Json::Array tokens, logprobs, best, offsets;
  for (const TokenProbability& one : probabilities) {
    const auto text_of = [&](int32_t token) {
      const Result<std::string> text = files.Decode({&token, 1}, false);
      return text.ok() ? *text : std::string();
    };
    const std::string text = text_of(one.token.token);
    Json others(Json::Object{});
    for (const TokenLogprob& other : one.best) {
      // Of tokens that look the same, the most probable.
      const std::string its_text = text_of(other.token);
      if (others.Find(its_text) == nullptr) others.Set(its_text, static_cast<double>(other.logprob));
    }
    offsets.emplace_back(offset);
    offset += Characters(text);
    tokens.emplace_back(text);
    logprobs.emplace_back(static_cast<double>(one.token.logprob));
    best.emplace_back(std::move(others));
  }
  return Json::Object{{"tokens", std::move(tokens)},
                      {"token_logprobs", std::move(logprobs)},
                      {"top_logprobs", std::move(best)},
                      {"text_offset", std::move(offsets)}};
}

// What the three forms share: one answer per choice, whole at the end or event by event.
class Answers : public AnswerSink {
 public:
  Answers(AnswerContext context, const TextRequest& request)
      : context_(std::move(context)),
        stream_(request.stream),
        include_usage_(request.include_usage),
        probabilities_(request.text.generate.logprobs >= 0),
        choices_(static_cast<size_t>(request.choices)) {}

  // A stream begins before its first token: whoever waits sees that it lives.
  void OnQueued() override {
    const std::lock_guard lock(mutex_);
    if (stream_ && !ended_) Stream({});
  }

  void OnPrompt(int64_t done, int64_t total) override {
    const std::lock_guard lock(mutex_);
    // A comment: whoever waits sees that the connection lives, and how far the prompt is.
    if (stream_ && done < total) Stream(fmt::format(": prompt {}/{}\n\n", done, total));
  }

  void OnDeltas(int32_t choice, const std::vector<OutputDelta>& deltas,
                const std::vector<TokenProbability>& probabilities) override {
    const std::lock_guard lock(mutex_);
    Choice& c = choices_[static_cast<size_t>(choice)];
    if (stream_) {
      Stream(DeltaEvents(choice, c, deltas, probabilities));
      c.begun = true;
      return;
    }
    for (const OutputDelta& delta : deltas) c.Add(delta);
    for (const TokenProbability& one : probabilities) kept_probabilities_ += 1 + std::ssize(one.best);
    if (TooMany()) return;
    c.probabilities.insert(c.probabilities.end(), probabilities.begin(), probabilities.end());
  }

  void OnAnswerEnd(int32_t choice, AnswerEnd end, const std::string& stop) override {
    const std::lock_guard lock(mutex_);
    Choice& c = choices_[static_cast<size_t>(choice)];
    c.end = end;
    c.stop = stop;
    if (stream_ && end != AnswerEnd::kCancelled) Stream(EndEvents(choice, c, end));
  }

  void OnEnd(const Status& status, const Usage& usage) override {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    if (TooMany()) {
      const Status reason = InvalidArgumentError(
          fmt::format("an answer that is not streamed holds {} logprobs at most; ask for fewer, or for a stream",
                      kMostProbabilities));
      context_.exchange->Send(ErrorOf(HttpStatusOf(reason), reason.message()));
    } else if (!status.ok()) {
      if (begun_) {
        Stream("event: error\n" + EventText(ErrorJson(status)));
        context_.exchange->End();
      } else {
        context_.exchange->Send(ErrorOf(HttpStatusOf(status), status.message()));
      }
    } else if (stream_) {
      Stream(LastEvents(usage));
      context_.exchange->End();
    } else {
      context_.exchange->Send({.body = WriteJson(Whole(usage))});
    }
  }

  bool closed() const override { return context_.exchange->closed() || TooMany(); }

 protected:
  struct Call {
    std::string id, name, arguments;
  };
  struct Choice {
    std::string text, reasoning;
    std::vector<Call> calls;
    std::vector<TokenProbability> probabilities;
    AnswerEnd end = AnswerEnd::kStop;
    std::string stop;
    // Of a stream.
    bool begun = false;
    int64_t sent_characters = 0;

    void Add(const OutputDelta& delta) {
      switch (delta.kind) {
        case OutputDelta::Kind::kContent: text += delta.text; break;
        case OutputDelta::Kind::kReasoning: reasoning += delta.text; break;
        case OutputDelta::Kind::kCallBegin:
          calls.push_back({.id = delta.id, .name = delta.text, .arguments = {}});
          break;
        case OutputDelta::Kind::kCallArguments: calls.back().arguments += delta.text; break;
        case OutputDelta::Kind::kCallEnd: break;
      }
    }
  };

  virtual std::string FirstEvents() { return {}; }
  virtual std::string DeltaEvents(int32_t choice, Choice& c, const std::vector<OutputDelta>& deltas,
                                  const std::vector<TokenProbability>& probabilities) = 0;
  virtual std::string EndEvents(int32_t choice, const Choice& c, AnswerEnd end) = 0;
  virtual std::string LastEvents(const Usage& usage) = 0;
  virtual Json Whole(const Usage& usage) = 0;
  virtual Json ErrorJson(const Status& status) = 0;
  virtual HttpResponse ErrorOf(int status, const std::string& message) = 0;

  void Stream(const std::string& events) {
    if (!std::exchange(begun_, true)) {
      context_.exchange->Begin(200, kEventStream, EventHeaders(), ": waiting\n\n");
      context_.exchange->Write(FirstEvents());
    }
    context_.exchange->Write(events);
  }

  bool TooMany() const { return kept_probabilities_ > kMostProbabilities; }

  const AnswerContext context_;
  const bool stream_, include_usage_, probabilities_;
  std::vector<Choice> choices_;
  int64_t kept_probabilities_ = 0;  // of what is not a stream; of the scheduler's thread
  std::mutex mutex_;
  bool begun_ = false, ended_ = false;
};

class OpenAiAnswers : public Answers {
 public:
  OpenAiAnswers(AnswerContext context, const TextRequest& request, std::string id, std::string object)
      : Answers(std::move(context), request), id_(std::move(id)), object_(std::move(object)) {}

 protected:
  Json Envelope(std::string_view object, Json::Array choices) const {
    return Json::Object{{"id", id_},
                        {"object", object},
                        {"created", created_},
                        {"model", context_.model},
                        {"choices", std::move(choices)}};
  }

  std::string LastEvents(const Usage& usage) override {
    std::string events;
    if (include_usage_) {
      Json json = Envelope(EventObject(), {});
      json.Set("usage", UsageJson(usage));
      events = EventText(json);
    }
    return events + "data: [DONE]\n\n";
  }
  Json Whole(const Usage& usage) override {
    Json::Array choices;
    for (size_t i = 0; i < choices_.size(); ++i) choices.push_back(WholeChoice(static_cast<int64_t>(i), choices_[i]));
    Json json = Envelope(object_, std::move(choices));
    json.Set("usage", UsageJson(usage));
    return json;
  }
  Json ErrorJson(const Status& status) override {
    return ParseJson(OpenAiError(HttpStatusOf(status), status.message()).body, "error").value();
  }
  HttpResponse ErrorOf(int status, const std::string& message) override { return OpenAiError(status, message); }

  virtual std::string EventObject() const = 0;
  virtual Json WholeChoice(int64_t index, const Choice& choice) const = 0;

  const std::string id_, object_;
  const int64_t created_ = UnixTime();
};

class ChatAnswers : public OpenAiAnswers {
 public:
  ChatAnswers(AnswerContext context, const TextRequest& request)
      : OpenAiAnswers(std::move(context), request, "chatcmpl-" + NewId(32), "chat.completion") {}

 protected:
  std::string EventObject() const override { return "chat.completion.chunk"; }

  std::string DeltaEvent(int32_t choice, Json delta, Json finish, Json logprobs) const {
    Json json(
        Json::Object{{"index", int64_t{choice}}, {"delta", std::move(delta)}, {"finish_reason", std::move(finish)}});
    if (probabilities_) json.Set("logprobs", std::move(logprobs));
    return EventText(Envelope(EventObject(), {std::move(json)}));
  }

  static Json DeltaJson(const OutputDelta& delta) {
    switch (delta.kind) {
      case OutputDelta::Kind::kContent: return Json::Object{{"content", delta.text}};
      case OutputDelta::Kind::kReasoning: return Json::Object{{"reasoning_content", delta.text}};
      case OutputDelta::Kind::kCallBegin:
        return Json::Object{{"tool_calls", Json::Array{Json::Object{
                                               {"index", int64_t{delta.call_index}},
                                               {"id", delta.id},
                                               {"type", "function"},
                                               {"function", Json::Object{{"name", delta.text}, {"arguments", ""}}}}}}};
      case OutputDelta::Kind::kCallArguments:
        return Json::Object{
            {"tool_calls", Json::Array{Json::Object{{"index", int64_t{delta.call_index}},
                                                    {"function", Json::Object{{"arguments", delta.text}}}}}}};
      case OutputDelta::Kind::kCallEnd: break;
    }
    return Json();
  }

  std::string DeltaEvents(int32_t choice, Choice& c, const std::vector<OutputDelta>& deltas,
                          const std::vector<TokenProbability>& probabilities) override {
    std::string events;
    bool first = !c.begun, told = false;
    for (const OutputDelta& delta : deltas) {
      Json json = DeltaJson(delta);
      if (json.is_null()) continue;
      if (std::exchange(first, false)) json.Set("role", "assistant");
      const bool tell = delta.kind == OutputDelta::Kind::kContent && !std::exchange(told, true);
      events +=
          DeltaEvent(choice, std::move(json), Json(), tell ? ProbabilitiesJson(context_.files, probabilities) : Json());
    }
    return events;
  }
  std::string EndEvents(int32_t choice, const Choice& c, AnswerEnd end) override {
    Json delta(Json::Object{});
    if (!c.begun) {
      delta.Set("role", "assistant");
      delta.Set("content", "");
    }
    return DeltaEvent(choice, std::move(delta), FinishText(end), Json());
  }
  Json WholeChoice(int64_t index, const Choice& choice) const override {
    Json message(Json::Object{{"role", "assistant"}});
    message.Set("content", choice.text.empty() && !choice.calls.empty() ? Json() : Json(choice.text));
    if (!choice.reasoning.empty()) message.Set("reasoning_content", choice.reasoning);
    if (!choice.calls.empty()) {
      Json::Array calls;
      for (const Call& call : choice.calls) {
        calls.push_back(Json::Object{{"id", call.id},
                                     {"type", "function"},
                                     {"function", Json::Object{{"name", call.name}, {"arguments", call.arguments}}}});
      }
      message.Set("tool_calls", std::move(calls));
    }
    Json json(
        Json::Object{{"index", index}, {"message", std::move(message)}, {"finish_reason", FinishText(choice.end)}});
    json.Set("logprobs", probabilities_ ? ProbabilitiesJson(context_.files, choice.probabilities) : Json());
    return json;
  }
};

class CompletionAnswers : public OpenAiAnswers {
 public:
  CompletionAnswers(AnswerContext context, const TextRequest& request)
      : OpenAiAnswers(std::move(context), request, "cmpl-" + NewId(32), "text_completion"),
        echo_(request.echo ? PromptText(context_.files, request) : std::string()) {}

 protected:
  std::string EventObject() const override { return "text_completion"; }

  std::string DeltaEvents(int32_t choice, Choice& c, const std::vector<OutputDelta>& deltas,
                          const std::vector<TokenProbability>& probabilities) override {
    std::string text;
    for (const OutputDelta& delta : deltas) text += delta.text;
    Json json(
        Json::Object{{"index", int64_t{choice}}, {"text", c.begun ? text : echo_ + text}, {"finish_reason", Json()}});
    json.Set("logprobs",
             probabilities_ ? CompletionLogprobs(context_.files, probabilities, c.sent_characters) : Json());
    c.sent_characters += Characters(text);
    return EventText(Envelope(EventObject(), {std::move(json)}));
  }
  std::string EndEvents(int32_t choice, const Choice& c, AnswerEnd end) override {
    Json json(Json::Object{{"index", int64_t{choice}},
                           {"text", c.begun ? std::string() : echo_},
                           {"finish_reason", FinishText(end)},
                           {"logprobs", Json()}});
    return EventText(Envelope(EventObject(), {std::move(json)}));
  }
  Json WholeChoice(int64_t index, const Choice& choice) const override {
    return Json::Object{
        {"index", index},
        {"text", echo_ + choice.text},
        {"finish_reason", FinishText(choice.end)},
        {"logprobs", probabilities_ ? CompletionLogprobs(context_.files, choice.probabilities, 0) : Json()}};
  }

 private:
  static std::string PromptText(const ModelFiles& files, const TextRequest& request) {
    if (request.prompt_ids.empty()) return request.prompt;
    // Ids that are none are refused when it is submitted.
    const Result<std::string> text = files.Decode(request.prompt_ids, false);
    return text.ok() ? *text : std::string();
  }

  const std::string echo_;
};

class MessagesAnswers : public Answers {
 public:
  MessagesAnswers(AnswerContext context, const TextRequest& request, int64_t prompt_tokens)
      : Answers(std::move(context), request), prompt_tokens_(prompt_tokens) {}

 protected:
  static std::string Named(std::string_view name, Json data) {
    data.Set("type", name);
    return fmt::format("event: {}\ndata: {}\n\n", name, WriteJson(data));
  }

  Json Message(Json::Array content, Json stop_reason, const Usage& usage) const {
    return Json::Object{{"id", id_},
                        {"type", "message"},
                        {"role", "assistant"},
                        {"content", std::move(content)},
                        {"model", context_.model},
                        {"stop_reason", std::move(stop_reason)},
                        {"stop_sequence", Json()},
                        {"usage", UsageJson(usage)}};
  }

  static Json UsageJson(const Usage& usage) {
    return Json::Object{{"input_tokens", usage.prompt_tokens - usage.cached_tokens},
                        {"cache_creation_input_tokens", int64_t{0}},
                        {"cache_read_input_tokens", usage.cached_tokens},
                        {"output_tokens", usage.completion_tokens}};
  }

  static std::string_view Reason(AnswerEnd end) {
    switch (end) {
      case AnswerEnd::kStop:
      case AnswerEnd::kCancelled: return "end_turn";
      case AnswerEnd::kStopString: return "stop_sequence";
      case AnswerEnd::kToolCalls: return "tool_use";
      case AnswerEnd::kLength: return "max_tokens";
    }
    return "";
  }

  std::string FirstEvents() override {
    return Named("message_start", Json::Object{{"message", Message({}, Json(), {.prompt_tokens = prompt_tokens_})}}) +
           Named("ping", Json::Object{});
  }
  // One block after the other: reasoning, text, calls of tools.
  std::string BlockStart(Json block) {
    std::string events = BlockEnd();
    open_ = true;
    return events + Named("content_block_start", Json::Object{{"index", block_}, {"content_block", std::move(block)}});
  }
  std::string BlockEnd() {
    if (!std::exchange(open_, false)) return {};
    return Named("content_block_stop", Json::Object{{"index", block_++}});
  }
  std::string BlockDelta(Json delta) const {
    return Named("content_block_delta", Json::Object{{"index", block_}, {"delta", std::move(delta)}});
  }

  std::string DeltaEvents(int32_t, Choice&, const std::vector<OutputDelta>& deltas,
                          const std::vector<TokenProbability>&) override {
    std::string events;
    for (const OutputDelta& delta : deltas) {
      const bool goes_on = open_ && delta.kind == kind_;
      switch (delta.kind) {
        case OutputDelta::Kind::kContent:
          if (!goes_on) events += BlockStart(Json::Object{{"type", "text"}, {"text", ""}});
          events += BlockDelta(Json::Object{{"type", "text_delta"}, {"text", delta.text}});
          break;
        case OutputDelta::Kind::kReasoning:
          if (!goes_on) events += BlockStart(Json::Object{{"type", "thinking"}, {"thinking", ""}, {"signature", ""}});
          events += BlockDelta(Json::Object{{"type", "thinking_delta"}, {"thinking", delta.text}});
          break;
        case OutputDelta::Kind::kCallBegin:
          events += BlockStart(
              Json::Object{{"type", "tool_use"}, {"id", delta.id}, {"name", delta.text}, {"input", Json::Object{}}});
          break;
        case OutputDelta::Kind::kCallArguments:
          events += BlockDelta(Json::Object{{"type", "input_json_delta"}, {"partial_json", delta.text}});
          break;
        case OutputDelta::Kind::kCallEnd: events += BlockEnd(); break;
      }
      kind_ = delta.kind;
    }
    return events;
  }
  std::string EndEvents(int32_t, const Choice& c, AnswerEnd) override {
    return (c.begun ? std::string() : BlockStart(Json::Object{{"type", "text"}, {"text", ""}})) + BlockEnd();
  }
  std::string LastEvents(const Usage& usage) override {
    const Choice& choice = choices_.front();
    return Named("message_delta", Json::Object{{"delta", Json::Object{{"stop_reason", Reason(choice.end)},
                                                                      {"stop_sequence", StopOf(choice)}}},
                                               {"usage", UsageJson(usage)}}) +
           Named("message_stop", Json::Object{});
  }
  Json Whole(const Usage& usage) override {
    const Choice& choice = choices_.front();
    Json::Array content;
    if (!choice.reasoning.empty()) {
      content.push_back(Json::Object{{"type", "thinking"}, {"thinking", choice.reasoning}, {"signature", ""}});
    }
    if (!choice.text.empty() || choice.calls.empty()) {
      content.push_back(Json::Object{{"type", "text"}, {"text", choice.text}});
    }
    for (const Call& call : choice.calls) {
      Result<Json> input = ParseJson(call.arguments, "arguments");
      content.push_back(Json::Object{{"type", "tool_use"},
                                     {"id", call.id},
                                     {"name", call.name},
                                     {"input", input.ok() ? std::move(input).value() : Json(Json::Object{})}});
    }
    Json message = Message(std::move(content), Reason(choice.end), usage);
    message.Set("stop_sequence", StopOf(choice));
    return message;
  }
  Json ErrorJson(const Status& status) override {
    return ParseJson(AnthropicError(HttpStatusOf(status), status.message()).body, "error").value();
  }
  HttpResponse ErrorOf(int status, const std::string& message) override { return AnthropicError(status, message); }

 private:
  static Json StopOf(const Choice& choice) { return choice.end == AnswerEnd::kStopString ? Json(choice.stop) : Json(); }

  const std::string id_ = "msg_" + NewId(24);
  const int64_t prompt_tokens_;
  // Of the stream: the block that is open, and what it is.
  int64_t block_ = 0;
  bool open_ = false;
  OutputDelta::Kind kind_ = OutputDelta::Kind::kContent;
};

}  // namespace

std::unique_ptr<AnswerSink> ChatAnswer(AnswerContext context, const TextRequest& request) {
  return std::make_unique<ChatAnswers>(std::move(context), request);
}

std::unique_ptr<AnswerSink> CompletionAnswer(AnswerContext context, const TextRequest& request) {
  return std::make_unique<CompletionAnswers>(std::move(context), request);
}

std::unique_ptr<AnswerSink> MessagesAnswer(AnswerContext context, const TextRequest& request, int64_t prompt_tokens) {
  return std::make_unique<MessagesAnswers>(std::move(context), request, prompt_tokens);
}

int HttpStatusOf(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk: return 200;
    case StatusCode::kInvalidArgument:
    case StatusCode::kUnsupported: return 400;
    case StatusCode::kNotFound: return 404;
    case StatusCode::kPermission: return 403;
    case StatusCode::kResourceExhausted: return 429;
    case StatusCode::kCancelled: return 504;
    case StatusCode::kDataLoss:
    case StatusCode::kIo: return 500;
  }
  return 500;
}

HttpResponse OpenAiError(int status, const std::string& message, const std::string& code) {
  const char* const type = status == 401   ? "authentication_error"
                           : status == 429 ? "rate_limit_error"
                           : status >= 500 ? "server_error"
                                           : "invalid_request_error";
  HttpResponse response{
      .status = status,
      .body = WriteJson(Json(Json::Object{{"error", Json::Object{{"message", message},
                                                                 {"type", type},
                                                                 {"param", Json()},
                                                                 {"code", code.empty() ? Json() : Json(code)}}}}))};
  if (status == 429) response.headers.emplace_back("Retry-After", "1");
  return response;
}

HttpResponse AnthropicError(int status, const std::string& message) {
  const char* const type = status == 401   ? "authentication_error"
                           : status == 403 ? "permission_error"
                           : status == 404 ? "not_found_error"
                           : status == 413 ? "request_too_large"
                           : status == 429 ? "rate_limit_error"
                           : status >= 500 ? "api_error"
                                           : "invalid_request_error";
  HttpResponse response{.status = status,
                        .body = WriteJson(Json(Json::Object{
                            {"type", "error"}, {"error", Json::Object{{"type", type}, {"message", message}}}}))};
  if (status == 429) response.headers.emplace_back("Retry-After", "1");
  return response;
}

std::string NewId(int digits) {
  static const uint64_t process = (uint64_t{std::random_device()()} << 32) | std::random_device()();
  static std::atomic<uint64_t> next{0};
  const uint64_t count = next.fetch_add(1, std::memory_order_relaxed) * 0x9E3779B97F4A7C15u;
  return fmt::format("{:016x}{:016x}", process, count ^ (process << 1)).substr(32 - static_cast<size_t>(digits));
}

int64_t UnixTime() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace nunspark::server
