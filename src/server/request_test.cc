#include "server/request.h"

#include <cstring>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/batch_input.h"

namespace nunspark::server {
namespace {

Result<TextRequest> Parse(std::string_view body, std::span<const Field> fields = ChatFields()) {
  TextRequest defaults;
  defaults.text.generate.max_tokens = 256;
  return ParseRequest(body, fields, defaults);
}

TEST(Request, NullAndUnknownFieldsCountAsAbsent) {
  const TextRequest request =
      Parse(
          R"({"max_tokens": null, "temperature": null, "frobnicate": [1], "user": 5, "messages": [{"role": "user", "content": "x"}]})")
          .value();
  EXPECT_EQ(request.text.generate.max_tokens, 256);
  EXPECT_EQ(request.text.generate.sampling.temperature, 0);
  EXPECT_EQ(Parse(R"({"max_tokens": 0})")->text.generate.max_tokens, 256);
  EXPECT_EQ(Parse(R"({"max_completion_tokens": 7})")->text.generate.max_tokens, 7);
}

TEST(Request, ABodyThatEndsInABackslashIsNoJson) {
  for (const char* body : {"\\", "{\"prompt\": \"a\\"}) {
    const std::vector<char> exact(body, body + std::strlen(body));  // so that sanitizers see where it ends
    EXPECT_EQ(Parse(std::string_view(exact.data(), exact.size())).status().code(), StatusCode::kInvalidArgument);
  }
}

TEST(Request, PartsOfTextBecomeText) {
  const TextRequest request = Parse(R"({"messages": [{"role": "developer", "content": "s"},
      {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
      {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}}]}]})")
                                  .value();
  EXPECT_EQ(WriteJson(request.messages),
            R"([{"role":"system","content":"s"},{"role":"user","content":"ab"},{"role":"assistant","tool_calls":)"
            R"([{"id":"1","type":"function","function":{"name":"f","arguments":{"x":1}}}]}])");
}

TEST(Request, SamplingAndToolsAreTaken) {
  const TextRequest request = Parse(R"({"temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.1, "seed": 7, "n": 3,
      "presence_penalty": 1, "frequency_penalty": 0.5, "logit_bias": {"5": -100}, "stop": "x", "stream": true,
      "stream_options": {"include_usage": true}, "logprobs": true, "top_logprobs": 4, "reasoning_effort": "none",
      "tools": [{"type": "function", "function": {"name": "f"}}],
      "tool_choice": {"type": "function", "function": {"name": "f"}},
      "response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}}})")
                                  .value();
  const SamplingOptions& sampling = request.text.generate.sampling;
  EXPECT_EQ(sampling.temperature, 0.5);
  EXPECT_EQ(sampling.top_k, 40);
  EXPECT_EQ(sampling.seed, 7u);
  ASSERT_EQ(sampling.logit_bias.size(), 1u);
  EXPECT_EQ(sampling.logit_bias[0].token, 5);
  EXPECT_EQ(request.text.stops, std::vector<std::string>{"x"});
  EXPECT_EQ(request.choices, 3);
  EXPECT_TRUE(request.stream && request.include_usage);
  EXPECT_EQ(request.text.generate.logprobs, 4);
  EXPECT_EQ(request.thinking, false);
  EXPECT_EQ(request.tool_use, ToolUse::kNamed);
  EXPECT_EQ(request.tool_name, "f");
  EXPECT_EQ(request.response, ResponseKind::kJsonSchema);
  EXPECT_EQ(request.response_form, R"({"type":"object"})");
}

TEST(Request, NumbersThatNoDoubleHoldsAreRefusedWhereverTheyStand) {
  for (const char* body :
       {R"({"temperature": 1e400})", R"({"tools": [{"a": [0, -1e999]}]})",
        R"({"response_format": {"type": "json_schema", "json_schema": {"schema": {"enum": [1e400]}}}})"}) {
    EXPECT_THAT(Parse(body).status().message(), testing::HasSubstr("beyond what a double can be")) << body;
  }
}

TEST(Request, FieldsThatGoTogetherMayComeInAnyOrder) {
  const auto both = [](const std::string& a, const std::string& b, const auto& expect) {
    for (const std::string& body : {"{" + a + ", " + b + "}", "{" + b + ", " + a + "}"}) {
      SCOPED_TRACE(body);
      expect(Parse(body).value());
    }
  };
  both(R"("logprobs": true)", R"("top_logprobs": 4)",
       [](const TextRequest& request) { EXPECT_EQ(request.text.generate.logprobs, 4); });
  both(R"("logprobs": false)", R"("top_logprobs": 4)",
       [](const TextRequest& request) { EXPECT_EQ(request.text.generate.logprobs, -1); });
  EXPECT_EQ(Parse(R"({"top_logprobs": 4})")->text.generate.logprobs, 4);
  EXPECT_EQ(Parse(R"({"top_logprobs": 0})")->text.generate.logprobs, -1);
  EXPECT_EQ(Parse(R"({"logprobs": true})")->text.generate.logprobs, 0);
  both(R"("reasoning_effort": "high")", R"("chat_template_kwargs": {"a": 1})", [](const TextRequest& request) {
    EXPECT_EQ(request.template_kwargs.as_object().size(), 2u);
    EXPECT_EQ(request.template_kwargs.Find("reasoning_effort")->as_string(), "high");
  });
  both(R"("reasoning_effort": "high")", R"("chat_template_kwargs": {"reasoning_effort": "low"})",
       [](const TextRequest& request) {
         EXPECT_EQ(request.template_kwargs.Find("reasoning_effort")->as_string(), "low");
       });
  both(R"("grammar": "root ::= \"a\"")", R"("response_format": {"type": "text"})",
       [](const TextRequest& request) { EXPECT_EQ(request.response, ResponseKind::kGrammar); });
}

