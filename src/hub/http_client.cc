#include "hub/http_client.h"

#include <curl/curl.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include "base/ascii.h"
#include "base/check.h"

namespace nunspark {
namespace {

// Bodies of redirects and errors are read to keep the connection, as long as they are short.
constexpr size_t kMaxIgnoredBytes = 64 << 10;
constexpr long kReceiveBuffer = 256 << 10;
constexpr size_t kMaxQuoted = 300;

struct UrlFree {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};
struct ListFree {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};

std::string UrlPart(CURLU* url, CURLUPart part, unsigned int flags) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, flags) != CURLUE_OK || text == nullptr) return "";
  std::string copy = text;
  curl_free(text);
  return copy;
}

struct Origin {
  std::string scheme, host, port;
  bool loopback() const { return host == "localhost" || host == "[::1]" || host.starts_with("127."); }
};

std::optional<Origin> ParseOrigin(const std::string& address) {
  const std::unique_ptr<CURLU, UrlFree> url(curl_url());
  CHECK(url != nullptr);
  if (curl_url_set(url.get(), CURLUPART_URL, address.c_str(), 0) != CURLUE_OK) return std::nullopt;
  Origin origin{.scheme = AsciiLower(UrlPart(url.get(), CURLUPART_SCHEME, 0)),
                .host = AsciiLower(UrlPart(url.get(), CURLUPART_HOST, 0)),
                .port = UrlPart(url.get(), CURLUPART_PORT, CURLU_DEFAULT_PORT)};
  const bool known = origin.scheme == "http" || origin.scheme == "https";
  // A name and password in an address would be sent.
  const bool anonymous =
      UrlPart(url.get(), CURLUPART_USER, 0).empty() && UrlPart(url.get(), CURLUPART_PASSWORD, 0).empty();
  if (!known || origin.host.empty() || !anonymous) return std::nullopt;
  return origin;
}

std::optional<int64_t> ParseNumber(std::string_view text) {
  int64_t number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() || number < 0 || text.empty()) {
    return std::nullopt;
  }
  return number;
}

std::optional<ContentRange> ParseContentRange(std::string_view text) {
  if (!AsciiLower(text.substr(0, 6)).starts_with("bytes ")) return std::nullopt;
  text = AsciiTrim(text.substr(6));
  const size_t dash = text.find('-'), slash = text.find('/');
  if (dash == std::string_view::npos || slash == std::string_view::npos || dash > slash) return std::nullopt;
  const auto first = ParseNumber(text.substr(0, dash));
  const auto last = ParseNumber(text.substr(dash + 1, slash - dash - 1));
  const std::string_view total = text.substr(slash + 1);
  const auto bytes = total == "*" ? std::optional<int64_t>(-1) : ParseNumber(total);
  if (!first || !last || !bytes || *last < *first || (*bytes >= 0 && *last >= *bytes)) return std::nullopt;
  return ContentRange{.first = *first, .last = *last, .total = *bytes};
}

// Seconds; dates are rare and not worth trusting our clock and theirs.
double ParseRetryAfter(std::string_view text) {
  const auto seconds = ParseNumber(text);
  return seconds ? static_cast<double>(*seconds) : -1;
}

bool IsUnreachable(CURLcode code) {
  return code == CURLE_COULDNT_RESOLVE_PROXY || code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_CONNECT;
}

bool IsTransient(CURLcode code) {
  if (IsUnreachable(code)) return true;
  switch (code) {
    case CURLE_PARTIAL_FILE:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR: return true;
    default: return false;
  }
}

// curl wants its global state made once, before threads.
void InitializeCurl() {
  static std::once_flag once;
  std::call_once(once, [] { CHECK(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK); });
}

// One request on the wire: what its callbacks collect.
struct Exchange {
  CURL* easy = nullptr;
  const HttpSink* sink = nullptr;
  const std::function<bool()>* cancelled = nullptr;
  HttpHead head;
  size_t* header_bytes = nullptr;
  size_t ignored_bytes = 0;
  bool begun = false;
  Status failure;  // of a callback

  bool accepted() const { return head.status >= 200 && head.status < 300; }
  bool Fail(Status status) {
    failure = std::move(status);
    return false;
  }
  bool Begin() {
    if (begun || !accepted()) return true;
    begun = true;
    Status status = sink->begin(head);
    return status.ok() || Fail(std::move(status));
  }
  bool Header(std::string_view line);
  bool Body(std::string_view data);
};

