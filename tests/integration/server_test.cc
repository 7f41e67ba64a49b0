// nunspark serve, as clients see it: over sockets, against the running program.

#include <signal.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"
#include "base/read_file.h"
#include "base/sanitized_testing.h"
#include "integration/program.h"
#include "integration/serving.h"
#include "integration/support.h"

namespace nunspark::test {
namespace {

// Tokens that take a moment, and no more than that.
#ifdef NUNSPARK_SANITIZED
constexpr int kLongAnswer = 60;
#else
constexpr int kLongAnswer = 1500;
#endif

// Checklist items 65 and 66.
TEST(Serve, ChatsHaveOpenAisShapes) {
  const Server server("--model-name demo --alias other");
  const Reply reply = server.Post("/v1/chat/completions", Chat("Tell me a story about a cat."));
  ASSERT_EQ(reply.status, 200) << reply.body;
  const Json json = reply.json();
  EXPECT_TRUE(MemberOf(json, {"id"}).as_string().starts_with("chatcmpl-"));
  EXPECT_EQ(MemberOf(json, {"id"}).as_string().size(), 9u + 32u);
  EXPECT_EQ(MemberOf(json, {"object"}).as_string(), "chat.completion");
  EXPECT_EQ(MemberOf(json, {"model"}).as_string(), "demo");
  EXPECT_EQ(ContentOf(json), AloneText("Tell me a story about a cat.", "--max-tokens 30"));
  EXPECT_EQ(MemberOf(json, {"choices"}).as_array()[0].Find("finish_reason")->as_string(), "length");
  EXPECT_EQ(MemberOf(json, {"usage", "completion_tokens"}).as_int(), 30);
  EXPECT_EQ(MemberOf(json, {"usage", "total_tokens"}).as_int(),
            30 + MemberOf(json, {"usage", "prompt_tokens"}).as_int());
  EXPECT_EQ(server.Post("/chat/completions", Chat("Hi", 2)).status, 200);

  const Json models = server.Ask("GET", "/v1/models").json();
  EXPECT_EQ(MemberOf(models, {"object"}).as_string(), "list");
  ASSERT_EQ(MemberOf(models, {"data"}).as_array().size(), 2u);
  EXPECT_EQ(MemberOf(models, {"data"}).as_array()[0].Find("id")->as_string(), "demo");
  EXPECT_EQ(server.Ask("GET", "/v1/models/other").status, 200);
  EXPECT_EQ(server.Ask("GET", "/v1/models/x").json().Find("error")->Find("code")->as_string(), "model_not_found");
  EXPECT_EQ(server.Ask("GET", "/health").status, 200);
  EXPECT_EQ(server.Ask("GET", "/ready").status, 200);
  EXPECT_EQ(server.Ask("HEAD", "/v1/models").status, 200);
  EXPECT_GT(server.Metric("completion_tokens_total"), 31);

  const auto refuse = [&](const std::string& body, int status, const std::string& part) {
    const Reply refused = server.Ask("POST", "/v1/chat/completions", body);
    EXPECT_EQ(refused.status, status) << refused.body;
    EXPECT_NE(MemberOf(refused.json(), {"error", "message"}).as_string().find(part), std::string::npos) << refused.body;
  };
  refuse("no json", 400, "not valid JSON");
  refuse("[]", 400, "must be a JSON object");
  refuse("{}", 400, "\"messages\" is missing");
  refuse(R"({"messages": []})", 400, "\"messages\"");
  refuse(R"({"messages": [{"role": "user"}]})", 400, "messages[0] has no \"content\"");
  refuse(R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})", 400, "messages[0].content[0]");
  refuse(R"({"model": "gpt-9", "messages": [{"role": "user", "content": "x"}]})", 404, "gpt-9");
  refuse(R"({"temperature": "hot", "messages": [{"role": "user", "content": "x"}]})", 400, "\"temperature\"");
  refuse(R"({"top_p": 7, "messages": [{"role": "user", "content": "x"}]})", 400, "top-p");
  refuse(R"({"max_tokens": 1000000, "messages": [{"role": "user", "content": "x"}]})", 400, "do not fit the context");
  refuse(R"({"functions": [], "messages": [{"role": "user", "content": "x"}]})", 400, "\"functions\" is not supported");
  refuse(std::string(2000, '['), 400, "");
  EXPECT_EQ(server.Ask("GET", "/nothing").status, 404);
  EXPECT_EQ(server.Ask("GET", "/v1/chat/completions").status, 405);
}

TEST(Serve, MoreAnswersThanTheQueueTakesComeOneAfterAnother) {
  Json request = Chat("Tell me a story about a cat.", 6);
  request.Set("n", int64_t{7});
  request.Set("temperature", 0.9);
  request.Set("seed", int64_t{5});
  const auto texts = [&](const Server& server) {
    const Reply reply = server.Post("/v1/chat/completions", request);
    EXPECT_EQ(reply.status, 200) << reply.body;
    std::map<int64_t, std::string> by_index;
    const Json choices = MemberOf(reply.json(), {"choices"});
    for (const Json& choice : choices.as_array()) {
      by_index[choice.Find("index")->as_int()] = choice.Find("message")->Find("content")->as_string();
    }
    return by_index;
  };
  const Server small("--parallel 1 --queue 2"), large;
  const std::map<int64_t, std::string> all = texts(large);
  EXPECT_EQ(all.size(), 7u);
  EXPECT_EQ(texts(small), all);
  EXPECT_EQ(small.Post("/v1/chat/completions", Chat("Hi", 1'000'000)).status, 400);
  EXPECT_EQ(small.Metric("requests_started_total"), 1);  // without those that were refused
}

// Checklist items 64 and 67.
TEST(Serve, StreamsAreTheWholeTextInEvents) {
  const Server server;
  for (const std::string& stop : {std::string(), std::string("\"stop\": [\". \"], ")}) {
    const std::string base =
        "{" + stop +
        R"("max_tokens": 60, "temperature": 0.7, "seed": 3, "messages": [{"role": "user", "content": "Tell me a story."}])";
    const Reply whole = server.Ask("POST", "/v1/chat/completions", base + "}");
    const Reply stream = server.Ask("POST", "/v1/chat/completions",
                                    base + R"(, "stream": true, "stream_options": {"include_usage": true}})");
    ASSERT_EQ(stream.status, 200);
    EXPECT_EQ(stream.headers.at("content-type"), "text/event-stream");
    std::vector<std::string> events = EventsOf(stream.body);
    ASSERT_GT(events.size(), 4u);
    EXPECT_EQ(events.back(), "[DONE]");
    events.pop_back();
    std::string text, finish;
    bool role = false;
    for (const std::string& event : events) {
      const Json json = ParseJson(event, "event").value();
      EXPECT_EQ(MemberOf(json, {"object"}).as_string(), "chat.completion.chunk");
      const Json choices = MemberOf(json, {"choices"});
      for (const Json& choice : choices.as_array()) {
        const Json* const delta = choice.Find("delta");
        if (const Json* const content = delta->Find("content")) text += content->as_string();
        role |= delta->Find("role") != nullptr;
        if (choice.Find("finish_reason")->is_string()) finish = choice.Find("finish_reason")->as_string();
      }
    }
    EXPECT_TRUE(role);
    EXPECT_EQ(text, ContentOf(whole.json()));
    EXPECT_EQ(finish, stop.empty() ? "length" : "stop");
    EXPECT_EQ(MemberOf(ParseJson(events.back(), "usage").value(), {"usage", "completion_tokens"}),
              MemberOf(whole.json(), {"usage", "completion_tokens"}));
  }
}

TEST(Serve, SeveralAnswersDifferAndShareOnePrompt) {
  const Server server("--parallel 4");
  Json request = Chat(
      "Tell me a story about the sea, a lighthouse and an old man who lives there with his dog, and what "
      "they do all day long when the weather is bad and nobody comes to see them. Make it long, please, "
      "and tell what the dog thinks of it, too.",
      20);
  request.Set("n", int64_t{3});
  request.Set("ignore_eos", true);
  request.Set("temperature", 1.0);
  request.Set("seed", int64_t{9});
  request.Set("logprobs", true);
  request.Set("top_logprobs", int64_t{2});
  const Reply first = server.Post("/v1/chat/completions", request);
  ASSERT_EQ(first.status, 200) << first.body;
  const Json json = first.json();
  ASSERT_EQ(MemberOf(json, {"choices"}).as_array().size(), 3u);
  EXPECT_NE(ContentOf(json, 0), ContentOf(json, 1));
  EXPECT_NE(ContentOf(json, 1), ContentOf(json, 2));
  EXPECT_EQ(MemberOf(json, {"usage", "completion_tokens"}).as_int(), 60);
  EXPECT_GE(MemberOf(json, {"usage", "prompt_tokens_details", "cached_tokens"}).as_int(), 64);
  const Json logprobs = MemberOf(MemberOf(json, {"choices"}).as_array()[1], {"logprobs", "content"});
  ASSERT_EQ(logprobs.as_array().size(), 20u);
  EXPECT_EQ(logprobs.as_array()[0].Find("top_logprobs")->as_array().size(), 2u);
  const Json again = server.Post("/v1/chat/completions", request).json();
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(ContentOf(again, i), ContentOf(json, i));
}

TEST(Serve, CompletionsTakeTextAndIds) {
  const Server server;
  const Json text = server
                        .Post("/v1/completions",
                              Json::Object{{"prompt", "Once upon a time"}, {"max_tokens", int64_t{12}}, {"echo", true}})
                        .json();
  EXPECT_EQ(MemberOf(text, {"object"}).as_string(), "text_completion");
  const std::string alone = AloneText("Once upon a time", "--no-chat-template --max-tokens 12");
  EXPECT_EQ(MemberOf(text, {"choices"}).as_array()[0].Find("text")->as_string(), "Once upon a time" + alone);
  const Json ids =
      server
          .Post("/v1/completions", Json::Object{{"prompt", Json::Array{int64_t{1}, int64_t{2}, int64_t{3}}},
                                                {"max_tokens", int64_t{5}},
                                                {"logprobs", int64_t{1}}})
          .json();
  EXPECT_EQ(MemberOf(MemberOf(ids, {"choices"}).as_array()[0], {"logprobs", "tokens"}).as_array().size(), 5u);
  EXPECT_EQ(server.Post("/v1/completions", Json::Object{{"max_tokens", int64_t{5}}}).status, 400);
  Json echoed(Json::Object{{"prompt", Json::Array{int64_t{100}, int64_t{200}}}, {"max_tokens", 1}, {"echo", true}});
  const Json reply = server.Post("/v1/completions", echoed).json();
  const std::string echo = MemberOf(reply, {"choices"}).as_array()[0].Find("text")->as_string();
  echoed.Set("echo", false);
  const Json plain = server.Post("/v1/completions", echoed).json();
  const std::string text_alone = MemberOf(plain, {"choices"}).as_array()[0].Find("text")->as_string();
  EXPECT_TRUE(echo.ends_with(text_alone) && echo.size() > text_alone.size()) << echo;
  // Of the prompt's tokens there are no probabilities, and whoever asks for both wants those.
  echoed.Set("echo", true);
  echoed.Set("logprobs", 1);
  EXPECT_EQ(server.Post("/v1/completions", echoed).status, 400);
}

TEST(Serve, MessagesHaveAnthropicsShapes) {
  const Server server("--model-name demo");
  const std::string system =
      R"("system": [{"type": "text", "text": "Be kind."}], "max_tokens": 20, "model": "any-name", )";
  const std::string body =
      "{" + system + R"("messages": [{"role": "user", "content": [{"type": "text", "text": "Tell me a story."}]}])";
  const Json whole = server.Ask("POST", "/v1/messages", body + "}").json();
  EXPECT_EQ(MemberOf(whole, {"type"}).as_string(), "message");
  EXPECT_TRUE(MemberOf(whole, {"id"}).as_string().starts_with("msg_"));
  EXPECT_EQ(MemberOf(whole, {"model"}).as_string(), "demo");
  EXPECT_EQ(MemberOf(whole, {"stop_reason"}).as_string(), "max_tokens");
  const std::string text = MemberOf(whole, {"content"}).as_array()[0].Find("text")->as_string();
  EXPECT_EQ(text, AloneText("Tell me a story.", "--system 'Be kind.' --max-tokens 20"));

  const Reply stream = server.Ask("POST", "/v1/messages", body + R"(, "stream": true})");
  std::vector<std::string> names;
  for (size_t at = 0; (at = stream.body.find("event: ", at)) != std::string::npos; ++at) {
    names.push_back(stream.body.substr(at + 7, stream.body.find('\n', at) - at - 7));
  }
  ASSERT_GT(names.size(), 6u);
  EXPECT_EQ(names.front(), "message_start");
  EXPECT_NE(std::find(names.begin(), names.end(), "content_block_start"), names.end());
  EXPECT_EQ(names[names.size() - 3], "content_block_stop");
  EXPECT_EQ(names[names.size() - 2], "message_delta");
  EXPECT_EQ(names.back(), "message_stop");
  std::string streamed;
  for (const std::string& event : EventsOf(stream.body)) {
    const Json json = ParseJson(event, "event").value();
    if (json.Find("type")->as_string() == "content_block_delta")
      streamed += MemberOf(json, {"delta", "text"}).as_string();
  }
  EXPECT_EQ(streamed, text);

  const Json stopped =
      server
          .Ask(
              "POST", "/v1/messages",
              R"({"max_tokens": 60, "stop_sequences": [". "], "messages": [{"role": "user", "content": "Tell me a story."}]})")
          .json();
  EXPECT_EQ(MemberOf(stopped, {"stop_reason"}).as_string(), "stop_sequence");
  EXPECT_EQ(MemberOf(stopped, {"stop_sequence"}).as_string(), ". ");
  EXPECT_EQ(MemberOf(server.Ask("POST", "/v1/messages/count_tokens", body + "}").json(), {"input_tokens"}).as_int(),
            MemberOf(whole, {"usage", "input_tokens"}).as_int() +
                MemberOf(whole, {"usage", "cache_read_input_tokens"}).as_int());
  const Json error = server.Ask("POST", "/v1/messages", "{}").json();
  EXPECT_EQ(MemberOf(error, {"type"}).as_string(), "error");
  EXPECT_EQ(MemberOf(error, {"error", "type"}).as_string(), "invalid_request_error");
}

TEST(Serve, AnswersAreOfTheFormThatIsAskedFor) {
  const Server server("--parallel 4 --draft-model " + ModelPath("demo-draft-4bit") +
                      " --num-draft-tokens 4 --no-adaptive");
  const auto ask = [&](const std::string& format, int64_t seed) {
    Json request = Chat("Tell me about a cat.", 300);
    request.Set("response_format", ParseJson(format, "format").value());
    request.Set("temperature", 1.0);
    request.Set("seed", seed);
    return server.Post("/v1/chat/completions", request);
  };
  const std::string schema =
      R"({"type": "json_schema", "json_schema": {"name": "cat", "schema": {"type": "object", "properties":
         {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 30},
          "tame": {"type": "boolean"}, "colour": {"enum": ["black", "white"]},
          "toys": {"type": "array", "items": {"type": "string", "maxLength": 8}, "maxItems": 3}},
         "required": ["name", "age", "tame", "colour", "toys"], "additionalProperties": false}}})";
  for (int64_t seed = 0; seed < 8; ++seed) {
    const Reply reply = ask(schema, seed);
    ASSERT_EQ(reply.status, 200) << reply.body;
    const Result<Json> cat = ParseJson(ContentOf(reply.json()), "cat");
    ASSERT_TRUE(cat.ok()) << reply.body;
    EXPECT_EQ(cat->as_object().size(), 5u);
    EXPECT_TRUE(cat->Find("name")->is_string() && cat->Find("tame")->is_bool());
    EXPECT_TRUE(cat->Find("age")->as_int() >= 0 && cat->Find("age")->as_int() <= 30);
    const std::string& colour = cat->Find("colour")->as_string();
    EXPECT_TRUE(colour == "black" || colour == "white");
    EXPECT_LE(cat->Find("toys")->as_array().size(), 3u);
    EXPECT_EQ(MemberOf(reply.json(), {"choices"}).as_array()[0].Find("finish_reason")->as_string(), "stop");
    // The same again, whatever was drafted.
    EXPECT_EQ(ContentOf(ask(schema, seed).json()), ContentOf(reply.json()));
  }
  Json grammar = Chat("Yes or no?", 20);
  grammar.Set("grammar", "root ::= \"yes\" | \"no\"");
  const std::string answer = ContentOf(server.Post("/v1/chat/completions", grammar).json());
  EXPECT_TRUE(answer == "yes" || answer == "no") << answer;
  const Reply refused = ask(
      R"({"type": "json_schema", "json_schema": {"schema": {"type": "object", "unevaluatedProperties": false, "$dynamicRef": "#x"}}})",
      1);
  EXPECT_EQ(refused.status, 400) << refused.body;
  grammar.Set("grammar", "root ::= (");
  EXPECT_EQ(server.Post("/v1/chat/completions", grammar).status, 400);
}

