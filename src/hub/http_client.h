// GET over HTTP and HTTPS, with nothing left to chance: redirects are followed one at a time and only so many, a token
// goes to the first origin only, headers and answers are bounded, certificates are always verified.
#ifndef NUNSPARK_HUB_HTTP_CLIENT_H_
#define NUNSPARK_HUB_HTTP_CLIENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "nunspark/status.h"

namespace nunspark {

struct HttpRequest {
  std::string url;
  std::string token;     // "Authorization: Bearer", sent to the origin of `url` until the first redirect elsewhere
  int64_t from = 0;      // first byte that is wanted; 0: all
  std::string if_range;  // entity tag of the earlier part; "": none
};

// Content-Range: bytes first-last/total.
struct ContentRange {
  int64_t first = 0;
  int64_t last = 0;
  int64_t total = -1;  // -1: unknown
};

// The head of a final answer, that is, of one that is no redirect.
struct HttpHead {
  int status = 0;
  int64_t content_bytes = -1;  // of the body; -1: not said
  std::optional<ContentRange> range;
  std::string etag;           // strong ones only
  double retry_after_s = -1;  // -1: not said
  std::string error_code;     // X-Error-Code, X-Error-Message
  std::string error_message;
};

struct HttpAnswer {
  // kInvalidArgument, kIo: a failed transfer or redirect; kCancelled; what a callback returned. ok: the head is there,
  // whatever its status, and of a body with status 2xx all of it was delivered as far as its length was told.
  Status status;
  // The failure may pass: a connection that could not be made or was cut, a server that was silent.
  bool transient = false;
  // There was no connection at all: no network, no such host, nobody who listens.
  bool unreachable = false;
  HttpHead head;
};

// What takes the answer; called for status 2xx only. A failure ends the transfer.
struct HttpSink {
  std::function<Status(const HttpHead& head)> begin;
  std::function<Status(std::string_view data)> data;
};

struct HttpOptions {
  int connect_timeout_s = 15;
  int stall_timeout_s = 60;  // without a byte
  // Asked about once a second and at every part of a body.
  std::function<bool()> cancelled = [] { return false; };
};

inline constexpr int kMaxRedirects = 8;
inline constexpr size_t kMaxHeaderBytes = 256 << 10;  // of all headers of one request, redirects included

// "http://host:80" for any address below it; "" when it is none that is fetched. Names are lower case.
std::string OriginOf(const std::string& url);

enum class Slashes : uint8_t { kKept, kEncoded };
// `text` with everything but letters, digits, "-._~" and slashes that are kept as %XX.
std::string PercentEncode(std::string_view text, Slashes slashes);

// One connection at a time, kept open between requests. For one thread.
class HttpClient {
 public:
  explicit HttpClient(HttpOptions options);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  HttpAnswer Get(const HttpRequest& request, const HttpSink& sink);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace nunspark

#endif  // NUNSPARK_HUB_HTTP_CLIENT_H_
