#include "server/http.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <mutex>
#include <optional>
#include <unordered_set>

#include <fmt/format.h>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>

#include "base/ascii.h"
#include "base/check.h"

namespace nunspark::server {
namespace {

namespace net = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;
using net::ip::tcp;

constexpr size_t kReadBytes = 64 << 10;
// Bodies up to here are taken however many large ones wait: together no more than the connections' buffers.
constexpr int64_t kSmallBody = kReadBytes;

// Between two looks at whether a connection that was refused for want of descriptors may be had.
constexpr std::chrono::milliseconds kAcceptPause{100};

// Between two looks at whether a client has left that has sent its next request already.
constexpr std::chrono::milliseconds kHungUpPause{100};

// For what a client still sends after it was refused.
constexpr std::chrono::seconds kLinger{2};

std::chrono::nanoseconds Duration(double seconds) {
  return std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
}

std::string HeadText(int status, std::string_view content_type, const Headers& headers, const std::string& cors) {
  std::string head =
      fmt::format("HTTP/1.1 {} {}\r\nServer: nunspark\r\nContent-Type: {}\r\n", status, ReasonOf(status), content_type);
  if (!cors.empty()) head += fmt::format("Access-Control-Allow-Origin: {}\r\nVary: Origin\r\n", cors);
  for (const auto& [name, value] : headers) head += fmt::format("{}: {}\r\n", name, value);
  return head;
}

std::string WholeText(const HttpResponse& response, const std::string& cors, bool head_only, bool keep) {
  std::string text = HeadText(response.status, response.content_type, response.headers, cors);
  text +=
      fmt::format("Content-Length: {}\r\nConnection: {}\r\n\r\n", response.body.size(), keep ? "keep-alive" : "close");
  if (!head_only) text += response.body;
  return text;
}

// To a browser that asks whether a page from elsewhere may ask.
HttpResponse PreflightResponse() {
  HttpResponse response{.status = 204};
  response.headers = {{"Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS"},
                      // Clients send headers of their own making; "*" is all but this one.
                      {"Access-Control-Allow-Headers", "Authorization, *"},
                      {"Access-Control-Max-Age", "86400"}};
  return response;
}

HttpResponse ErrorResponse(int status, std::string_view message) {
  HttpResponse response{.status = status,
                        .body = fmt::format(R"({{"error":{{"message":"{}","type":"{}","code":null}}}})", message,
                                            status >= 500 ? "server_error" : "invalid_request_error")};
  if (status == 503) response.headers.emplace_back("Retry-After", "1");
  return response;
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// nullopt: no path, or one with a NUL in it.
std::optional<std::string> DecodePath(std::string_view path) {
  std::string decoded;
  for (size_t i = 0; i < path.size(); ++i) {
    if (path[i] != '%') {
      decoded += path[i];
      continue;
    }
    if (i + 2 >= path.size()) return std::nullopt;
    const int high = HexDigit(path[i + 1]), low = HexDigit(path[i + 2]);
    if (high < 0 || low < 0 || high + low == 0) return std::nullopt;
    decoded += static_cast<char>(high * 16 + low);
    i += 2;
  }
  if (decoded.empty() || decoded[0] != '/') return std::nullopt;
  return decoded;
}

// Clients that are told to use a proxy name the server in front of the path (RFC 9112, 3.2.2).
std::string_view WithoutHost(std::string_view target) {
  constexpr std::string_view kScheme = "http://";
  if (AsciiLower(target.substr(0, kScheme.size())) != kScheme) return target;
  const size_t slash = target.find('/', kScheme.size());
  return slash == std::string_view::npos ? std::string_view("/") : target.substr(slash);
}

// Whether the other side has ended the connection, whatever is left to be read.
bool HungUp(int socket) {
#ifdef POLLRDHUP
  pollfd state{.fd = socket, .events = POLLRDHUP, .revents = 0};
#else
  pollfd state{.fd = socket, .events = 0, .revents = 0};
#endif
  return ::poll(&state, 1, 0) > 0;
}

// An end to waiting for bytes: what reads from the stream then is cancelled. Of the connections' thread.
class Deadline {
 public:
  using TimePoint = net::steady_timer::time_point;

  explicit Deadline(beast::tcp_stream& stream) : timer_(stream.get_executor()), state_(std::make_shared<State>()) {
    state_->stream = &stream;
    stream.expires_never();
  }
  ~Deadline() { state_->stream = nullptr; }
  Deadline(const Deadline&) = delete;

  void Set(TimePoint end) {
    timer_.expires_at(end);
    timer_.async_wait([state = state_](error_code cancelled) {
      if (cancelled || state->stream == nullptr) return;
      state->passed = true;
      state->stream->cancel();
    });
  }
  bool passed() const { return state_->passed; }

 private:
  struct State {
    beast::tcp_stream* stream = nullptr;
    bool passed = false;
  };

  net::steady_timer timer_;
  const std::shared_ptr<State> state_;
};

// What other threads hand to the connection's coroutine.
class ExchangeImpl : public Exchange {
 public:
  ExchangeImpl(net::any_io_executor executor, int64_t max_unsent_bytes)
      : wake_(executor, net::steady_timer::time_point::max()), max_unsent_bytes_(max_unsent_bytes) {}

  void Send(HttpResponse response) override {
    const std::lock_guard lock(mutex_);
    CHECK(!begun_);
    begun_ = ended_ = true;
    whole_ = std::move(response);
    Wake();
  }

  void Begin(int status, std::string content_type, Headers headers, std::string keep_alive) override {
    const std::lock_guard lock(mutex_);
    CHECK(!begun_);
    begun_ = true;
    head_ = {.status = status, .content_type = std::move(content_type), .body = {}, .headers = std::move(headers)};
    keep_alive_ = std::move(keep_alive);
    Wake();
  }

  void Write(std::string part) override {
    const std::lock_guard lock(mutex_);
    CHECK(begun_ && !ended_);
    if (closed_ || part.empty()) return;
    unsent_bytes_ += std::ssize(part);
    if (unsent_bytes_ > max_unsent_bytes_) {
      closed_ = true;
      parts_ = {};
    } else {
      parts_ += part;
    }
    Wake();
  }

  void End() override {
    const std::lock_guard lock(mutex_);
    CHECK(begun_ && !ended_);
    ended_ = true;
    Wake();
  }

  bool closed() const override {
    const std::lock_guard lock(mutex_);
    return closed_;
  }

  void OnClosed(std::function<void()> callback) override {
    {
      const std::lock_guard lock(mutex_);
      if (ended_) return;
      if (!closed_) {
        on_closed_ = std::move(callback);
        return;
      }
    }
    callback();
  }

  // ---- for the connection

  struct Ready {
    std::optional<HttpResponse> whole;
    std::optional<HttpResponse> head;
    std::string parts;
    bool ended = false;
    bool too_slow = false;
  };

  Ready Take() {
    const std::lock_guard lock(mutex_);
    signalled_ = false;
    Ready ready{.whole = std::exchange(whole_, std::nullopt),
                .head = std::exchange(head_, std::nullopt),
                .parts = std::exchange(parts_, {}),
                .ended = ended_,
                .too_slow = unsent_bytes_ > max_unsent_bytes_};
    unsent_bytes_ = 0;
    return ready;
  }

  bool HasSomething() const {
    const std::lock_guard lock(mutex_);
    return whole_ || head_ || !parts_.empty() || ended_ || unsent_bytes_ > max_unsent_bytes_;
  }
  std::string keep_alive() const {
    const std::lock_guard lock(mutex_);
    return keep_alive_;
  }

  void Close() {
    std::function<void()> callback;
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
      parts_ = {};
      if (!ended_) callback = std::exchange(on_closed_, nullptr);
    }
    if (callback) callback();
  }

  net::steady_timer& wake() { return wake_; }

  // Nobody else holds the exchange: nobody will answer.
  void Abandoned() {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    ended_ = true;
    if (!begun_) whole_ = ErrorResponse(500, "the request was dropped");
    begun_ = true;
  }

 private:
  void Wake() {
    if (std::exchange(signalled_, true)) return;
    net::post(wake_.get_executor(), [self = weak_.lock()] {
      if (self != nullptr) self->wake_.cancel();
    });
  }

  mutable std::mutex mutex_;
  net::steady_timer wake_;  // of the connections' thread
  const int64_t max_unsent_bytes_;
  std::optional<HttpResponse> whole_, head_;
  std::string parts_, keep_alive_;
  int64_t unsent_bytes_ = 0;
  bool begun_ = false, ended_ = false, closed_ = false, signalled_ = false;
  std::function<void()> on_closed_;

 public:
  std::weak_ptr<ExchangeImpl> weak_;
};

// What handlers hold: when the last of them lets go without an answer, the connection gets one.
class Handle : public Exchange {
 public:
  explicit Handle(std::shared_ptr<ExchangeImpl> impl) : impl_(std::move(impl)) {}
  ~Handle() override {
    impl_->Abandoned();
    net::post(impl_->wake().get_executor(), [impl = impl_] { impl->wake().cancel(); });
  }
  void Send(HttpResponse response) override { impl_->Send(std::move(response)); }
  void Begin(int status, std::string content_type, Headers headers, std::string keep_alive) override {
    impl_->Begin(status, std::move(content_type), std::move(headers), std::move(keep_alive));
  }
  void Write(std::string part) override { impl_->Write(std::move(part)); }
  void End() override { impl_->End(); }
  bool closed() const override { return impl_->closed(); }
  void OnClosed(std::function<void()> callback) override { impl_->OnClosed(std::move(callback)); }