// The demo model with another template.
std::string DemoWithTemplate(const TempFolder& temp, const std::string& text) {
  std::string ignored;
  EXPECT_EQ(RunShell("cp -r " + Demo() + "/. " + temp.path(), &ignored), 0);
  std::ofstream(temp.path() + "/chat_template.jinja") << text;
  return temp.path();
}

// A model that reasons, as far as its template knows.
std::string ReasoningDemo(const TempFolder& temp) {
  std::string text = ReadWholeFile(Demo() + "/chat_template.jinja").value();
  const std::string turn = "assistant\\n";
  text.insert(text.rfind(turn) + turn.size(), "<think>\\n");
  return DemoWithTemplate(temp, text + "{#- <think> </think> -#}");
}

TEST(Serve, ReasoningEndsWithItsBudgetAndTheAnswerFollows) {
  const TempFolder temp;
  const std::string model = ReasoningDemo(temp);
  const Server server("--parallel 4", model);
  const Server drafting("--parallel 4 --num-draft-tokens 4 --no-adaptive --draft-model " + ModelPath("demo-draft-4bit"),
                        model);
  const auto ask = [](const Server& from, const std::string& fields, const std::string& path) {
    const Reply reply = from.Ask("POST", path,
                                 R"({"max_tokens": 60, "temperature": 0.8, "seed": 5, )" + fields +
                                     R"("messages": [{"role": "user", "content": "Tell me a story."}]})");
    EXPECT_EQ(reply.status, 200) << reply.body;
    return reply.json();
  };
  const auto message = [](const Json& reply, const char* part) {
    const Json choices = MemberOf(reply, {"choices"});
    const Json* const found = choices.as_array()[0].Find("message")->Find(part);
    return found != nullptr && found->is_string() ? found->as_string() : std::string();
  };
  const std::string chat = "/v1/chat/completions";
  const Json free = ask(server, "", chat);
  EXPECT_GT(message(free, "reasoning_content").size(), 60u) << WriteJson(free);

  const Json bounded = ask(server, R"("reasoning_budget": 8, )", chat);
  const std::string reasoning = message(bounded, "reasoning_content"), content = message(bounded, "content");
  EXPECT_TRUE(message(free, "reasoning_content").starts_with(reasoning) && reasoning.size() < 60) << reasoning;
  EXPECT_FALSE(content.empty());
  EXPECT_EQ(content.find("think>"), std::string::npos) << content;
  EXPECT_EQ(MemberOf(bounded, {"usage", "completion_tokens"}).as_int(), 60);
  for (const char* name : {"thinking_token_budget", "thinking_budget_tokens", "thinking_budget"}) {
    EXPECT_EQ(message(ask(server, "\"" + std::string(name) + "\": 8, ", chat), "content"), content) << name;
  }
  EXPECT_EQ(message(ask(server, R"("reasoning": {"max_tokens": 8}, )", chat), "content"), content);
  // Drafts change nothing, nor do others who ask.
  EXPECT_EQ(message(ask(drafting, R"("reasoning_budget": 8, )", chat), "content"), content);
  std::vector<std::thread> clients;
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back([&, i] {
      const Json its = ask(i % 2 == 0 ? server : drafting, R"("reasoning_budget": 8, )", chat);
      EXPECT_EQ(message(its, "reasoning_content"), reasoning);
      EXPECT_EQ(message(its, "content"), content);
    });
  }
  for (std::thread& client : clients) client.join();

  EXPECT_EQ(message(ask(server, R"("reasoning_budget": 0, )", chat), "reasoning_content"), "");
  EXPECT_EQ(message(ask(server, R"("reasoning_effort": "none", )", chat), "reasoning_content"), "");
  EXPECT_EQ(message(ask(server, R"("reasoning_budget": -1, )", chat), "reasoning_content"),
            message(free, "reasoning_content"));
  const std::string low = message(ask(server, R"("reasoning_effort": "low", )", chat), "reasoning_content");
  EXPECT_TRUE(low.starts_with(reasoning) && low.size() > reasoning.size() &&
              low.size() < message(free, "reasoning_content").size())
      << low;

  const Json anthropic = ask(server, R"("thinking": {"type": "enabled", "budget_tokens": 8}, )", "/v1/messages");
  const Json::Array blocks = MemberOf(anthropic, {"content"}).as_array();
  ASSERT_EQ(blocks.size(), 2u) << WriteJson(anthropic);
  EXPECT_EQ(blocks[0].Find("thinking")->as_string(), reasoning);
  EXPECT_EQ(blocks[1].Find("text")->as_string(), content);

  const Json held = ask(server, R"("reasoning_budget": 8, "response_format": {"type": "json_schema", "json_schema":
      {"schema": {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"],
      "additionalProperties": false}}}, )",
                        chat);
  EXPECT_EQ(message(held, "reasoning_content"), reasoning);
  EXPECT_TRUE(ParseJson(message(held, "content"), "held").ok()) << WriteJson(held);
  const Reply refused = server.Ask("POST", chat, R"({"reasoning_budget": "x", "messages": []})");
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("reasoning_budget"), std::string::npos);
}