bool Exchange::Header(std::string_view line) {
  *header_bytes += line.size();
  if (*header_bytes > kMaxHeaderBytes) {
    return Fail(DataLossError(fmt::format("the server sends more than {} bytes of headers", kMaxHeaderBytes)));
  }
  if (line.starts_with("HTTP/")) {
    // Also after "100 Continue" and a proxy's answer.
    head = HttpHead();
    const size_t space = line.find(' ');
    if (space != std::string_view::npos) {
      head.status = static_cast<int>(ParseNumber(line.substr(space + 1, 3)).value_or(0));
    }
    return true;
  }
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return true;
  const std::string name = AsciiLower(line.substr(0, colon));
  const std::string_view value = AsciiTrim(line.substr(colon + 1));
  if (name == "content-length") {
    head.content_bytes = ParseNumber(value).value_or(-1);
  } else if (name == "content-range") {
    head.range = ParseContentRange(value);
  } else if (name == "etag" && value.starts_with('"')) {
    head.etag = value;
  } else if (name == "retry-after") {
    head.retry_after_s = ParseRetryAfter(value);
  } else if (name == "x-error-code") {
    head.error_code = value.substr(0, kMaxQuoted);
  } else if (name == "x-error-message") {
    head.error_message = value.substr(0, kMaxQuoted);
  }
  return true;
}

bool Exchange::Body(std::string_view data) {
  if ((*cancelled)()) return Fail(CancelledError("stopped"));
  if (!accepted()) {
    ignored_bytes += data.size();
    return ignored_bytes <= kMaxIgnoredBytes;
  }
  if (!Begin()) return false;
  Status status = sink->data(data);
  return status.ok() || Fail(std::move(status));
}

size_t OnHeader(char* data, size_t size, size_t count, void* exchange) {
  return static_cast<Exchange*>(exchange)->Header({data, size * count}) ? size * count : 0;
}

size_t OnBody(char* data, size_t size, size_t count, void* exchange) {
  return static_cast<Exchange*>(exchange)->Body({data, size * count}) ? size * count : 0;
}

int OnProgress(void* exchange, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  Exchange& of = *static_cast<Exchange*>(exchange);
  if (!(*of.cancelled)()) return 0;
  of.failure = CancelledError("stopped");
  return 1;
}

}  // namespace

struct HttpClient::Impl {
  HttpOptions options;
  CURL* easy = nullptr;

  // One request without its redirects; the next address in `next` if it is one.
  HttpAnswer Once(const HttpRequest& request, const std::string& url, bool with_token, const HttpSink& sink,
                  size_t& header_bytes, std::string& next);
};

std::string OriginOf(const std::string& url) {
  const std::optional<Origin> origin = ParseOrigin(url);
  return origin ? fmt::format("{}://{}:{}", origin->scheme, origin->host, origin->port) : "";
}

