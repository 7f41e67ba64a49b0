// Clients that are broken or mean, against the running program: each gets the right status, the server's memory stays
// within a bound, and somebody else's requests are answered as if there were nobody else.
#include <atomic>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/sanitized_testing.h"
#include "integration/serving.h"

namespace nunspark::test {
namespace {

// Bodies that wait (64 MB), what two workers make of the largest ones, and the buffers of a few hundred connections.
[[maybe_unused]] constexpr int64_t kMostGrowthKb = 300 << 10;

const std::string kHost = " HTTP/1.1\r\nHost: x\r\n";
const std::string kPost = "POST /v1/chat/completions" + kHost;

int64_t PeakKb(pid_t pid) {
  const std::string status = ReadWholeFile("/proc/" + std::to_string(pid) + "/status").value();
  return std::atoll(status.c_str() + status.find("VmHWM:") + 6);
}

// Asks the same again and again until it is destroyed; every answer has to be the same.
class Bystander {
 public:
  explicit Bystander(const Server& server) : server_(server), thread_([this] { Run(); }) { WaitFor(1); }
  ~Bystander() {
    WaitFor(answers_ + 2);
    stop_ = true;
    thread_.join();
  }

 private:
  void WaitFor(int answers) const {
    while (answers_ < answers && !failed_) std::this_thread::sleep_for(5ms);
  }
  void Run() {
    const Json request = Chat("Tell me a story about a dog.", 12);
    std::string first;
    while (!stop_) {
      const Reply reply = server_.Post("/v1/chat/completions", request);
      EXPECT_EQ(reply.status, 200) << reply.body;
      if (reply.status != 200) {
        failed_ = true;
        return;
      }
      if (first.empty()) first = ContentOf(reply.json());
      EXPECT_EQ(ContentOf(reply.json()), first);
      ++answers_;
    }
  }

  const Server& server_;
  std::atomic<bool> stop_{false}, failed_{false};
  std::atomic<int> answers_{0};
  std::thread thread_;
};

class Abuse : public ::testing::Test {
 protected:
  Abuse() : server_("--parallel 2 --client-timeout 1"), peak_before_kb_(0) {
    EXPECT_EQ(server_.Post("/v1/chat/completions", Chat("Hi", 3)).status, 200);
    peak_before_kb_ = PeakKb(server_.pid());
  }
  void TearDown() override {
    EXPECT_EQ(server_.Ask("GET", "/health").status, 200);
#ifndef NUNSPARK_SANITIZED
    EXPECT_LE(PeakKb(server_.pid()) - peak_before_kb_, kMostGrowthKb);
#endif
  }

  // The status of the answer to bytes as they are; 0: none came.
  int Raw(const std::string& text) const {
    Connection connection(server_.port());
    connection.Send(text);
    return connection.ReadReply().status;
  }
  int Body(const std::string& body) const { return server_.Ask("POST", "/v1/chat/completions", body).status; }