TEST(Serve, AnEndInsideReasoningStillGivesAnAnswer) {
  const TempFolder temp;
  const Server server("", ReasoningDemo(temp));
  // The bias makes the model end its output at once, in its reasoning; what follows that is the answer.
  const Reply reply =
      server.Ask("POST", "/v1/chat/completions",
                 R"({"max_tokens": 40, "messages": [{"role": "user", "content": "x"}], "logit_bias": {"4095": 1000}})");
  ASSERT_EQ(reply.status, 200) << reply.body;
  const Json json = reply.json();
  const Json choice = MemberOf(json, {"choices"}).as_array()[0];
  EXPECT_EQ(MemberOf(choice, {"finish_reason"}).as_string(), "stop");
  // The text that closes the reasoning, and then the end.
  EXPECT_GT(MemberOf(json, {"usage", "completion_tokens"}).as_int(), 2);
  EXPECT_LT(MemberOf(json, {"usage", "completion_tokens"}).as_int(), 40);
}

TEST(Serve, ACallThatIsCutLeavesNoMarkup) {
  const TempFolder temp;
  const Server server("--parallel 4",
                      DemoWithTemplate(temp,
                                       "{{ '<tool_call>{\"name\": .., \"arguments\": ..}</tool_call>' if tools }}"
                                       "{% for m in messages %}{{ m.content }}{% endfor %}"));
  bool ended = false;
  for (int64_t tokens = 1; !ended; ++tokens) {
    ASSERT_LT(tokens, 200);
    Json request = Chat("Rome?", tokens);
    request.Set("tools", ParseJson(R"([{"type": "function", "function": {"name": "get_weather", "parameters": {
        "type": "object", "properties": {"town": {"enum": ["Paris", "Rome"]}}, "required": ["town"],
        "additionalProperties": false}}}])",
                                   "tools")
                             .value());
    request.Set("tool_choice", "required");
    const Reply reply = server.Post("/v1/chat/completions", request);
    ASSERT_EQ(reply.status, 200) << reply.body;
    const Json choice = MemberOf(reply.json(), {"choices"}).as_array()[0];
    const Json* const content = choice.Find("message")->Find("content");
    EXPECT_TRUE(content->is_null() || content->as_string().empty()) << reply.body;
    ended = choice.Find("finish_reason")->as_string() == "tool_calls";
    const Json* const calls = choice.Find("message")->Find("tool_calls");
    EXPECT_TRUE(ended || choice.Find("finish_reason")->as_string() == "length") << reply.body;
    if (calls == nullptr) continue;
    EXPECT_EQ(MemberOf(calls->as_array()[0], {"function", "name"}).as_string(), "get_weather");
    const std::string arguments = MemberOf(calls->as_array()[0], {"function", "arguments"}).as_string();
    EXPECT_EQ(arguments.find('<'), std::string::npos) << arguments;
    if (ended) {
      EXPECT_EQ(arguments.substr(0, 1), "{");
      EXPECT_TRUE(ParseJson(arguments, "arguments").ok()) << arguments;
    }
  }
}

