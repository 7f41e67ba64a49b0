// HTTP/1.1 for a handful of clients or a few hundred: what comes in as a value, what goes out through an Exchange.
//
// One thread reads and writes for all connections. Requests are bounded in every direction (header, body, time,
// number), and so is what waits for a client that reads slowly; whoever does not keep to it is cut off and nobody else
// notices.
#ifndef NUNSPARK_SERVER_HTTP_H_
#define NUNSPARK_SERVER_HTTP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/file.h"
#include "nunspark/status.h"

namespace nunspark::server {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;
  std::string path;   // percent-decoded, without query
  std::string query;  // as it came
  Headers headers;    // names in lower case
  std::string body;
  std::shared_ptr<const File> body_file{};  // in its place, where HttpOptions::spool says so

  // The first value of a header, by its lower-case name; empty: none.
  std::string_view Header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body{};
  Headers headers{};
  std::shared_ptr<const File> body_file{};  // sent in place of the body, whole, a part at a time
};

// The way back of one request. Thread-safe; kept as long as somebody may answer. An exchange that is dropped without an
// answer answers 500. None may outlive its server.
class Exchange {
 public:
  virtual ~Exchange() = default;
  Exchange(const Exchange&) = delete;

  // A whole answer. REQUIRES: nothing was sent.
  virtual void Send(HttpResponse response) = 0;

  // An answer in parts: first its head, then the parts, then the end. Parts after the client has left are dropped.
  // `keep_alive`: sent when there was nothing to send for a while; empty: nothing.
  virtual void Begin(int status, std::string content_type, Headers headers, std::string keep_alive) = 0;
  virtual void Write(std::string part) = 0;
  virtual void End() = 0;

  // Whether the client has left, or was cut off.
  virtual bool closed() const = 0;
  // Called once, by the connections' thread, when that happens before the answer's end; at once if it has happened.
  virtual void OnClosed(std::function<void()> callback) = 0;

  // Whether the answer has time until nobody else wants one.
  virtual bool background() const { return false; }

 protected:
  Exchange() = default;
};

// Bodies that go to nameless files instead of memory.
struct SpoolOptions {
  // By a request's head; called by the connections' thread. Empty: none.
  std::function<bool(const HttpRequest& head)> wanted{};
  std::string folder{};
  int64_t max_body_bytes = 0;   // of one request
  int64_t max_total_bytes = 0;  // of all that are being read or handled
};

struct HttpOptions {
  std::string host = "127.0.0.1";
  int port = 8080;  // 0: any that is free
  int64_t max_connections = 2048;
  int64_t max_header_bytes = 32 << 10;
  int64_t max_body_bytes = 8 << 20;           // of one request
  int64_t max_waiting_body_bytes = 64 << 20;  // of all that are being read or handled, where one is more than 64 KiB
  int64_t max_unsent_bytes = 8 << 20;         // of one answer, for a client that does not read it
  double header_timeout_s = 10;               // for all of it
  double body_timeout_s = 30;                 // without a byte of it; and no more than that beside least_body_rate
  int64_t least_body_rate = 16 << 10;         // bytes per second
  double idle_timeout_s = 75;                 // between requests, up to the end of the next one's head
  double write_timeout_s = 60;
  double keep_alive_s = 10;
  std::string cors_origin{};  // "Access-Control-Allow-Origin"; empty: none
  SpoolOptions spool{};
};

// Called by the connections' thread, which it must not hold up: longer work goes to other threads.
using HttpHandler = std::function<void(HttpRequest request, std::shared_ptr<Exchange> exchange)>;

class HttpServer {
 public:
  // Listens; nothing is accepted yet. Errors: kInvalidArgument for an address that is none; kIo with the system's
  // reason (the port is taken).
  static Result<std::unique_ptr<HttpServer>> Listen(const HttpOptions& options, HttpHandler handler);
  virtual ~HttpServer() = default;
  HttpServer(const HttpServer&) = delete;

  virtual int port() const = 0;
  virtual int64_t connections() const = 0;

  // Accepts and answers until Stop is done. To be called by one thread, once.
  virtual void Run() = 0;

  // Accepts no more, closes connections that are between requests, lets answers that are under way end for at most
  // `drain_s` seconds, then cuts them off. Thread-safe; a second call cuts off at once.
  virtual void Stop(double drain_s) = 0;

 protected:
  HttpServer() = default;
};

// "Not Found".
std::string_view ReasonOf(int status);

}  // namespace nunspark::server

#endif  // NUNSPARK_SERVER_HTTP_H_
