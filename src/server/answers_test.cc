#include "server/answers.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace nunspark::server {
namespace {

using text::OutputDelta;
using Kind = OutputDelta::Kind;

class FakeExchange : public Exchange {
 public:
  void Send(HttpResponse response) override { whole = std::move(response); }
  void Begin(int status, std::string content_type, Headers, std::string) override {
    begun = true;
    whole.status = status;
    whole.content_type = std::move(content_type);
  }
  void Write(std::string part) override { stream += part; }
  void End() override { ended = true; }
  bool closed() const override { return false; }
  void OnClosed(std::function<void()>) override {}

  HttpResponse whole;
  std::string stream;
  bool begun = false, ended = false;
};

// Reasoning, text, and two calls, the second in pieces.
const std::vector<std::vector<OutputDelta>> kDeltas = {
    {{.kind = Kind::kReasoning, .text = "Hm, ", .id = {}}},
    {{.kind = Kind::kReasoning, .text = "tools.", .id = {}}, {.kind = Kind::kContent, .text = "Let me ", .id = {}}},
    {{.kind = Kind::kContent, .text = "look.", .id = {}}},
    {{.kind = Kind::kCallBegin, .text = "weather", .id = "call_1", .call_index = 0},
     {.kind = Kind::kCallArguments, .text = R"({"city":"Bern"})", .id = {}, .call_index = 0},
     {.kind = Kind::kCallEnd, .text = {}, .id = {}, .call_index = 0, .whole = true}},
    {{.kind = Kind::kCallBegin, .text = "time", .id = "call_2", .call_index = 1}},
    {{.kind = Kind::kCallArguments, .text = "{", .id = {}, .call_index = 1}},
    {{.kind = Kind::kCallArguments, .text = "}", .id = {}, .call_index = 1},
     {.kind = Kind::kCallEnd, .text = {}, .id = {}, .call_index = 1, .whole = true}}};

class AnswersTest : public testing::Test {
 protected:
  AnswerContext Context() { return {.exchange = exchange_, .model = "m", .files = *files_}; }

  static void Play(AnswerSink& sink) {
    for (const std::vector<OutputDelta>& deltas : kDeltas) sink.OnDeltas(0, deltas, {});
    sink.OnAnswerEnd(0, AnswerEnd::kToolCalls, "");
    sink.OnEnd(Status(), {.prompt_tokens = 70, .completion_tokens = 9, .cached_tokens = 64});
  }

  std::vector<Json> Events() const {
    std::vector<Json> events;
    for (size_t at = 0; (at = exchange_->stream.find("data: {", at)) != std::string::npos; ++at) {
      const size_t end = exchange_->stream.find('\n', at);
      events.push_back(ParseJson(exchange_->stream.substr(at + 6, end - at - 6), "event").value());
    }
    return events;
  }

  std::shared_ptr<FakeExchange> exchange_ = std::make_shared<FakeExchange>();
  std::unique_ptr<ModelFiles> files_ =
      ModelFiles::Open(std::string(NUNSPARK_SOURCE_DIR) + "/tests/data/goldens/llama").value();
};

TEST_F(AnswersTest, AChatWithCallsIsWholeInOpenAisForm) {
  Play(*ChatAnswer(Context(), {}));
  const Json json = ParseJson(exchange_->whole.body, "body").value();
  const Json& choice = json.Find("choices")->as_array()[0];
  EXPECT_EQ(choice.Find("finish_reason")->as_string(), "tool_calls");
  const Json& message = *choice.Find("message");
  EXPECT_EQ(message.Find("content")->as_string(), "Let me look.");
  EXPECT_EQ(message.Find("reasoning_content")->as_string(), "Hm, tools.");
  const Json::Array& calls = message.Find("tool_calls")->as_array();
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(WriteJson(calls[0]),
            R"({"id":"call_1","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Bern\"}"}})");
  EXPECT_EQ(calls[1].Find("function")->Find("arguments")->as_string(), "{}");
  EXPECT_EQ(json.Find("usage")->Find("prompt_tokens_details")->Find("cached_tokens")->as_int(), 64);
}