std::string PercentEncode(std::string_view text, Slashes slashes) {
  std::string encoded;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("-._~").find(c) != std::string_view::npos ||
                       (c == '/' && slashes == Slashes::kKept);
    if (plain) {
      encoded += c;
    } else {
      encoded += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return encoded;
}

HttpClient::HttpClient(HttpOptions options) : impl_(std::make_unique<Impl>()) {
  InitializeCurl();
  impl_->options = std::move(options);
  impl_->easy = curl_easy_init();
  CHECK(impl_->easy != nullptr);
}

HttpClient::~HttpClient() { curl_easy_cleanup(impl_->easy); }

HttpAnswer HttpClient::Get(const HttpRequest& request, const HttpSink& sink) {
  std::string url = request.url;
  const std::optional<Origin> first = ParseOrigin(url);
  if (!first)
    return {.status = InvalidArgumentError(fmt::format("'{}' is no address that is fetched", url)), .head = {}};
  // In the clear it would be anybody's.
  bool with_token = !request.token.empty() && (first->scheme == "https" || first->loopback());
  size_t header_bytes = 0;
  for (int redirects = 0; redirects <= kMaxRedirects; ++redirects) {
    std::string next;
    HttpAnswer answer = impl_->Once(request, url, with_token, sink, header_bytes, next);
    if (next.empty()) return answer;
    const std::optional<Origin> origin = ParseOrigin(next);
    if (!origin) {
      return {.status = DataLossError(fmt::format("{} redirects to '{}', which is no address that is fetched",
                                                  OriginOf(url), next.substr(0, kMaxQuoted))),
              .head = {}};
    }
    if (url.starts_with("https:") && origin->scheme != "https") {
      return {.status = DataLossError(
                  fmt::format("{} redirects to {}, which is not encrypted", OriginOf(url), OriginOf(next))),
              .head = {}};
    }
    // Not again either when a later redirect leads back.
    if (OriginOf(next) != OriginOf(request.url)) with_token = false;
    url = std::move(next);
  }
  return {.status = DataLossError(fmt::format("{} redirects more than {} times", OriginOf(request.url), kMaxRedirects)),
          .head = {}};
}

HttpAnswer HttpClient::Impl::Once(const HttpRequest& request, const std::string& url, bool with_token,
                                  const HttpSink& sink, size_t& header_bytes, std::string& next) {
  Exchange exchange{.easy = easy,
                    .sink = &sink,
                    .cancelled = &options.cancelled,
                    .head = {},
                    .header_bytes = &header_bytes,
                    .failure = {}};
  curl_easy_reset(easy);
  char error_text[CURL_ERROR_SIZE] = "";
  curl_slist* headers = nullptr;
  const auto add = [&](const std::string& line) { headers = curl_slist_append(headers, line.c_str()); };
  // Compressed bytes would be others than those that were hashed.
  add("Accept-Encoding: identity");
  if (with_token) add("Authorization: Bearer " + request.token);
  if (request.from > 0 && !request.if_range.empty()) add("If-Range: " + request.if_range);
  const std::unique_ptr<curl_slist, ListFree> owned(headers);
  const std::string range = fmt::format("{}-", request.from);
  curl_easy_setopt(easy, CURLOPT_URL, url.c_str());
  curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
  curl_easy_setopt(easy, CURLOPT_USERAGENT, "nunspark/" NUNSPARK_VERSION);
  if (request.from > 0) curl_easy_setopt(easy, CURLOPT_RANGE, range.c_str());
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 1L);
  curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 2L);
  curl_easy_setopt(easy, CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
  curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, static_cast<long>(options.connect_timeout_s));
  curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, static_cast<long>(options.stall_timeout_s));
  curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, kReceiveBuffer);
  curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, error_text);
  curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, &OnHeader);
  curl_easy_setopt(easy, CURLOPT_HEADERDATA, &exchange);
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, &OnBody);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, &exchange);
  curl_easy_setopt(easy, CURLOPT_XFERINFOFUNCTION, &OnProgress);
  curl_easy_setopt(easy, CURLOPT_XFERINFODATA, &exchange);
  curl_easy_setopt(easy, CURLOPT_NOPROGRESS, 0L);
  const CURLcode code = curl_easy_perform(easy);
  HttpAnswer answer{.status = exchange.failure, .transient = false, .unreachable = false, .head = exchange.head};
  if (!answer.status.ok()) return answer;
  const int status = exchange.head.status;
  if (status >= 300 && status < 400) {
    const char* location = nullptr;
    curl_easy_getinfo(easy, CURLINFO_REDIRECT_URL, &location);
    if (location != nullptr) {
      next = location;
      return answer;
    }
  }
  // The head of a refusal says enough; how its body ends does not matter.
  if (code != CURLE_OK && (status == 0 || exchange.accepted())) {
    answer.transient = IsTransient(code);
    long sent = 0;
    curl_easy_getinfo(easy, CURLINFO_REQUEST_SIZE, &sent);
    answer.unreachable = IsUnreachable(code) || (code == CURLE_OPERATION_TIMEDOUT && sent == 0);
    answer.status =
        IoError(fmt::format("{}: {}", OriginOf(url), error_text[0] != '\0' ? error_text : curl_easy_strerror(code)));
    return answer;
  }
  // An empty body calls nobody.
  if (exchange.accepted() && !exchange.Begin()) answer.status = exchange.failure;
  return answer;
}

}  // namespace nunspark