 private:
  const std::shared_ptr<ExchangeImpl> impl_;
};

class HttpServerImpl : public HttpServer {
 public:
  HttpServerImpl(HttpOptions options, HttpHandler handler)
      : options_(std::move(options)), handler_(std::move(handler)), acceptor_(io_), drain_(io_) {}

  Status Open() {
    error_code error;
    const net::ip::address address =
        net::ip::make_address(options_.host == "localhost" ? "127.0.0.1" : options_.host, error);
    if (error) {
      return InvalidArgumentError(fmt::format("--host must be an IP address or localhost, found '{}'", options_.host));
    }
    if (options_.port < 0 || options_.port > 65535) {
      return InvalidArgumentError(fmt::format("--port must be from 0 to 65535, found {}", options_.port));
    }
    const tcp::endpoint endpoint(address, static_cast<uint16_t>(options_.port));
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(net::socket_base::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(net::socket_base::max_listen_connections, error);
    if (!error) return Status();
    return IoError(fmt::format("cannot listen on {}:{}: {}; choose another --port", options_.host, options_.port,
                               error.message()));
  }

  int port() const override {
    error_code error;
    return acceptor_.local_endpoint(error).port();
  }
  int64_t connections() const override { return connections_.load(std::memory_order_relaxed); }

  void Run() override {
    net::co_spawn(io_, Accept(), net::detached);
    io_.run();
  }

  void Stop(double drain_s) override {
    net::post(io_, [this, drain_s] {
      if (stopping_) return io_.stop();
      stopping_ = true;
      error_code ignored;
      acceptor_.close(ignored);
      for (beast::tcp_stream* const idle : idle_) idle->cancel();
      drain_.expires_after(Duration(drain_s));
      drain_.async_wait([this](error_code) { io_.stop(); });
      StopWhenDrained();
    });
  }

 private:
  using Parser = http::request_parser<http::buffer_body>;

  // Bytes of one request's body, among those of all that go the same way.
  class Waiting {
   public:
    Waiting(HttpServerImpl& server, bool spooled)
        : total_(spooled ? server.spooled_bytes_ : server.waiting_body_bytes_),
          limit_(spooled ? server.options_.spool.max_total_bytes : server.options_.max_waiting_body_bytes) {}
    ~Waiting() { total_ -= bytes_; }
    Waiting(const Waiting&) = delete;
    // False: it is too large for what the others leave.
    bool Add(int64_t bytes) const {
      bytes_ += bytes;
      total_ += bytes;
      return bytes_ <= kSmallBody || total_ <= limit_;
    }
    int64_t bytes() const { return bytes_; }

   private:
    int64_t& total_;
    const int64_t limit_;
    mutable int64_t bytes_ = 0;
  };

  void StopWhenDrained() {
    if (stopping_ && connections_ == 0) io_.stop();
  }

  net::awaitable<void> Accept() {
    while (!stopping_) {
      error_code error;
      tcp::socket socket = co_await acceptor_.async_accept(net::redirect_error(net::use_awaitable, error));
      if (stopping_) co_return;
      if (error) {
        // Out of descriptors, most likely: those who leave make room.
        net::steady_timer pause(io_, kAcceptPause);
        co_await pause.async_wait(net::redirect_error(net::use_awaitable, error));
        continue;
      }
      socket.set_option(tcp::no_delay(true), error);
      net::co_spawn(io_, Connection(std::move(socket)), net::detached);
    }
  }

  // Counts itself, whatever way its connection ends.
  struct Counted {
    explicit Counted(HttpServerImpl& its_server) : server(its_server) { ++server.connections_; }
    ~Counted() {
      --server.connections_;
      server.StopWhenDrained();
    }
    HttpServerImpl& server;
  };

  net::awaitable<void> Connection(tcp::socket socket) {
    const Counted counted(*this);
    beast::tcp_stream stream(std::move(socket));
    if (connections_ > options_.max_connections) {
      co_await WriteAll(stream,
                        WholeText(ErrorResponse(503, "too many connections; try again later"), {}, false, false));
      co_return;
    }
    beast::flat_buffer buffer(static_cast<size_t>(options_.max_header_bytes) + kReadBytes);
    bool first = true;
    while (!stopping_) {
      bool keep = false;
      if (!co_await OneRequest(stream, buffer, first, keep) || !keep) break;
      first = false;
    }
    error_code ignored;
    stream.socket().shutdown(tcp::socket::shutdown_send, ignored);
    if (refused_.erase(&stream) > 0) co_await Linger(stream);
  }

  // Takes what a client sends that was refused on its way: closing at once would make its system drop the answer.
  net::awaitable<void> Linger(beast::tcp_stream& stream) {
    std::vector<char> part(kReadBytes);
    Deadline deadline(stream);
    deadline.Set(net::steady_timer::clock_type::now() + kLinger);
    idle_.insert(&stream);
    int64_t left = options_.max_body_bytes;
    for (error_code error; !error && left > 0 && !deadline.passed() && !stopping_;) {
      left -= static_cast<int64_t>(
          co_await stream.async_read_some(net::buffer(part), net::redirect_error(net::use_awaitable, error)));
    }
    idle_.erase(&stream);
  }

  net::awaitable<bool> WriteAll(beast::tcp_stream& stream, std::string text) {
    stream.expires_after(Duration(options_.write_timeout_s));
    error_code error;
    co_await net::async_write(stream, net::buffer(text), net::redirect_error(net::use_awaitable, error));
    co_return !error;
  }

  net::awaitable<bool> Refuse(beast::tcp_stream& stream, int status, std::string_view message) {
    refused_.insert(&stream);
    co_await WriteAll(stream, WholeText(ErrorResponse(status, message), options_.cors_origin, false, false));
    co_return false;
  }

  // Reads a request and writes its answer. False: the connection is of no more use.
  net::awaitable<bool> OneRequest(beast::tcp_stream& stream, beast::flat_buffer& buffer, bool first, bool& keep) {
    Parser parser;
    parser.header_limit(static_cast<uint32_t>(options_.max_header_bytes));
    // By the head it is known which of the two holds.
    parser.body_limit(static_cast<uint64_t>(std::max(options_.max_body_bytes, options_.spool.max_body_bytes)));
    error_code error;
    {
      Deadline deadline(stream);
      deadline.Set(net::steady_timer::clock_type::now() +
                   Duration(first ? options_.header_timeout_s : options_.idle_timeout_s));
      idle_.insert(&stream);
      co_await http::async_read_header(stream, buffer, parser, net::redirect_error(net::use_awaitable, error));
      idle_.erase(&stream);
      if (error && deadline.passed() && (buffer.size() > 0 || parser.got_some())) {
        co_return co_await Refuse(stream, 408, "the request's head took too long");
      }
    }
    if (error == http::error::header_limit) co_return co_await Refuse(stream, 431, "the request's head is too large");
    if (error == net::error::operation_aborted) co_return false;
    if (error == http::error::end_of_stream || error == net::error::eof || error == net::error::connection_reset) {
      co_return false;
    }
    if (error == http::error::body_limit) co_return co_await Refuse(stream, 413, "the request's body is too large");
    if (error) co_return co_await Refuse(stream, 400, "the request is not HTTP/1.1");

    HttpRequest request;
    const http::request_header<>& head = parser.get().base();
    request.method = std::string(head.method_string());
    const std::string_view target(head.target().data(), head.target().size());
    const std::string_view codings(head[http::field::transfer_encoding].data(),
                                   head[http::field::transfer_encoding].size());
    if (!codings.empty() && (AsciiLower(codings) != "chunked" || head.count(http::field::transfer_encoding) > 1)) {
      co_return co_await Refuse(stream, 501, "the only transfer coding that is understood is chunked");
    }
    const size_t mark = target.find_first_of("?#");
    std::optional<std::string> path = DecodePath(WithoutHost(target.substr(0, mark)));
    if (!path) co_return co_await Refuse(stream, 400, "the request's path is malformed");
    request.path = std::move(*path);
    if (mark != std::string_view::npos) request.query = std::string(target.substr(mark + 1));
    for (const auto& field : head) {
      request.headers.emplace_back(AsciiLower(std::string_view(field.name_string().data(), field.name_string().size())),
                                   std::string(field.value().data(), field.value().size()));
    }
    keep = parser.keep_alive() && !stopping_;
    const bool http10 = head.version() < 11;
    const bool spool = options_.spool.wanted && options_.spool.wanted(request);
    const auto limit = static_cast<uint64_t>(spool ? options_.spool.max_body_bytes : options_.max_body_bytes);
    if (parser.content_length().value_or(0) > limit) {
      co_return co_await Refuse(stream, 413, "the request's body is too large");
    }
    parser.body_limit(limit);
    const Waiting waiting(*this, spool);
    File file;
    if (spool) {
      Result<File> created = File::CreateTemporary(options_.spool.folder);
      if (!created.ok()) co_return co_await Refuse(stream, 507, "the server has no room for the request's body");
      file = std::move(created).value();
    }
    if (AsciiLower(request.Header("expect")) == "100-continue") {
      if (!co_await WriteAll(stream, "HTTP/1.1 100 Continue\r\n\r\n")) co_return false;
    }

    if (!co_await ReadBody(stream, buffer, parser, waiting, request.body, file)) co_return false;
    if (spool) request.body_file = std::make_shared<const File>(std::move(file));

    const bool head_only = request.method == "HEAD";
    if (request.method == "OPTIONS" && !options_.cors_origin.empty()) {
      co_return co_await WriteAll(stream, WholeText(PreflightResponse(), options_.cors_origin, true, keep));
    }
    const auto exchange = std::make_shared<ExchangeImpl>(io_.get_executor(), options_.max_unsent_bytes);
    exchange->weak_ = exchange;
    handler_(std::move(request), std::make_shared<Handle>(exchange));
    using net::experimental::awaitable_operators::operator||;
    const auto done = co_await (Answer(stream, *exchange, head_only, http10, keep) || UntilClosed(stream));
    const bool written = done.index() == 0 && std::get<0>(done);
    exchange->Close();
    co_return written;
  }

  // Into `file`, if that is open, else into `body`. False: it did not come, or is refused.
  net::awaitable<bool> ReadBody(beast::tcp_stream& stream, beast::flat_buffer& buffer, Parser& parser,
                                const Waiting& waiting, std::string& body, File& file) {
    if (parser.is_done()) co_return true;
    std::vector<char> part(kReadBytes);
    Deadline deadline(stream);
    const Deadline::TimePoint start = net::steady_timer::clock_type::now();
    while (!parser.is_done()) {
      const double most_s = options_.body_timeout_s +
                            static_cast<double>(waiting.bytes()) / static_cast<double>(options_.least_body_rate);
      deadline.Set(
          std::min(net::steady_timer::clock_type::now() + Duration(options_.body_timeout_s), start + Duration(most_s)));
      parser.get().body().data = part.data();
      parser.get().body().size = part.size();
      error_code error;
      co_await http::async_read(stream, buffer, parser, net::redirect_error(net::use_awaitable, error));
      if (error == net::error::operation_aborted && deadline.passed()) {
        co_return co_await Refuse(stream, 408, "the request's body took too long");
      }
      if (error == http::error::need_buffer) error = {};
      if (error == http::error::body_limit) co_return co_await Refuse(stream, 413, "the request's body is too large");
      if (error == net::error::operation_aborted || error == net::error::eof || error == http::error::partial_message ||
          error == net::error::connection_reset) {
        co_return false;
      }
      if (error) co_return co_await Refuse(stream, 400, "the request's body is not HTTP/1.1");
      const size_t count = part.size() - parser.get().body().size;
      if (!waiting.Add(static_cast<int64_t>(count))) {
        co_return co_await Refuse(stream, 503, "too many large requests at once; try again later");
      }
      if (!file.is_open()) {
        body.append(part.data(), count);
        continue;
      }
      const Status written =
          file.WriteAt(waiting.bytes() - static_cast<int64_t>(count), {reinterpret_cast<uint8_t*>(part.data()), count});
      if (!written.ok()) co_return co_await Refuse(stream, 507, "the server has no room for the request's body");
    }
    co_return true;
  }

  // Writes what comes through the exchange.
  net::awaitable<bool> Answer(beast::tcp_stream& stream, ExchangeImpl& exchange, bool head_only, bool http10,
                              bool& keep) {
    bool chunked = false;
    const auto frame = [&chunked](const std::string& data) {
      return chunked ? fmt::format("{:x}\r\n{}\r\n", data.size(), data) : data;
    };
    while (true) {
      if (!exchange.HasSomething()) {
        exchange.wake().expires_after(Duration(options_.keep_alive_s));
        error_code woken;
        co_await exchange.wake().async_wait(net::redirect_error(net::use_awaitable, woken));
        // The timer ends by itself only when nothing came.
        const std::string keep_alive = exchange.keep_alive();
        if (!woken && !exchange.HasSomething() && !keep_alive.empty() && !head_only) {
          if (!co_await WriteAll(stream, frame(keep_alive))) co_return false;
        }
        continue;
      }
      ExchangeImpl::Ready ready = exchange.Take();
      if (ready.too_slow) co_return false;
      if (ready.whole) {
        if (ready.whole->body_file != nullptr) co_return co_await WriteFile(stream, *ready.whole, head_only, keep);
        co_return co_await WriteAll(stream, WholeText(*ready.whole, options_.cors_origin, head_only, keep));
      }
      std::string text;
      if (ready.head) {
        chunked = !http10;
        keep = keep && chunked;
        text = HeadText(ready.head->status, ready.head->content_type, ready.head->headers, options_.cors_origin);
        text += chunked ? "Transfer-Encoding: chunked\r\n" : "";
        text += fmt::format("Connection: {}\r\n\r\n", keep ? "keep-alive" : "close");
      }
      if (!head_only) {
        if (!ready.parts.empty()) text += frame(ready.parts);
        if (ready.ended && chunked) text += "0\r\n\r\n";
      }
      if (!text.empty() && !co_await WriteAll(stream, std::move(text))) co_return false;
      if (ready.ended) co_return true;
    }
  }

  // A whole answer whose body is in a file. A file that cannot be read to its end cuts the answer off.
  net::awaitable<bool> WriteFile(beast::tcp_stream& stream, const HttpResponse& response, bool head_only, bool keep) {
    const Result<int64_t> size = response.body_file->Size();
    if (!size.ok()) co_return co_await Refuse(stream, 500, "the file cannot be read");
    std::string head = HeadText(response.status, response.content_type, response.headers, options_.cors_origin);
    head += fmt::format("Content-Length: {}\r\nConnection: {}\r\n\r\n", *size, keep ? "keep-alive" : "close");
    if (!co_await WriteAll(stream, std::move(head))) co_return false;
    for (int64_t at = 0; at < *size && !head_only;) {
      std::string part(static_cast<size_t>(std::min<int64_t>(*size - at, kReadBytes)), '\0');
      const Status read = response.body_file->ReadAt(at, {reinterpret_cast<uint8_t*>(part.data()), part.size()});
      at += std::ssize(part);
      if (!read.ok() || !co_await WriteAll(stream, std::move(part))) co_return false;
    }
    co_return true;
  }

  // Returns when the client has left. Bytes of a next request are left alone.
  net::awaitable<void> UntilClosed(beast::tcp_stream& stream) {
    net::steady_timer timer(io_);
    while (true) {
      error_code error;
      co_await stream.socket().async_wait(tcp::socket::wait_read, net::redirect_error(net::use_awaitable, error));
      if (error) co_return;
      char byte = 0;
      const ssize_t count = ::recv(stream.socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
      if (count == 0 || (count < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) co_return;
      if (count < 0) continue;
      // A next request is there already: nothing wakes who waits for more.
      while (!HungUp(stream.socket().native_handle())) {
        timer.expires_after(kHungUpPause);
        co_await timer.async_wait(net::redirect_error(net::use_awaitable, error));
        if (error) co_return;
      }
      co_return;
    }
  }

  const HttpOptions options_;
  const HttpHandler handler_;
  std::atomic<int64_t> connections_{0};
  int64_t waiting_body_bytes_ = 0, spooled_bytes_ = 0;
  std::unordered_set<beast::tcp_stream*> idle_;     // between requests
  std::unordered_set<beast::tcp_stream*> refused_;  // whose rest is not read
  bool stopping_ = false;
  // After all that connections use, which end with it.
  net::io_context io_{1};
  tcp::acceptor acceptor_;
  net::steady_timer drain_;
};

}  // namespace

std::string_view HttpRequest::Header(std::string_view name) const {
  for (const auto& [its_name, value] : headers) {
    if (its_name == name) return value;
  }
  return {};
}

Result<std::unique_ptr<HttpServer>> HttpServer::Listen(const HttpOptions& options, HttpHandler handler) {
  auto server = std::make_unique<HttpServerImpl>(options, std::move(handler));
  RETURN_IF_ERROR(server->Open());
  return std::unique_ptr<HttpServer>(std::move(server));
}

std::string_view ReasonOf(int status) {
  switch (status) {
    case 200: return "OK";
    case 204: return "No Content";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 413: return "Content Too Large";
    case 422: return "Unprocessable Content";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    case 507: return "Insufficient Storage";
    default: return "Unknown";
  }
}

}  // namespace nunspark::server