TEST(Serve, MessagesWithoutContentAreTakenByEveryTemplate) {
  const std::string calls = R"("tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments":
      "{}"}}])";
  const auto body = [&](const std::string& first, const std::string& second) {
    return R"({"max_tokens": 4, "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", )" + first +
           calls + R"(}, {"role": "tool", "content": "x"}, {"role": "assistant", )" + second +
           R"(}, {"role": "user", "content": "Go on."}]})";
  };
  struct Case {
    const char* text;
    bool tells_null;  // from ""
  };
  const Case cases[] = {
      {"{% for m in messages %}{{ m.role + ':' + m.content + '\n' }}{% endfor %}", false},
      {"{% for m in messages %}{{ m.role }}:{{ m.content }}\n{% endfor %}", false},
      {"{% for m in messages %}{{ m.role }}:{% if m.content is none %}nothing at all{% else %}{{ m.content }}{% endif "
       "%}"
       "{% endfor %}",
       true},
  };
  for (const Case& one : cases) {
    const TempFolder temp;
    const Server server("", DemoWithTemplate(temp, one.text));
    const auto prompt_tokens = [&](const std::string& first, const std::string& second) {
      const Reply reply = server.Ask("POST", "/v1/chat/completions", body(first, second));
      EXPECT_EQ(reply.status, 200) << reply.body;
      return MemberOf(reply.json(), {"usage", "prompt_tokens"}).as_int();
    };
    const std::string null = R"("content": null)", empty = R"("content": "")";
    const int64_t with_empty = prompt_tokens(empty + ", ", empty);
    EXPECT_EQ(prompt_tokens(null + ", ", null) != with_empty, one.tells_null) << one.text;
    if (!one.tells_null) {
      EXPECT_EQ(prompt_tokens("", null), with_empty) << one.text;
    }
    const Reply anthropic =
        server.Ask("POST", "/v1/messages",
                   R"({"max_tokens": 4, "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content":
            [{"type": "tool_use", "id": "1", "name": "f", "input": {}}]}, {"role": "user", "content":
            [{"type": "tool_result", "tool_use_id": "1", "content": "x"}]}]})");
    EXPECT_EQ(anthropic.status, 200) << anthropic.body;
  }
}

