// A running `nunspark serve` or `nunspark web`, and clients of it that say exactly what goes over the socket.
#ifndef NUNSPARK_TESTS_INTEGRATION_SERVING_H_
#define NUNSPARK_TESTS_INTEGRATION_SERVING_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/ascii.h"
#include "base/eventually_testing.h"
#include "base/json.h"
#include "base/read_file.h"
#include "integration/program.h"
#include "integration/support.h"

namespace nunspark::test {

using namespace std::chrono_literals;

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
  // Whether the other side has been found to have ended it.
  bool ended() const { return ended_; }
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
    if (count <= 0) {
      ended_ = true;
      return false;
    }
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
  bool ended_ = false;
  std::string received_;
};

inline std::string RequestText(const std::string& method, const std::string& path, const std::string& body,
                               const std::string& headers = "") {
  return method + " " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + headers +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

// A program that listens at a free port of this machine, ended with the object.
class Listener {
 public:
  ~Listener() {
    if (child_ > 0) Stop(SIGKILL);
  }
  Listener(const Listener&) = delete;

  int port() const { return port_; }
  pid_t pid() const { return child_; }
  // In a folder of its own.
  std::string Path(const std::string& name) const { return temp_.path() + "/" + name; }
  std::string Log() const {
    const Result<std::string> log = ReadWholeFile(Path("log"));
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

 protected:
  Listener() = default;
  // Runs `command` until it has said where it listens.
  void Launch(const std::string& command) {
    ::unlink(Path("log").c_str());
    port_ = 0;
    child_ = fork();
    if (child_ == 0) {
      const std::string line = "XDG_CACHE_HOME=" + Path("cache") + " exec " + command + " 2>" + Path("log");
      execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
      _exit(127);
    }
    for (int i = 0; i < 3000 && port_ == 0 && waitpid(child_, nullptr, WNOHANG) == 0; ++i) {
      std::this_thread::sleep_for(10ms);
      const std::string log = Log();
      const size_t at = log.find("http://127.0.0.1:");
      if (at != std::string::npos && log.find('\n', at) != std::string::npos) port_ = std::atoi(log.c_str() + at + 17);
    }
    EXPECT_NE(port_, 0) << Log();
  }

 private:
  const TempFolder temp_;
  pid_t child_ = -1;
  int port_ = 0;
};

class Server : public Listener {
 public:
  explicit Server(const std::string& flags = "", const std::string& model = Demo()) {
    Launch(kBinary + " serve " + model + " --port 0 " + flags);
  }

  // Value of a line of /metrics.
  int64_t Metric(const std::string& name) const {
    const std::string text = Ask("GET", "/metrics").body;
    const size_t at = text.find("\nnunspark_" + name + "{");
    EXPECT_NE(at, std::string::npos) << name;
    return at == std::string::npos ? -1 : std::atoll(text.c_str() + text.find("} ", at) + 2);
  }
};

inline Json Chat(const std::string& text, int64_t max_tokens = 30) {
  return Json::Object{{"messages", Json::Array{Json::Object{{"role", "user"}, {"content", text}}}},
                      {"max_tokens", max_tokens}};
}

inline std::string ContentOf(const Json& reply, size_t choice = 0) {
  const Json choices = MemberOf(reply, {"choices"});
  if (!choices.is_array() || choices.as_array().size() <= choice) return "(none)";
  return MemberOf(choices.as_array()[choice], {"message", "content"}).as_string();
}

// The events' data, one after the other.
inline std::vector<std::string> EventsOf(const std::string& body) {
  std::vector<std::string> events;
  for (size_t at = 0; (at = body.find("data: ", at)) != std::string::npos;) {
    const size_t end = body.find('\n', at);
    events.push_back(body.substr(at + 6, end - at - 6));
    at = end;
  }
  return events;
}

inline std::string AloneText(const std::string& prompt, const std::string& flags) {
  std::string text = Nunspark("generate " + Demo() + " --prompt '" + prompt + "' " + flags).out;
  if (!text.empty()) text.pop_back();
  return text;
}

}  // namespace nunspark::test

#endif  // NUNSPARK_TESTS_INTEGRATION_SERVING_H_