TEST_F(AnswersTest, AndTheSameInEvents) {
  TextRequest request;
  request.stream = true;
  Play(*ChatAnswer(Context(), request));
  EXPECT_TRUE(exchange_->ended);
  EXPECT_TRUE(exchange_->stream.ends_with("data: [DONE]\n\n"));
  std::string content, reasoning, arguments[2], names;
  int roles = 0;
  for (const Json& event : Events()) {
    const Json& delta = *event.Find("choices")->as_array()[0].Find("delta");
    roles += delta.Find("role") != nullptr ? 1 : 0;
    if (const Json* const text = delta.Find("content")) content += text->as_string();
    if (const Json* const text = delta.Find("reasoning_content")) reasoning += text->as_string();
    const Json* const calls = delta.Find("tool_calls");
    if (calls == nullptr) continue;
    const Json& call = calls->as_array()[0];
    if (const Json* const name = call.Find("function")->Find("name")) names += name->as_string() + ",";
    arguments[call.Find("index")->as_int()] += call.Find("function")->Find("arguments")->as_string();
  }
  EXPECT_EQ(roles, 1);
  EXPECT_EQ(content, "Let me look.");
  EXPECT_EQ(reasoning, "Hm, tools.");
  EXPECT_EQ(names, "weather,time,");
  EXPECT_EQ(arguments[0], R"({"city":"Bern"})");
  EXPECT_EQ(arguments[1], "{}");
}

TEST_F(AnswersTest, AMessageWithCallsIsAListOfBlocks) {
  Play(*MessagesAnswer(Context(), {}, 70));
  const Json json = ParseJson(exchange_->whole.body, "body").value();
  EXPECT_EQ(json.Find("stop_reason")->as_string(), "tool_use");
  const Json::Array& content = json.Find("content")->as_array();
  ASSERT_EQ(content.size(), 4u);
  EXPECT_EQ(content[0].Find("thinking")->as_string(), "Hm, tools.");
  EXPECT_EQ(content[1].Find("text")->as_string(), "Let me look.");
  EXPECT_EQ(WriteJson(content[2]), R"({"type":"tool_use","id":"call_1","name":"weather","input":{"city":"Bern"}})");
  EXPECT_EQ(json.Find("usage")->Find("input_tokens")->as_int(), 6);

  TextRequest request;
  request.stream = true;
  Play(*MessagesAnswer(Context(), request, 70));
  std::vector<std::string> blocks;
  std::string inputs;
  int64_t open = -1, next = 0;
  for (const Json& event : Events()) {
    const std::string& type = event.Find("type")->as_string();
    if (type == "content_block_start") {
      EXPECT_EQ(open, -1);
      open = event.Find("index")->as_int();
      EXPECT_EQ(open, next++);
      blocks.push_back(event.Find("content_block")->Find("type")->as_string());
    } else if (type == "content_block_delta") {
      EXPECT_EQ(event.Find("index")->as_int(), open);
      if (const Json* const part = event.Find("delta")->Find("partial_json")) inputs += part->as_string();
    } else if (type == "content_block_stop") {
      EXPECT_EQ(event.Find("index")->as_int(), open);
      open = -1;
    }
  }
  EXPECT_EQ(blocks, (std::vector<std::string>{"thinking", "text", "tool_use", "tool_use"}));
  EXPECT_EQ(inputs, R"({"city":"Bern"}{})");
  // What was found of the prompt is known at the end.
  const std::vector<Json> events = Events();
  EXPECT_EQ(events.front().Find("message")->Find("usage")->Find("input_tokens")->as_int(), 70);
  EXPECT_EQ(*events[events.size() - 2].Find("usage"), *json.Find("usage"));
}

TEST_F(AnswersTest, TokensOfCompletionsStandAtCharacters) {
  const std::unique_ptr<ModelFiles> demo =
      ModelFiles::Open(std::string(NUNSPARK_SOURCE_DIR) + "/models/demo-moe-4bit").value();
  // Two tokens that are a character together, each by itself none.
  const std::vector<int32_t> ids = demo->Encode("é").value();
  ASSERT_EQ(ids.size(), 2u);
  TextRequest request;
  request.prompt_ids = demo->Encode("Once").value();
  request.echo = true;
  request.text.generate.logprobs = 2;
  const std::vector<TokenLogprob> best = {{.token = ids[0], .logprob = -1}, {.token = ids[1], .logprob = -2}};
  const std::vector<TokenProbability> probabilities = {{.token = {.token = ids[0], .logprob = -1}, .best = best},
                                                       {.token = {.token = ids[1], .logprob = -1}, .best = best}};
  const auto play = [&] {
    const std::unique_ptr<AnswerSink> sink =
        CompletionAnswer({.exchange = exchange_, .model = "m", .files = *demo}, request);
    sink->OnDeltas(0, {{.kind = Kind::kContent, .text = "é", .id = {}}}, probabilities);
    sink->OnDeltas(0, {{.kind = Kind::kContent, .text = "é", .id = {}}}, probabilities);
    sink->OnAnswerEnd(0, AnswerEnd::kStop, "");
    sink->OnEnd(Status(), {});
  };
  play();
  const Json json = ParseJson(exchange_->whole.body, "body").value();
  const Json& choice = json.Find("choices")->as_array()[0];
  EXPECT_EQ(choice.Find("text")->as_string(), "Onceéé");
  const Json& logprobs = *choice.Find("logprobs");
  EXPECT_EQ(WriteJson(*logprobs.Find("text_offset")), "[0,1,2,3]");
  // Of two that look the same the first counts: no member stands twice.
  EXPECT_EQ(logprobs.Find("top_logprobs")->as_array()[0].as_object().size(), 1u);
  EXPECT_EQ(logprobs.Find("top_logprobs")->as_array()[0].as_object()[0].second.as_double(), -1);
  request.stream = true;
  play();
  EXPECT_EQ(WriteJson(*Events()[1].Find("choices")->as_array()[0].Find("logprobs")->Find("text_offset")), "[1,2]");
}