TEST(Serve, TokensThatEndTheTextAreNoPartOfIt) {
  const std::string prompt = "Tell me a story about a cat.";
  const Json alone = JsonOf(Nunspark("generate " + Demo() + " --prompt '" + prompt + "' --max-tokens 30 --json"));
  const Json::Array ids = MemberOf(alone, {"ids"}).as_array();
  ASSERT_EQ(ids.size(), 30u);
  const Json end = ids[12];
  const auto before = std::find(ids.begin(), ids.end(), end) - ids.begin();
  ASSERT_GT(before, 2);
  const std::string want = AloneText(prompt, "--max-tokens " + std::to_string(before));
  EXPECT_EQ(AloneText(prompt, "--max-tokens 30 --stop-ids " + WriteJson(end)), want);
  const Server server;
  for (const char* name : {"stop_ids", "stop_token_ids"}) {
    Json request = Chat(prompt);
    request.Set(name, Json::Array{end});
    const Json reply = server.Post("/v1/chat/completions", request).json();
    EXPECT_EQ(ContentOf(reply), want);
    EXPECT_EQ(MemberOf(reply, {"choices"}).as_array()[0].Find("finish_reason")->as_string(), "stop");
    EXPECT_EQ(MemberOf(reply, {"usage", "completion_tokens"}).as_int(), before + 1);
  }
  const TempFolder temp;
  std::ofstream(temp.path() + "/in") << WriteJson(Json(Json::Object{
                                            {"prompt", prompt}, {"max_tokens", 30}, {"stop_ids", Json::Array{end}}}))
                                     << "\n";
  const Ran batch = Nunspark("generate " + Demo() + " --batch " + temp.path() + "/in --out " + temp.path() + "/out");
  ASSERT_EQ(batch.code, 0) << batch.err;
  EXPECT_EQ(MemberOf(ParseJson(ReadWholeFile(temp.path() + "/out").value(), "out").value(), {"text"}).as_string(),
            want);
}

