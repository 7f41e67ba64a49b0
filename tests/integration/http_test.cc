// The HTTP server with a handler of the test's own.
#include "server/http.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "integration/serving.h"

namespace nunspark::test {
namespace {

// Hands out the exchange of the one request that it gets.
class OneExchange {
 public:
  explicit OneExchange(server::HttpOptions options) {
    options.port = 0;
    http_ = server::HttpServer::Listen(options, [this](const server::HttpRequest&,
                                                       std::shared_ptr<server::Exchange> exchange) {
              exchange_ = std::move(exchange);
              begun_ = true;
            }).value();
    thread_ = std::thread([this] { http_->Run(); });
  }
  ~OneExchange() {
    http_->Stop(0);
    thread_.join();
    exchange_.reset();
  }
  OneExchange(const OneExchange&) = delete;

  int port() const { return http_->port(); }
  bool begun() const { return begun_; }
  server::Exchange& exchange() { return *exchange_; }

 private:
  std::unique_ptr<server::HttpServer> http_;
  std::shared_ptr<server::Exchange> exchange_;
  std::atomic<bool> begun_{false};
  std::thread thread_;
};

TEST(Http, PagesFromElsewhereMayAskWhereThatIsAllowed) {
  OneExchange server({.cors_origin = "https://example.org"});
  Connection client(server.port());
  ASSERT_TRUE(
      client.Send("OPTIONS /v1/models HTTP/1.1\r\nHost: x\r\nOrigin: https://example.org\r\n"
                  "Access-Control-Request-Headers: authorization,content-type,x-stainless-lang\r\n\r\n"));
  const Reply preflight = client.ReadReply();
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(preflight.headers.at("access-control-allow-origin"), "https://example.org");
  // What clients call their headers is not known; the wildcard is all names but this one.
  EXPECT_EQ(preflight.headers.at("access-control-allow-headers"), "Authorization, *");
}

TEST(Http, WhoHasReadTooLittleIsCutOffAndNotLeftWaiting) {
  OneExchange server({.max_unsent_bytes = 1 << 20});
  Connection client(server.port());
  ASSERT_TRUE(client.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n"));
  ASSERT_TRUE(Eventually([&] { return server.begun(); }));
  server.exchange().Begin(200, "text/event-stream", {}, "");
  const std::string part(64 << 10, 'x');
  ASSERT_TRUE(Eventually([&] {
    server.exchange().Write(part);
    return server.exchange().closed();
  }));
  // It reads again, but parts are missing.
  while (client.ReadMore()) {
  }
  EXPECT_TRUE(client.ended());
}

}  // namespace
}  // namespace nunspark::test
