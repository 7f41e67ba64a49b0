#include "hub/test_hub_testing.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>

#include "base/ascii.h"
#include "base/check.h"
#include "base/json.h"

namespace nunspark {
namespace {

const std::string kPrefix = "/org/model/resolve/";

std::string Head(int status, const std::string& headers, int64_t bytes) {
  return fmt::format("HTTP/1.1 {} X\r\nConnection: close\r\nContent-Length: {}\r\n{}\r\n", status, bytes, headers);
}

}  // namespace

std::string TestRequest::Header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

int64_t TestRequest::from() const {
  const std::string range = Header("range");
  return range.starts_with("bytes=") ? std::atoll(range.c_str() + 6) : 0;
}

bool TestReply::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

bool TestReply::Answer(int status, const std::string& headers, std::string_view body) {
  return Send(Head(status, headers, static_cast<int64_t>(body.size()))) && Send(body);
}

void TestReply::AwaitClose() {
  char byte = 0;
  while (::recv(socket_, &byte, 1, 0) > 0) {
  }
}

TestServer::TestServer(Handler handler) : handler_(std::move(handler)) {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK(::bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
  CHECK(::listen(listener_, 64) == 0);
  socklen_t length = sizeof(address);
  CHECK(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length) == 0);
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] {
    while (!stopped_) {
      pollfd waiting{.fd = listener_, .events = POLLIN, .revents = 0};
      if (::poll(&waiting, 1, 20) <= 0) continue;
      const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (socket < 0) continue;
      const std::lock_guard lock(mutex_);
      sockets_.push_back(socket);
      connections_.emplace_back([this, socket] { Serve(socket); });
    }
  });
}

TestServer::~TestServer() {
  stopped_ = true;
  acceptor_.join();
  // A handler that waits for its client ends with the connection.
  for (const int socket : sockets_) ::shutdown(socket, SHUT_RDWR);
  for (std::thread& connection : connections_) connection.join();
  for (const int socket : sockets_) ::close(socket);
  ::close(listener_);
}

std::string TestServer::Url(const std::string& host) const { return fmt::format("http://{}:{}", host, port_); }

std::vector<TestRequest> TestServer::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

void TestServer::Serve(int socket) {
  std::string text;
  char buffer[4096];
  while (text.find("\r\n\r\n") == std::string::npos) {
    const ssize_t got = ::recv(socket, buffer, sizeof(buffer), 0);
    if (got <= 0) return;
    text.append(buffer, static_cast<size_t>(got));
  }
  TestRequest request;
  const size_t space = text.find(' ');
  request.path = text.substr(space + 1, text.find(' ', space + 1) - space - 1);
  for (size_t at = text.find("\r\n") + 2; text.compare(at, 2, "\r\n") != 0;) {
    const size_t end = text.find("\r\n", at);
    const size_t colon = text.find(':', at);
    request.headers[AsciiLower(text.substr(at, colon - at))] = AsciiTrim(text.substr(colon + 1, end - colon - 1));
    at = end + 2;
  }
  {
    const std::lock_guard lock(mutex_);
    requests_.push_back(request);
  }
  TestReply reply(socket);
  handler_(request, reply);
  ::shutdown(socket, SHUT_RDWR);
}

TestHub::TestHub(std::map<std::string, TestFile> files)
    : files_(std::move(files)),
      server_([this](const TestRequest& request, TestReply& reply) { Handle(request, reply); }) {}

void TestHub::Handle(const TestRequest& request, TestReply& reply) {
  TestServer::Handler fault;
  std::string content;
  const bool is_file = request.path.starts_with(kPrefix);
  {
    std::unique_lock lock(mutex_);
    std::deque<TestServer::Handler>* faults = &listing_faults_;
    if (is_file) {
      // resolve/<commit>/<name>
      const std::string name = request.path.substr(request.path.find('/', kPrefix.size()) + 1);
      const auto file = files_.find(name);
      if (file == files_.end()) {
        lock.unlock();
        reply.Answer(404, "X-Error-Code: EntryNotFound\r\n", "");
        return;
      }
      content = file->second.content;
      faults = &file->second.faults;
    }
    if (!faults->empty()) {
      fault = std::move(faults->front());
      faults->pop_front();
    }
  }
  if (fault) {
    fault(request, reply);
  } else if (is_file) {
    Serve(content, request, reply);
  } else if (request.path.starts_with("/api/models/org/model/revision/")) {
    reply.Answer(200, "Content-Type: application/json\r\n", Listing());
  } else {
    reply.Answer(401, "X-Error-Code: RepoNotFound\r\nX-Error-Message: Repository not found\r\n", "{}");
  }
}