TEST(Serve, EveryDrafterGivesTheTextThatThereIsWithoutOne) {
  const std::string draft = " --draft-model " + ModelPath("demo-draft-4bit"),
                    eagle = " --eagle-drafter " + ModelPath("demo-eagle");
  std::vector<std::string> want(8);
  const auto flags_of = [](size_t i) {
    return "--max-tokens " + std::to_string(20 + 3 * i) + (i % 2 == 1 ? " --temp 0.9 --seed " + std::to_string(i) : "");
  };
  const auto prompt_of = [](size_t i) { return "Tell me a story about number " + std::to_string(i) + "."; };
  for (size_t i = 0; i < want.size(); ++i) want[i] = AloneText(prompt_of(i), flags_of(i));
  for (const std::string& flags :
       {draft + " --num-draft-tokens 4", draft + " --tree 3,2,1", eagle + " --num-draft-tokens 4",
        eagle + " --tree 4,2,2,1", std::string(" --ngram-draft --num-draft-tokens 4"),
        draft + " --tree 2,2 --kv-budget 1MB"}) {
    const Server server("--no-adaptive --parallel 8" + flags);
    std::vector<std::thread> clients;
    for (size_t i = 0; i < want.size(); ++i) {
      clients.emplace_back([&, i] {
        Json request = Chat(prompt_of(i), static_cast<int64_t>(20 + 3 * i));
        if (i % 2 == 1) {
          request.Set("temperature", 0.9);
          request.Set("seed", static_cast<int64_t>(i));
        }
        const Reply reply = server.Post("/v1/chat/completions", request);
        ASSERT_EQ(reply.status, 200) << reply.body;
        EXPECT_EQ(ContentOf(reply.json()), want[i]) << flags << ", " << i;
      });
    }
    for (std::thread& client : clients) client.join();
    EXPECT_GT(server.Metric("drafted_tokens_total"), 0) << flags;
    EXPECT_EQ(server.Metric("drafted_tokens_off_path_total"), 0) << flags;
  }
}

TEST(Serve, WhatCannotWorkIsToldAtTheStart) {
  const TempFolder temp;
  const std::string serve = "serve " + Demo() + " --port 0 ";
  ExpectError(Nunspark(serve + "--prefix-file /does/not/exist/prefixes"),
              {"--prefix-file", "/does/not/exist/prefixes"});
  ExpectError(Nunspark(serve + "--prefix-file " + temp.path()), {"--prefix-file", temp.path().c_str(), "no file"});
  ExpectError(Nunspark(serve + "--kv-spill-dir /does/not/exist"), {"--kv-spill-dir", "/does/not/exist"});
  ExpectError(Nunspark("web --port 0 --state-dir " + temp.path() + " --kv-spill-dir /does/not/exist"),
              {"--kv-spill-dir", "/does/not/exist"});
  ExpectError(Nunspark(serve + "--data-dir /does/not/exist/data"), {"/does/not/exist/data"});
  ExpectError(Nunspark(serve + "--cors-origin 'a b'"), {"--cors-origin", "a b"});
  for (const char* flag : {"--data-dir", "--model-name", "--alias", "--cors-origin", "--api-key-file", "--prefix-file",
                           "--kv-spill-dir", "--host"}) {
    const Ran ran = Nunspark(serve + flag + " ''");
    EXPECT_EQ(ran.code, 2) << flag;
    EXPECT_NE(ran.err.find(std::string(flag) + ": must not be empty"), std::string::npos) << ran.err;
  }
  EXPECT_EQ(Nunspark("web --port 0 --state-dir ''").code, 2);
}

TEST(Serve, AnswersDoNotDependOnWhoElseIsAsking) {
  const Server server("--parallel 8 --draft-model " + ModelPath("demo-draft-4bit") + " --num-draft-tokens 4");
  std::vector<std::thread> clients;
  std::vector<std::string> texts(16);
  for (size_t i = 0; i < texts.size(); ++i) {
    clients.emplace_back([&, i] {
      Json request = Chat("Tell me a story about number " + std::to_string(i) + ".", 24 + static_cast<int64_t>(i));
      if (i % 2 == 1) {
        request.Set("temperature", 0.9);
        request.Set("seed", static_cast<int64_t>(i));
      }
      const Reply reply = server.Post("/v1/chat/completions", request);
      if (reply.status == 200) texts[i] = ContentOf(reply.json());
    });
  }
  for (std::thread& client : clients) client.join();
  for (size_t i = 0; i < texts.size(); ++i) {
    std::string flags = "--max-tokens " + std::to_string(24 + i);
    if (i % 2 == 1) flags += " --temp 0.9 --seed " + std::to_string(i);
    EXPECT_EQ(texts[i], AloneText("Tell me a story about number " + std::to_string(i) + ".", flags)) << i;
  }
}

// Checklist items 68 and 74.
TEST(Serve, FlagsReachTheEngineAsThoseOfGenerateDo) {
  const std::string prompt = "Tell me a story about the sea.";
  std::set<std::string> texts;
  for (const std::string& flags : {std::string("--kv-bits 4 --kv-group-size 32"), std::string("--numerics i8"),
                                   std::string("--budget 3.7MB --no-prefetch --threads 1"),
                                   std::string("--kv-budget 100kB --io pread --prefill-chunk 8")}) {
    const Server server(flags);
    const std::string text = ContentOf(server.Post("/v1/chat/completions", Chat(prompt, 60)).json());
    EXPECT_EQ(text, AloneText(prompt, "--max-tokens 60 " + flags)) << flags;
    texts.insert(text);
  }
  EXPECT_GT(texts.size(), 1u);  // else it would not matter what reaches the engine
  const Server server("--max-tokens 7 --context 100");
  const Json reply =
      server.Ask("POST", "/v1/chat/completions", R"({"messages": [{"role": "user", "content": "Hi"}]})").json();
  EXPECT_EQ(MemberOf(reply, {"usage", "completion_tokens"}).as_int(), 7);
  EXPECT_EQ(server.Post("/v1/chat/completions", Chat("Hi", 100)).status, 400);
}