TEST(Request, ABudgetOfReasoningHasTheNamesThatServersHaveForIt) {
  for (const char* name : {"reasoning_budget", "thinking_token_budget", "thinking_budget_tokens", "thinking_budget"}) {
    const auto body = [&](const char* value) { return "{\"" + std::string(name) + "\": " + value + "}"; };
    EXPECT_EQ(Parse(body("7"))->reasoning_budget, 7);
    EXPECT_EQ(Parse(body("-1"))->reasoning_budget, -1);
    EXPECT_EQ(Parse(body("null"))->reasoning_budget, std::nullopt);
    for (const char* wrong : {"-2", "1.5", "\"x\""}) {
      EXPECT_NE(Parse(body(wrong)).status().message().find("\"" + std::string(name) + "\" must be"), std::string::npos);
    }
  }
  const TextRequest request = Parse(R"({"reasoning": {"effort": "low", "max_tokens": 9}})").value();
  EXPECT_EQ(request.reasoning_effort, "low");
  EXPECT_EQ(request.reasoning_budget, 9);
  EXPECT_EQ(request.thinking, true);
  EXPECT_EQ(Parse(R"({"reasoning": {"enabled": false}})")->thinking, false);
  EXPECT_EQ(Parse(R"({"thinking": {"type": "enabled", "budget_tokens": 64}})", MessagesFields())->reasoning_budget, 64);
  EXPECT_FALSE(Parse(R"({"thinking": {"type": "enabled", "budget_tokens": "x"}})", MessagesFields()).ok());
}

TEST(Request, BodiesOfTooManyValuesAreRefused) {
  std::string many = "{\"x\": [";
  for (int i = 0; i < 600000; ++i) many += "1,";
  EXPECT_NE(Parse(many + "1]}").status().message().find("values"), std::string::npos);
  // What is inside a string is none.
  EXPECT_TRUE(Parse("{\"x\": \"\\\"" + std::string(600000, ',') + "\"}").ok());
  // In batches, too.
  BatchLineRequest request;
  BatchLineError error;
  EXPECT_FALSE(ParseBatchLine(many + "1]}", "/v1/chat/completions", request, error));
  EXPECT_NE(error.message.find("values"), std::string::npos) << error.message;
}

TEST(Request, WrongTypesAreRefusedByName) {
  for (const char* field : {"messages",
                            "model",
                            "max_tokens",
                            "n",
                            "stream",
                            "stream_options",
                            "logprobs",
                            "top_logprobs",
                            "tools",
                            "tool_choice",
                            "response_format",
                            "grammar",
                            "chat_template_kwargs",
                            "reasoning_effort",
                            "temperature",
                            "top_p",
                            "top_k",
                            "min_p",
                            "seed",
                            "stop",
                            "logit_bias",
                            "ignore_eos",
                            "presence_penalty"}) {
    for (const char* value : {"[[]]", "{\"a\": {}}"}) {
      const Result<TextRequest> refused = Parse(std::string("{\"") + field + "\": " + value + "}");
      if (std::string_view(field) == "chat_template_kwargs" && value[0] == '{') continue;
      if (std::string_view(field) == "stream_options" && value[0] == '{') continue;
      if (std::string_view(field) == "logit_bias" && value[0] == '{') continue;
      ASSERT_FALSE(refused.ok()) << field << " " << value;
      EXPECT_NE(refused.status().message().find(field), std::string::npos) << refused.status().message();
    }
  }
  EXPECT_FALSE(Parse(R"({"n": 65})").ok());
  EXPECT_FALSE(Parse(R"({"n": 0})").ok());
  EXPECT_FALSE(Parse(R"({"audio": {}})").ok());
  EXPECT_FALSE(Parse(R"({"prompt": ["a", "b"]})", CompletionFields()).ok());
}

TEST(Request, AnthropicsMessagesBecomeOpenAis) {
  const TextRequest request = Parse(R"({"messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "ok"},
                                          {"type": "tool_use", "id": "t1", "name": "f", "input": {"x": 1}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "42"}]},
                                     {"type": "text", "text": "and?"}]}],
      "system": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
      "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
      "tool_choice": {"type": "any"}, "thinking": {"type": "enabled", "budget_tokens": 5}, "stop_sequences": ["x"]})",
                                    MessagesFields())
                                  .value();
  EXPECT_EQ(
      WriteJson(request.messages),
      R"([{"role":"system","content":"a b"},{"role":"user","content":"hi"},{"role":"assistant","content":"ok","tool_calls":)"
      R"([{"id":"t1","type":"function","function":{"name":"f","arguments":{"x":1}}}]},)"
      R"({"role":"tool","tool_call_id":"t1","content":"42"},{"role":"user","content":"and?"}])");
  EXPECT_EQ(WriteJson(request.tools),
            R"([{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"}}}])");
  EXPECT_EQ(request.tool_use, ToolUse::kRequired);
  EXPECT_EQ(request.thinking, true);
  EXPECT_EQ(request.text.stops, std::vector<std::string>{"x"});
  EXPECT_FALSE(Parse(R"({"messages": [{"role": "user", "content": [{"type": "image"}]}]})", MessagesFields()).ok());
}

}  // namespace
}  // namespace nunspark::server
