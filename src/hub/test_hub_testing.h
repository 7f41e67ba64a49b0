// A hub on this machine's loopback that misbehaves as it is told. For tests only.
#ifndef NUNSPARK_HUB_TEST_HUB_TESTING_H_
#define NUNSPARK_HUB_TEST_HUB_TESTING_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "hub/digest.h"

namespace nunspark {

struct TestRequest {
  std::string path;                            // with its query
  std::map<std::string, std::string> headers;  // names in lower case
  std::string Header(const std::string& name) const;
  int64_t from() const;  // of "Range: bytes=N-", else 0
};

// What a handler writes to. Each connection serves one request and is then closed.
class TestReply {
 public:
  explicit TestReply(int socket) : socket_(socket) {}
  // Any bytes, as they are. False when the client has gone.
  bool Send(std::string_view bytes);
  // A whole answer with a Content-Length.
  bool Answer(int status, const std::string& headers, std::string_view body);
  // Waits until the client closes.
  void AwaitClose();

 private:
  int socket_;
};

// An HTTP server whose answers are written by hand. Threads of its own; ends in the destructor.
class TestServer {
 public:
  using Handler = std::function<void(const TestRequest&, TestReply&)>;

  explicit TestServer(Handler handler);
  ~TestServer();
  TestServer(const TestServer&) = delete;
  TestServer& operator=(const TestServer&) = delete;

  int port() const { return port_; }
  // "http://127.0.0.1:<port>", or with another name of this machine.
  std::string Url(const std::string& host = "127.0.0.1") const;
  std::vector<TestRequest> requests() const;

 private:
  void Serve(int socket);

  Handler handler_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> stopped_{false};
  std::thread acceptor_;
  mutable std::mutex mutex_;
  std::vector<TestRequest> requests_;
  std::vector<std::thread> connections_;
  std::vector<int> sockets_;
};

// The content of a file of a TestHub, and how its next requests are answered; afterwards rightly.
struct TestFile {
  std::string content;
  bool large = true;  // kept by SHA-256, as model files are; else in git
  std::deque<TestServer::Handler> faults = {};
};

// One repository, "org/model", as a hub serves it.
class TestHub {
 public:
  explicit TestHub(std::map<std::string, TestFile> files);

  const std::string kCommit = std::string(40, 'c');
  std::string endpoint() const { return server_.Url(); }
  std::vector<TestRequest> requests() const { return server_.requests(); }
  // How often a file, or the listing (""), was asked for.
  int64_t Count(const std::string& file) const;
  // The answer to the listing, and what is served in its place when not empty.
  std::string Listing() const;
  void SetListing(std::string text);
  std::string Content(const std::string& file) const;
  std::string Digest(const std::string& file) const;
  void AddFault(const std::string& file, TestServer::Handler fault);
  void ClearFaults();

  // Rightly: all, or from the byte that is asked for.
  static void Serve(const std::string& content, const TestRequest& request, TestReply& reply);
  // As Serve, but the connection ends after `bytes` of the body.
  static TestServer::Handler CutAfter(const std::string& content, int64_t bytes);
  static TestServer::Handler Status(int status, const std::string& headers = "");
  static TestServer::Handler RedirectTo(const std::string& url);

 private:
  void Handle(const TestRequest& request, TestReply& reply);

  mutable std::mutex mutex_;
  std::map<std::string, TestFile> files_;
  std::deque<TestServer::Handler> listing_faults_;
  std::string listing_;
  TestServer server_;  // last: its threads use the rest
};

}  // namespace nunspark

#endif  // NUNSPARK_HUB_TEST_HUB_TESTING_H_