// Checklist item 69.
TEST(Serve, PromptsAreComputedOnceUnlessAFlagSaysOtherwise) {
  Json request = Chat(
      "Tell me a story about the sea, a lighthouse and an old man who lives there with his dog, and what they do all "
      "day "
      "long when the weather is bad and nobody comes to see them. Make it long, please, and tell what the dog thinks.");
  std::string cold;
  for (const std::string flag : {"--no-prefix-cache", ""}) {
    const Server server(flag);
    for (const bool again : {false, true}) {
      const Json reply = server.Post("/v1/chat/completions", request).json();
      if (cold.empty()) cold = ContentOf(reply);
      EXPECT_EQ(ContentOf(reply), cold);
      const int64_t cached = MemberOf(reply, {"usage", "prompt_tokens_details", "cached_tokens"}).as_int();
      EXPECT_EQ(cached > 0, again && flag.empty()) << cached;
    }
  }
}

TEST(Serve, OnlyThoseWithAKeyMayAsk) {
  const TempFolder temp;
  std::ofstream(temp.path() + "/keys") << "# of the team\nfirst-key\nsecond-key  # someone\n";
  const Server server("--api-key-file " + temp.path() + "/keys");
  EXPECT_EQ(server.Ask("GET", "/v1/models").status, 401);
  EXPECT_EQ(server.Ask("GET", "/v1/models", "", "Authorization: Bearer first\r\n").status, 401);
  EXPECT_EQ(server.Ask("GET", "/v1/models", "", "Authorization: Bearer first-key\r\n").status, 200);
  EXPECT_EQ(server.Ask("GET", "/v1/models", "", "X-Api-Key: second-key\r\n").status, 200);
  EXPECT_EQ(server.Ask("GET", "/metrics").status, 401);
  EXPECT_EQ(server.Ask("GET", "/health").status, 200);
  ExpectError(Nunspark("serve " + Demo() + " --api-key-file /does/not/exist"), {"/does/not/exist"});
  ExpectError(Nunspark("serve " + Demo() + " --host nowhere.example"), {"--host"});
  ExpectError(Nunspark("serve " + Demo() + " --port 99999"), {"--port"});
  ExpectError(Nunspark("serve /does/not/exist"), {"/does/not/exist"});
  ExpectError(Nunspark("serve " + Demo() + " --port " + std::to_string(server.port())), {"cannot listen"});
}

TEST(Serve, ClientsThatLeaveStopCosting) {
  const Server server("--parallel 1");
  const std::string body = WriteJson(Chat("Tell me a long story.", 1900));
  for (const bool reset : {false, true}) {
    Connection connection(server.port());
    std::string streamed = body;
    streamed.insert(1, "\"stream\": true, \"ignore_eos\": true, ");
    ASSERT_TRUE(connection.Send(RequestText("POST", "/v1/chat/completions", streamed)));
    ASSERT_TRUE(connection.ReadUntil("data: "));
    if (reset) {
      connection.Reset();
    } else {
      connection.Close();
    }
    EXPECT_TRUE(Eventually([&] { return server.Metric("requests_running") == 0; }));
  }
  {
    // One that has sent its next request meanwhile, and gets no byte before the end.
    Connection connection(server.port());
    std::string whole = body;
    whole.insert(1, "\"ignore_eos\": true, ");
    ASSERT_TRUE(connection.Send(RequestText("POST", "/v1/chat/completions", whole)));
    ASSERT_TRUE(Eventually([&] { return server.Metric("requests_running") == 1; }));
    ASSERT_TRUE(connection.Send(RequestText("GET", "/health", "")));
  }
  EXPECT_TRUE(Eventually([&] { return server.Metric("requests_running") == 0; }));
  EXPECT_EQ(server.Metric("requests_cancelled_total"), 3);
  EXPECT_EQ(server.Post("/v1/chat/completions", Chat("Hi", 3)).status, 200);
}

TEST(Serve, AFullQueueSaysComeAgain) {
  const Server server("--parallel 1 --queue 1");
  const std::string body =
      R"({"stream": true, "ignore_eos": true, "max_tokens": 1900, "messages": [{"role": "user", "content": "x"}]})";
  // One runs, one waits; of the rest, at least one comes while both do.
  std::vector<std::unique_ptr<Connection>> clients;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(std::make_unique<Connection>(server.port()));
    ASSERT_TRUE(clients.back()->Send(RequestText("POST", "/v1/chat/completions", body)));
  }
  int refused = 0;
  for (const auto& client : clients) {
    const Reply reply = client->ReadReply(true);
    EXPECT_TRUE(reply.status == 200 || reply.status == 429) << reply.status;
    refused += reply.status == 429;
    EXPECT_EQ(reply.headers.count("retry-after"), reply.status == 429 ? 1u : 0u);
  }
  EXPECT_GT(refused, 0);
  EXPECT_LT(refused, 8);
}

