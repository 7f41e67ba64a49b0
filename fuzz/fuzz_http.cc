// Bytes of clients, through the server's sockets: the first byte says how they are cut and how the client leaves. What
// reaches the handler is within its limits, what comes back is whole HTTP, and the server is there for the next one.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "base/ascii.h"
#include "base/check.h"
#include "server/http.h"

namespace {

using namespace nunspark::server;

constexpr int64_t kHeaderBytes = 1 << 10, kBodyBytes = 2 << 10;

// Answers with what it was asked: whole, or in parts where the query says so.
void Handle(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  CHECK(!request.method.empty() && !request.path.empty() && request.path[0] == '/');
  CHECK(request.path.find('\0') == std::string::npos);
  CHECK(std::ssize(request.body) <= kBodyBytes);
  int64_t head = 0;
  for (const auto& [name, value] : request.headers) {
    CHECK(!name.empty() && name == nunspark::AsciiLower(name));
    CHECK(value.find_first_of("\r\n") == std::string::npos);
    head += std::ssize(name) + std::ssize(value);
  }
  CHECK(head <= kHeaderBytes);
  const Headers headers{{"X-Method", request.method}};
  if (request.query == "drop") return;
  if (request.query != "parts") return exchange->Send({.body = request.body, .headers = headers});
  exchange->Begin(200, "text/plain", headers, "");
  exchange->Write(request.body);
  exchange->Write(request.body);
  exchange->End();
}

int Port() {
  static const int port = [] {
    auto server = HttpServer::Listen(
                      {.port = 0,
                       .max_header_bytes = kHeaderBytes,
                       .max_body_bytes = kBodyBytes,
                       .header_timeout_s = 1,
                       .body_timeout_s = 1,
                       .idle_timeout_s = 1,
                       .cors_origin = "*"},
                      [](HttpRequest request, const std::shared_ptr<Exchange>& exchange) { Handle(request, exchange); })
                      .value();
    const int its_port = server->port();
    // To the end of the process.
    std::thread([running = std::shared_ptr<HttpServer>(std::move(server))] { running->Run(); }).detach();
    return its_port;
  }();
  return port;
}

int Connect() {
  const int client = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(Port()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK(client >= 0 && ::connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
  const int on = 1;
  ::setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return client;
}

void Reset(int client) {
  const linger hard{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(client, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
  ::close(client);
}

// What comes until the other side has ended; false when that was not in order. A client that has waited for a moment
// says that it sends no more.
bool ReadAll(int client, std::string& reply) {
  bool ended = false;
  while (true) {
    pollfd poll{.fd = client, .events = POLLIN, .revents = 0};
    if (::poll(&poll, 1, ended ? 20000 : 2) == 0) {
      CHECK(!ended);
      ::shutdown(client, SHUT_WR);
      ended = true;
      continue;
    }
    char bytes[4096];
    const ssize_t count = ::recv(client, bytes, sizeof(bytes), 0);
    if (count <= 0) return count == 0;
    reply.append(bytes, static_cast<size_t>(count));
  }
}

// Takes one answer from the front; what it asks of its end must be there.
void TakeAnswer(std::string_view& text) {
  CHECK(text.starts_with("HTTP/1.1 "));
  const size_t end = text.find("\r\n\r\n");
  CHECK(end != std::string_view::npos);
  const std::string_view head = text.substr(0, end + 2);
  text.remove_prefix(end + 4);
  if (head.starts_with("HTTP/1.1 100 ")) return;
  CHECK(ReasonOf(std::stoi(std::string(head.substr(9, 3)))) != "Unknown");
  const bool no_body = head.find("X-Method: HEAD\r\n") != std::string_view::npos || head.starts_with("HTTP/1.1 204 ");
  const size_t length = head.find("Content-Length: ");
  if (length != std::string_view::npos) {
    const size_t size = no_body ? 0 : std::stoul(std::string(head.substr(length + 16, 12)));
    CHECK(text.size() >= size);
    text.remove_prefix(size);
  } else if (head.find("Transfer-Encoding: chunked\r\n") == std::string_view::npos) {
    text = {};  // to the end of the connection
  } else if (!no_body) {
    while (true) {
      const size_t line = text.find("\r\n");
      CHECK(line != std::string_view::npos);
      const size_t size = std::stoul(std::string(text.substr(0, line)), nullptr, 16);
      text.remove_prefix(line + 2);
      CHECK(text.size() >= size + 2);
      text.remove_prefix(size + 2);
      if (size == 0) break;
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t piece = data[0] % 4 == 0 ? 1 + data[0] % 61 : text.size();
  const int client = Connect();
  for (size_t at = 0; at < text.size(); at += piece) {
    const std::string_view part = text.substr(at, piece);
    if (::send(client, part.data(), part.size(), MSG_NOSIGNAL) < 0) break;
  }
  if (data[0] >= 224) {
    Reset(client);
  } else {
    std::string reply;
    const bool whole = ReadAll(client, reply);
    Reset(client);
    std::string_view left = reply;
    while (whole && !left.empty()) TakeAnswer(left);
  }
  static int count = 0;
  if (++count % 16 != 0) return 0;
  const int next = Connect();
  const std::string_view ask = "POST /next HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
  CHECK(::send(next, ask.data(), ask.size(), MSG_NOSIGNAL) == std::ssize(ask));
  std::string reply;
  CHECK(ReadAll(next, reply) && reply.starts_with("HTTP/1.1 200 ") && reply.ends_with("ok"));
  Reset(next);
  return 0;
}