int64_t TestHub::Count(const std::string& file) const {
  const std::string start = file.empty() ? "/api/" : kPrefix + kCommit + "/" + file;
  const std::vector<TestRequest> all = requests();
  return std::count_if(all.begin(), all.end(), [&](const TestRequest& request) {
    return file.empty() ? request.path.starts_with(start) : request.path == start;
  });
}

std::string TestHub::Digest(const std::string& file) const {
  const std::lock_guard lock(mutex_);
  const TestFile& of = files_.at(file);
  nunspark::Digest digest(of.large ? DigestKind::kSha256 : DigestKind::kGitBlob,
                          static_cast<int64_t>(of.content.size()));
  digest.Update(of.content);
  return digest.Hex();
}

std::string TestHub::Content(const std::string& file) const {
  const std::lock_guard lock(mutex_);
  return files_.at(file).content;
}

std::string TestHub::Listing() const {
  std::vector<std::pair<std::string, std::pair<bool, int64_t>>> files;
  {
    const std::lock_guard lock(mutex_);
    if (!listing_.empty()) return listing_;
    for (const auto& [name, file] : files_) {
      files.push_back({name, {file.large, static_cast<int64_t>(file.content.size())}});
    }
  }
  Json::Array siblings;
  for (const auto& [name, file] : files) {
    Json entry(Json::Object{{"rfilename", name}, {"size", file.second}});
    if (file.first) {
      entry.Set("blobId", std::string(40, '0'));
      entry.Set("lfs", Json::Object{{"sha256", Digest(name)}, {"size", file.second}, {"pointerSize", 134}});
    } else {
      entry.Set("blobId", Digest(name));
    }
    siblings.push_back(std::move(entry));
  }
  return WriteJson(Json::Object{{"id", "org/model"}, {"sha", kCommit}, {"siblings", std::move(siblings)}});
}

void TestHub::SetListing(std::string text) {
  const std::lock_guard lock(mutex_);
  listing_ = std::move(text);
}

void TestHub::AddFault(const std::string& file, TestServer::Handler fault) {
  const std::lock_guard lock(mutex_);
  (file.empty() ? listing_faults_ : files_.at(file).faults).push_back(std::move(fault));
}

void TestHub::ClearFaults() {
  const std::lock_guard lock(mutex_);
  listing_faults_.clear();
  for (auto& [name, file] : files_) file.faults.clear();
}

void TestHub::Serve(const std::string& content, const TestRequest& request, TestReply& reply) {
  CutAfter(content, static_cast<int64_t>(content.size()))(request, reply);
}

TestServer::Handler TestHub::CutAfter(const std::string& content, int64_t bytes) {
  return [content, bytes](const TestRequest& request, TestReply& reply) {
    const auto total = static_cast<int64_t>(content.size());
    const int64_t from = std::min(request.from(), total);
    std::string headers = "ETag: \"v1\"\r\n";
    if (request.from() >= total && total > 0) {
      reply.Answer(416, fmt::format("Content-Range: bytes */{}\r\n", total), "");
      return;
    }
    if (from > 0) headers += fmt::format("Content-Range: bytes {}-{}/{}\r\n", from, total - 1, total);
    if (!reply.Send(Head(from > 0 ? 206 : 200, headers, total - from))) return;
    reply.Send(
        std::string_view(content).substr(static_cast<size_t>(from), static_cast<size_t>(std::max<int64_t>(bytes, 0))));
  };
}

TestServer::Handler TestHub::Status(int status, const std::string& headers) {
  return [status, headers](const TestRequest&, TestReply& reply) { reply.Answer(status, headers, "no"); };
}

TestServer::Handler TestHub::RedirectTo(const std::string& url) {
  return [url](const TestRequest&, TestReply& reply) { reply.Answer(302, "Location: " + url + "\r\n", ""); };
}

}  // namespace nunspark