TEST(Serve, RequestsThatAreNoneAreRefusedAndDisturbNobody) {
  const Server server("--parallel 2");
  const auto raw = [&](const std::string& text) {
    Connection connection(server.port());
    connection.Send(text);
    return connection.ReadReply().status;
  };
  const std::string host = " HTTP/1.1\r\nHost: x\r\n";
  EXPECT_EQ(raw("rubbish\r\n\r\n"), 400);
  EXPECT_EQ(raw("GET /%zz" + host + "\r\n"), 400);
  EXPECT_EQ(raw("GET /" + std::string(100000, 'a') + host + "\r\n"), 431);
  std::string many = "GET /health" + host;
  for (int i = 0; i < 20000; ++i) many += "X-H" + std::to_string(i) + ": 1\r\n";
  EXPECT_EQ(raw(many + "\r\n"), 431);
  EXPECT_EQ(raw("POST /v1/chat/completions" + host + "Content-Length: 1000000000\r\n\r\n"), 413);
  EXPECT_EQ(
      raw("POST /v1/chat/completions" + host + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
      400);
  EXPECT_EQ(raw("POST /v1/chat/completions" + host + "Content-Length: -5\r\n\r\n"), 400);
  EXPECT_EQ(raw("GET /../../etc/passwd" + host + "\r\n"), 404);
  {
    // Chunks without end: no more is taken than a body may have.
    Connection connection(server.port());
    connection.Send("POST /v1/chat/completions" + host + "Transfer-Encoding: chunked\r\n\r\n");
    const std::string chunk = "100000\r\n" + std::string(1 << 20, 'x') + "\r\n";
    int sent = 0;
    while (sent < 100 && connection.Send(chunk)) ++sent;
    EXPECT_LT(sent, 100);
  }
  // Two at once in one packet: answered in their order.
  Connection pipelined(server.port());
  ASSERT_TRUE(pipelined.Send(RequestText("GET", "/health", "") + RequestText("GET", "/v1/models", "")));
  EXPECT_NE(pipelined.ReadReply().body.find("ok"), std::string::npos);
  EXPECT_NE(pipelined.ReadReply().body.find("list"), std::string::npos);
  std::string stops = R"({"messages": [{"role": "user", "content": "x"}], "stop": ["a")";
  for (int i = 0; i < 100000; ++i) stops += ",\"b\"";
  EXPECT_EQ(server.Ask("POST", "/v1/chat/completions", stops + "]}").status, 400);
  EXPECT_EQ(
      server.Ask("POST", "/v1/chat/completions", "{\"messages\": [{\"role\": \"user\", \"content\": \"\xff\xfe\"}]}")
          .status,
      400);
  EXPECT_EQ(server.Post("/v1/chat/completions", Chat("Hi", 3)).status, 200);
}

TEST(Serve, StopsAfterTheAnswersUnderWay) {
  Server server("--parallel 2 --drain 300");
  Connection connection(server.port());
  ASSERT_TRUE(connection.Send(RequestText("POST", "/v1/chat/completions",
                                          R"({"stream": true, "ignore_eos": true, "max_tokens": )" +
                                              std::to_string(kLongAnswer) +
                                              R"(, "messages": [{"role": "user", "content": "x"}]})")));
  ASSERT_TRUE(connection.ReadUntil("data: "));
  std::thread stop([&] { EXPECT_EQ(server.Stop(SIGTERM), 0); });
  EXPECT_NE(connection.ReadReply().body.find("[DONE]"), std::string::npos);
  stop.join();
  EXPECT_NE(server.Log().find("stopping"), std::string::npos);

  Server cut("--parallel 2 --drain 0.2");
  Connection long_one(cut.port());
  ASSERT_TRUE(long_one.Send(RequestText(
      "POST", "/v1/chat/completions",
      R"({"stream": true, "ignore_eos": true, "max_tokens": 1900, "messages": [{"role": "user", "content": "x"}]})")));
  ASSERT_TRUE(long_one.ReadUntil("data: "));
  EXPECT_EQ(cut.Stop(SIGTERM), 0);
}

// Checklist item 74.
TEST(Serve, TakesTheContractsFlagsWithGeneratesDefaults) {
  // Rows of the document of all flags, by verb.
  const std::string document = Nunspark("flags").out;
  const auto row = [&](const std::string& verb, const std::string& flag) {
    const size_t section = document.find("\n## " + verb + "\n"), end = document.find("\n## ", section + 1);
    const size_t at = document.find("\n| `" + flag, section);
    EXPECT_LT(at, end) << verb << " " << flag;
    return at == std::string::npos ? "" : document.substr(at, document.find('\n', at + 1) - at);
  };
  for (const std::string flag : {"--budget", "--no-prefetch", "--io-threads", "--warm-window", "--kv-budget",
                                 "--kv-bits", "--kv-group-size", "--draft-model", "--num-draft-tokens",
                                 "--accept-top-k", "--no-wire", "--lookahead", "--compact-scatter", "--eval-window"}) {
    EXPECT_EQ(row("serve", flag), row("generate", flag));
  }
  EXPECT_NE(row("serve", "--host").find("| `127.0.0.1` |"), std::string::npos);
  EXPECT_NE(row("serve", "--port").find("| `8080` |"), std::string::npos);
  const std::string flags =
      "--budget 3.7MB --no-prefetch --io-threads 2 --warm-window 2 --kv-budget 100MB --kv-bits 8 "
      "--kv-group-size 32 --draft-model " +
      ModelPath("demo-draft-4bit") +
      " --num-draft-tokens 5 --accept-top-k 1 --no-wire --lookahead --compact-scatter "
      "--eval-window 3";
  const Server server("--host 127.0.0.1 --model-name named --no-prefix-cache --ui " + flags);
  const std::string prompt = "Tell me a story about a cat.";
  const Reply reply = server.Post("/v1/chat/completions", Chat(prompt, 30));
  EXPECT_EQ(MemberOf(reply.json(), {"model"}).as_string(), "named");
  EXPECT_EQ(ContentOf(reply.json()), AloneText(prompt, "--max-tokens 30 " + flags));
  const Json memory = MemberOf(server.Ask("GET", "/api/stats").json(), {"engine", "memory"});
  EXPECT_EQ(MemberOf(memory, {"weights"}).as_int(), 3'700'000);
  EXPECT_GT(MemberOf(memory, {"drafter"}).as_int(), 0);
  // The folder's name where none is given.
  EXPECT_EQ(MemberOf(Server().Ask("GET", "/v1/models").json(), {"data"}).as_array()[0].Find("id")->as_string(),
            "demo-moe-4bit");
}

TEST(Serve, TheDocumentOfItsFieldsIsUpToDate) {
  const Ran ran = Nunspark("serving-api");
  EXPECT_EQ(ran.out, ReadWholeFile(std::string(NUNSPARK_SOURCE_DIR) + "/docs/serving-api.md").value())
      << "build/release/bin/nunspark serving-api > docs/serving-api.md";
}

}  // namespace
}  // namespace nunspark::test
