// nunspark serve, as clients see it: over sockets, against the running program.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/ascii.h"
#include "base/json.h"
#include "base/read_file.h"
#include "base/sanitized_testing.h"
#include "integration/program.h"
#include "integration/support.h"

namespace nunspark::test {
namespace {

using namespace std::chrono_literals;

// Tokens that take a moment, and no more than that.
#ifdef NUNSPARK_SANITIZED
constexpr int kLongAnswer = 60;
#else
constexpr int kLongAnswer = 1500;
#endif

struct Reply {
  int status = 0;
  std::map<std::string, std::string> headers;
  std::string body;  // chunks put together

  Json json() const {
    const Result<Json> parsed = ParseJson(body, "reply");
    EXPECT_TRUE(parsed.ok()) << body;
    return parsed.ok() ? *parsed : Json();
  }
};

class Connection {
 public:
  explicit Connection(int port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~Connection() { Close(); }
  Connection(const Connection&) = delete;

  bool connected() const { return connected_; }
  void Close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }
  // As a client that is killed: with a reset.
  void Reset() {
    const linger hard{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
    Close();
  }

  bool Send(const std::string& text) const {
    for (size_t sent = 0; sent < text.size();) {
      const ssize_t count = ::send(socket_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (count <= 0) return false;
      sent += static_cast<size_t>(count);
    }
    return true;
  }

  // More bytes; false at the end, or after so long without any.
  bool ReadMore(std::chrono::milliseconds patience = 20s) {
    pollfd poll{.fd = socket_, .events = POLLIN, .revents = 0};
    if (::poll(&poll, 1, static_cast<int>(patience.count())) <= 0) return false;
    char bytes[4096];
    const ssize_t count = ::recv(socket_, bytes, sizeof(bytes), 0);
    if (count <= 0) return false;
    received_.append(bytes, static_cast<size_t>(count));
    return true;
  }

  bool ReadUntil(const std::string& text) {
    while (received_.find(text) == std::string::npos) {
      if (!ReadMore()) return false;
    }
    return true;
  }

  Reply ReadReply(bool head_only = false) {
    Reply reply;
    if (!ReadUntil("\r\n\r\n")) return reply;
    const size_t end = received_.find("\r\n\r\n");
    const std::string head = received_.substr(0, end);
    received_.erase(0, end + 4);
    reply.status = std::atoi(head.c_str() + 9);
    for (size_t at = head.find("\r\n"); at != std::string::npos;) {
      const size_t next = head.find("\r\n", at + 2);
      const std::string line = head.substr(at + 2, next == std::string::npos ? next : next - at - 2);
      const size_t colon = line.find(": ");
      reply.headers[AsciiLower(line.substr(0, colon))] = line.substr(colon + 2);
      at = next;
    }
    if (head_only) return reply;
    if (reply.headers["transfer-encoding"] == "chunked") {
      while (true) {
        if (!ReadUntil("\r\n")) break;
        const size_t line = received_.find("\r\n");
        const size_t size = std::stoul(received_.substr(0, line), nullptr, 16);
        received_.erase(0, line + 2);
        while (received_.size() < size + 2 && ReadMore()) {
        }
        if (received_.size() < size + 2) break;
        reply.body += received_.substr(0, size);
        received_.erase(0, size + 2);
        if (size == 0) break;
      }
      return reply;
    }
    const size_t size = std::stoul(reply.headers["content-length"]);
    while (received_.size() < size && ReadMore()) {
    }
    reply.body = received_.substr(0, size);
    received_.erase(0, size);
    return reply;
  }

  std::string& received() { return received_; }

 private:
  int socket_;
  bool connected_ = false;
  std::string received_;
};

std::string RequestText(const std::string& method, const std::string& path, const std::string& body,
                        const std::string& headers = "") {
  return method + " " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + headers +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

// A server on a free port, ended with the object.
class Server {
 public:
  explicit Server(const std::string& flags = "", const std::string& model = Demo()) {
    log_ = temp_.path() + "/log";
    child_ = fork();
    if (child_ == 0) {
      const std::string command = "exec " + kBinary + " serve " + model + " --port 0 " + flags + " 2>" + log_;
      execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      _exit(127);
    }
    for (int i = 0; i < 1000 && port_ == 0 && waitpid(child_, nullptr, WNOHANG) == 0; ++i) {
      std::this_thread::sleep_for(20ms);
      const std::string log = Log();
      const size_t at = log.find("http://127.0.0.1:");
      if (at != std::string::npos && log.find("/v1", at) != std::string::npos) port_ = std::atoi(log.c_str() + at + 17);
    }
    EXPECT_NE(port_, 0) << Log();
  }
  ~Server() {
    if (child_ > 0) {
      kill(child_, SIGKILL);
      waitpid(child_, nullptr, 0);
    }
  }

  int port() const { return port_; }
  pid_t pid() const { return child_; }
  std::string Log() const {
    const Result<std::string> log = ReadWholeFile(log_);
    return log.ok() ? *log : std::string();
  }

  Reply Ask(const std::string& method, const std::string& path, const std::string& body = "",
            const std::string& headers = "") const {
    Connection connection(port_);
    EXPECT_TRUE(connection.connected());
    EXPECT_TRUE(connection.Send(RequestText(method, path, body, headers)));
    return connection.ReadReply(method == "HEAD");
  }
  Reply Post(const std::string& path, const Json& body, const std::string& headers = "") const {
    return Ask("POST", path, WriteJson(body), headers);
  }

  // Waits for its end after a signal; the exit code.
  int Stop(int signal) {
    kill(child_, signal);
    int status = 0;
    waitpid(child_, &status, 0);
    child_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  // Value of a line of /metrics.
  int64_t Metric(const std::string& name) const {
    const std::string text = Ask("GET", "/metrics").body;
    const size_t at = text.find("\nnunspark_" + name + "{");
    EXPECT_NE(at, std::string::npos) << name;
    return at == std::string::npos ? -1 : std::atoll(text.c_str() + text.find("} ", at) + 2);
  }

 private:
  TempFolder temp_;
  std::string log_;
  pid_t child_ = -1;
  int port_ = 0;
};

Json Chat(const std::string& text, int64_t max_tokens = 30) {
  return Json::Object{{"messages", Json::Array{Json::Object{{"role", "user"}, {"content", text}}}},
                      {"max_tokens", max_tokens}};
}

std::string ContentOf(const Json& reply, size_t choice = 0) {
  const Json choices = MemberOf(reply, {"choices"});
  if (!choices.is_array() || choices.as_array().size() <= choice) return "(none)";
  return MemberOf(choices.as_array()[choice], {"message", "content"}).as_string();
}

// The events' data, one after the other.
std::vector<std::string> EventsOf(const std::string& body) {
  std::vector<std::string> events;
  for (size_t at = 0; (at = body.find("data: ", at)) != std::string::npos;) {
    const size_t end = body.find('\n', at);
    events.push_back(body.substr(at + 6, end - at - 6));
    at = end;
  }
  return events;
}

std::string AloneText(const std::string& prompt, const std::string& flags) {
  std::string text = Nunspark("generate " + Demo() + " --prompt '" + prompt + "' " + flags).out;
  if (!text.empty()) text.pop_back();
  return text;
}

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
    int64_t running = 1;
    for (int i = 0; i < 200 && running > 0; ++i) {
      std::this_thread::sleep_for(10ms);
      running = server.Metric("requests_running");
    }
    EXPECT_EQ(running, 0);
  }
  EXPECT_EQ(server.Metric("requests_cancelled_total"), 2);
  EXPECT_EQ(server.Post("/v1/chat/completions", Chat("Hi", 3)).status, 200);
}

TEST(Serve, AFullQueueSaysComeAgain) {
  const Server server("--parallel 1 --queue 1");
  const std::string body =
      R"({"stream": true, "ignore_eos": true, "max_tokens": 1900, "messages": [{"role": "user", "content": "x"}]})";
  Connection first(server.port()), second(server.port());
  ASSERT_TRUE(first.Send(RequestText("POST", "/v1/chat/completions", body)));
  ASSERT_TRUE(first.ReadUntil("data: "));
  ASSERT_TRUE(second.Send(RequestText("POST", "/v1/chat/completions", body)));
  while (server.Metric("requests_waiting") == 0) std::this_thread::sleep_for(5ms);
  const Reply refused = server.Ask("POST", "/v1/chat/completions", body);
  EXPECT_EQ(refused.status, 429) << refused.body;
  EXPECT_EQ(refused.headers.count("retry-after"), 1u);
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
  Server server("--parallel 2 --drain 20");
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

TEST(Serve, TheDocumentOfItsFieldsIsUpToDate) {
  const Ran ran = Nunspark("serving-api");
  EXPECT_EQ(ran.out, ReadWholeFile(std::string(NUNSPARK_SOURCE_DIR) + "/docs/serving-api.md").value())
      << "build/release/bin/nunspark serving-api > docs/serving-api.md";
}

}  // namespace
}  // namespace nunspark::test