TEST_F(AnswersTest, ProbabilitiesAreBoundedButInStreams) {
  TextRequest request;
  request.text.generate.logprobs = 20;
  const std::vector<TokenProbability> probabilities(1000, {.token = {}, .best = std::vector<TokenLogprob>(20)});
  const auto play = [&] {
    const std::unique_ptr<AnswerSink> sink = ChatAnswer(Context(), request);
    int parts = 0;
    while (parts < 20 && !sink->closed()) {
      sink->OnDeltas(0, {{.kind = Kind::kContent, .text = "x", .id = {}}}, probabilities);
      ++parts;
    }
    // As the scheduler ends what is closed.
    sink->OnEnd(parts < 20 ? CancelledError("cancelled") : Status(), {});
    return parts;
  };
  EXPECT_EQ(play(), 7);
  EXPECT_EQ(exchange_->whole.status, 400);
  EXPECT_NE(exchange_->whole.body.find("logprobs"), std::string::npos) << exchange_->whole.body;
  request.stream = true;
  EXPECT_EQ(play(), 20);
}

TEST_F(AnswersTest, ErrorsHaveEachApisForm) {
  ChatAnswer(Context(), {})->OnEnd(IoError("the drive is gone"), {});
  EXPECT_EQ(exchange_->whole.status, 500);
  EXPECT_NE(exchange_->whole.body.find(R"("type":"server_error")"), std::string::npos);
  MessagesAnswer(Context(), {}, 1)->OnEnd(InvalidArgumentError("no"), {});
  EXPECT_EQ(exchange_->whole.status, 400);
  EXPECT_NE(exchange_->whole.body.find(R"({"type":"error","error":{"type":"invalid_request_error")"),
            std::string::npos);
  TextRequest request;
  request.stream = true;
  const std::unique_ptr<AnswerSink> begun = ChatAnswer(Context(), request);
  begun->OnDeltas(0, kDeltas[2], {});
  begun->OnEnd(IoError("the drive is gone"), {});
  EXPECT_NE(exchange_->stream.find("the drive is gone"), std::string::npos);
  EXPECT_TRUE(exchange_->ended);
}

TEST_F(AnswersTest, AStreamThatIsQueuedHasBegun) {
  TextRequest request;
  const std::unique_ptr<AnswerSink> whole = ChatAnswer(Context(), request);
  whole->OnQueued();
  EXPECT_FALSE(exchange_->begun);
  request.stream = true;
  const std::unique_ptr<AnswerSink> ended = ChatAnswer(Context(), request);
  ended->OnEnd(IoError("the drive is gone"), {});
  ended->OnQueued();
  EXPECT_FALSE(exchange_->begun);
  const std::unique_ptr<AnswerSink> stream = MessagesAnswer(Context(), request, 70);
  stream->OnQueued();
  EXPECT_TRUE(exchange_->begun);
  EXPECT_NE(exchange_->stream.find("message_start"), std::string::npos);
  Play(*stream);
  EXPECT_EQ(exchange_->stream.rfind("event: message_start"), 0u);
}

TEST(NewId, IsNeverTheSame) {
  EXPECT_EQ(NewId(32).size(), 32u);
  EXPECT_EQ(NewId(24).size(), 24u);
  EXPECT_NE(NewId(24), NewId(24));
}

}  // namespace
}  // namespace nunspark::server