  const Server server_;
  int64_t peak_before_kb_;
};

TEST_F(Abuse, SlowClientsAreTold) {
  const Bystander bystander(server_);
  std::vector<std::unique_ptr<Connection>> heads, bodies, silent;
  for (int i = 0; i < 50; ++i) {
    heads.push_back(std::make_unique<Connection>(server_.port()));
    ASSERT_TRUE(heads.back()->Send("GET /health HTTP/1.1\r\nHo"));
    bodies.push_back(std::make_unique<Connection>(server_.port()));
    ASSERT_TRUE(bodies.back()->Send(kPost + "Content-Length: 1000\r\n\r\n{"));
    silent.push_back(std::make_unique<Connection>(server_.port()));
  }
  for (const auto& connection : heads) EXPECT_EQ(connection->ReadReply().status, 408);
  for (const auto& connection : bodies) EXPECT_EQ(connection->ReadReply().status, 408);
  for (const auto& connection : silent) EXPECT_EQ(connection->ReadReply().status, 0);
  // A byte now and then does not help.
  for (const std::string& begin : {std::string("GET /"), kPost + "Content-Length: 100000\r\n\r\n"}) {
    Connection drip(server_.port());
    ASSERT_TRUE(drip.Send(begin));
    for (int i = 0; i < 600 && drip.Send("a") && !drip.ReadMore(100ms) && !drip.ended(); ++i) {
    }
    EXPECT_EQ(drip.ReadReply().status, 408);
  }
}

TEST_F(Abuse, BodiesAreBounded) {
  const Bystander bystander(server_);
  EXPECT_EQ(Raw(kPost + "Content-Length: 1000000000\r\n\r\n"), 413);
  EXPECT_EQ(Raw(kPost + "Content-Length: 99999999999999999999\r\n\r\n"), 400);
  EXPECT_EQ(Raw(kPost + "Content-Length: 1000000000\r\nExpect: 100-continue\r\n\r\n"), 413);
  const std::string megabyte(1 << 20, 'x');
  for (const std::string& head :
       {std::string("Content-Length: 1000000000"), std::string("Transfer-Encoding: chunked")}) {
    // As much of it as it takes, by a client that listens afterwards.
    Connection connection(server_.port());
    ASSERT_TRUE(connection.Send(kPost + head + "\r\n\r\n"));
    for (int i = 0; i < 24; ++i) {
      if (!connection.Send(head[0] == 'T' ? "100000\r\n" + megabyte + "\r\n" : megabyte)) break;
    }
    EXPECT_EQ(connection.ReadReply().status, 413) << head;
  }
  // Together they are more than the server keeps.
  std::vector<std::thread> clients;
  std::atomic<int> refused{0}, other{0};
  for (int i = 0; i < 12; ++i) {
    clients.emplace_back([&] {
      const int status = Body("{\"messages\": \"" + std::string(7 << 20, 'x') + "\"}");
      (status == 400 || status == 503 ? refused : other) += 1;
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(refused, 12);
  EXPECT_EQ(other, 0);
}

TEST_F(Abuse, SmallRequestsAreTakenHoweverManyLargeOnesWait) {
  const Server server("--parallel 2 --client-timeout 60");
  const std::string most((8 << 20) - 1, 'x');
  std::vector<std::unique_ptr<Connection>> holders(8);
  const auto hold = [&](std::unique_ptr<Connection>& holder) {
    holder = std::make_unique<Connection>(server.port());
    EXPECT_TRUE(holder->Send(kPost + "Content-Length: 8388608\r\n\r\n" + most));
  };
  for (auto& holder : holders) hold(holder);
  // Once the server has read all of that, a large one is too much. Before, it may be a holder that is told so.
  Reply large;
  for (int i = 0; i < 200 && large.status != 503; ++i) {
    std::this_thread::sleep_for(20ms);
    for (auto& holder : holders) {
      if (holder->ReadMore(0ms)) hold(holder);
    }
    large = server.Ask("POST", "/v1/chat/completions", std::string(1 << 20, 'x'));
  }
  EXPECT_EQ(large.status, 503) << large.body;
  EXPECT_EQ(large.headers["retry-after"], "1");
  EXPECT_EQ(server.Post("/v1/chat/completions", Chat("Hi", 3)).status, 200);
}

TEST_F(Abuse, DocumentsThatExplodeAreRefused) {
  const Bystander bystander(server_);
  const size_t size = 7 << 20;
  EXPECT_EQ(Body(std::string(size, '[')), 400);
  EXPECT_EQ(Body("{\"a\":" + std::string(10000, '[') + std::string(10000, ']') + "}"), 400);
  std::string many = "{\"messages\": [";
  while (many.size() < size) many += "[],";
  EXPECT_EQ(Body(many + "[]]}"), 400);
  std::string members = "{";
  while (members.size() < size) members += "\"a\":1,";
  EXPECT_EQ(Body(members + "\"b\":1}"), 400);
  std::string stops = R"({"messages": [{"role": "user", "content": "x"}], "stop": ["a")";
  for (int i = 0; i < 100000; ++i) stops += ",\"b\"";
  EXPECT_EQ(Body(stops + "]}"), 400);
  EXPECT_EQ(Body("{\"messages\": [{\"role\": \"user\", \"content\": \"\xff\xfe\"}]}"), 400);
  EXPECT_EQ(Body(R"({"messages": [{"role": "user", "content": "\ud800"}]})"), 400);
  // Far more than the context holds.
  const Reply reply = server_.Post("/v1/chat/completions", Chat(std::string(size, ' ') + "x", 5));
  EXPECT_EQ(reply.status, 400);
  EXPECT_NE(reply.body.find("context"), std::string::npos) << reply.body.substr(0, 300);
  // A schema and a grammar that are large or deep.
  std::string deep = "true";
  for (int i = 0; i < 200; ++i) deep = R"({"type": "object", "properties": {"a": )" + deep + "}}";
  const std::string ask = R"({"max_tokens": 2, "messages": [{"role": "user", "content": "x"}], )";
  const int status =
      Body(ask + R"("response_format": {"type": "json_schema", "json_schema": {"schema": )" + deep + "}}}");
  EXPECT_TRUE(status == 400 || status == 200) << status;
  EXPECT_EQ(Body(ask + "\"grammar\": \"root ::= " + std::string(100000, '(') + "\"}"), 400);
}

TEST_F(Abuse, HeadsThatAreNoneAreRefused) {
  const Bystander bystander(server_);
  std::string many = "GET /health" + kHost;
  for (int i = 0; i < 100000; ++i) many += "X-H" + std::to_string(i) + ": 1\r\n";
  EXPECT_EQ(Raw(many + "\r\n"), 431);
  EXPECT_EQ(Raw("GET /" + std::string(1 << 20, 'a') + kHost + "\r\n"), 431);
  EXPECT_EQ(Raw(kPost + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400);
  EXPECT_EQ(Raw(kPost + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"), 400);
  EXPECT_EQ(Raw(kPost + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello"), 400);
  for (const char* length : {"-5", "0x5", "5 5", ""}) {
    EXPECT_EQ(Raw(kPost + "Content-Length: " + length + "\r\n\r\n"), 400) << length;
  }
  EXPECT_EQ(Raw(kPost + "Transfer-Encoding: chunked\r\n\r\nzz\r\n"), 400);
  EXPECT_EQ(Raw(kPost + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n"), 400);
  for (const char* coding : {"gzip", "gzip, chunked", "identity"}) {
    EXPECT_EQ(Raw(kPost + "Transfer-Encoding: " + coding + "\r\n\r\n0\r\n\r\n"), 501) << coding;
  }
  EXPECT_EQ(Raw("GET http://x/health" + kHost + "\r\n"), 200) << "as clients of proxies ask";
  EXPECT_EQ(Raw("GET http://x" + kHost + "\r\n"), 404);
  EXPECT_EQ(Raw("GET /health HTTP/9.9\r\n\r\n"), 400);
  EXPECT_EQ(Raw(std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11) + std::string(200, '\x7f')), 400);
  for (const char* path : {"/v1/files/../../../../etc/passwd", "/v1/files/..%2f..%2f..%2fetc%2fpasswd",
                           "/v1/files/%2e%2e%2f%2e%2e%2fetc%2fpasswd/content", "/v1/batches/..%5c..%5cx",
                           "/v1/models/../../etc/passwd", "//etc/passwd", "/..", "/%2e%2e/%2e%2e/etc/passwd"}) {
    const Reply reply = server_.Ask("GET", path);
    // 501: files and batches need --data-dir.
    EXPECT_TRUE(reply.status == 400 || reply.status == 404 || reply.status == 501) << path << " " << reply.status;
    EXPECT_EQ(reply.body.find("root:"), std::string::npos) << path;
  }
  EXPECT_EQ(server_.Ask("GET", "/v1/files/%00").status, 400);
}

TEST_F(Abuse, RequestsInOnePacketAreAnsweredInTheirOrder) {
  const Bystander bystander(server_);
  constexpr int kCount = 1000;
  std::string all;
  for (int i = 0; i < kCount; ++i) all += RequestText("GET", i % 10 == 0 ? "/v1/models" : "/health", "");
  Connection connection(server_.port());
  std::thread sender([&] { connection.Send(all); });
  for (int i = 0; i < kCount; ++i) {
    const Reply reply = connection.ReadReply();
    ASSERT_EQ(reply.status, 200) << i;
    ASSERT_NE(reply.body.find(i % 10 == 0 ? "list" : "ok"), std::string::npos) << i;
  }
  sender.join();
}

TEST_F(Abuse, ResetsAtAnyMomentLeaveNothingBehind) {
  std::mt19937 random(7);
  const std::string body =
      R"({"stream": true, "ignore_eos": true, "max_tokens": 1500, "messages": [{"role": "user", "content": "x"}]})";
  const std::string text = RequestText("POST", "/v1/chat/completions", body);
  {
    const Bystander bystander(server_);
    for (int i = 0; i < 200; ++i) {
      Connection connection(server_.port());
      ASSERT_TRUE(connection.connected());
      connection.Send(text.substr(0, random() % 2 == 0 ? text.size() : random() % text.size()));
      if (random() % 4 == 0) connection.ReadMore(std::chrono::milliseconds(random() % 50));
      connection.Reset();
    }
  }
  EXPECT_TRUE(Eventually([&] { return server_.Metric("requests_running") + server_.Metric("requests_waiting") == 0; }));
}

TEST_F(Abuse, ConnectionsThatDoNothingHoldNobodyUp) {
  std::vector<std::unique_ptr<Connection>> idle;
  for (int i = 0; i < 500; ++i) {
    idle.push_back(std::make_unique<Connection>(server_.port()));
    ASSERT_TRUE(idle.back()->connected());
    if (i % 2 != 0) continue;
    ASSERT_TRUE(idle.back()->Send(RequestText("GET", "/health", "")));
  }
  const Bystander bystander(server_);
}

}  // namespace
}  // namespace nunspark::test
