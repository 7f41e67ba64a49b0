#include "hub/download.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "base/size.h"
#include "io/file.h"

namespace nunspark {
namespace {

constexpr size_t kReadBytes = 1 << 20;
// A connection that is cut again and again is worth repeating as long as it brings this much each time.
constexpr int64_t kProgressBytes = 1 << 20;
constexpr double kMaxBackoff = 60;
constexpr double kMaxRetryAfter = 300;
// Of first contacts that reach nobody: names and addresses that are wrong do not mend while one waits.
constexpr int kMostUnreached = 2;

bool MayPass(int status) { return status == 408 || status == 429 || (status >= 500 && status != 501 && status != 505); }

std::span<const uint8_t> BytesOf(std::string_view data) {
  return {reinterpret_cast<const uint8_t*>(data.data()), data.size()};
}

// Counts failures in a row and waits between them.
class Repetition {
 public:
  explicit Repetition(const DownloadControl& control) : control_(control) {}

  void Reset() { failures_ = 0; }
  int failures() const { return failures_; }

  // After a failure that may pass. Errors: `reason`, when there were too many or the server asks for too long a pause.
  Status Wait(const Status& reason, double retry_after_s) {
    if (++failures_ >= control_.max_failures) {
      return reason.WithContext(fmt::format("given up after {} failures in a row", failures_));
    }
    if (retry_after_s > kMaxRetryAfter) {
      return ResourceExhaustedError(
          fmt::format("{}; the server asks to come again in {:.0f} seconds", reason.message(), retry_after_s));
    }
    double seconds = control_.backoff_s * static_cast<double>(int64_t{1} << std::min(failures_ - 1, 20));
    seconds = std::max(std::min(seconds, kMaxBackoff), retry_after_s);
    const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (std::chrono::steady_clock::now() < until) {
      if (control_.cancelled()) return CancelledError("stopped");
      std::this_thread::sleep_for(std::min(std::chrono::duration<double>(until - std::chrono::steady_clock::now()),
                                           std::chrono::duration<double>(0.1)));
    }
    return Status();
  }

 private:
  const DownloadControl& control_;
  int failures_ = 0;
};

class Transfer {
 public:
  Transfer(HttpClient& client, const DownloadedFile& file, const DownloadControl& control)
      : client_(client), file_(file), control_(control), part_path_(file.path + ".incomplete") {}

  Status Run();

 private:
  Status OpenPart();
  Status HashPart(int64_t bytes);
  Status Restart();
  Status GetRest();
  Status GetOnce(bool& transient, double& retry_after_s);
  Status Begin(const HttpHead& head);
  Status Append(std::string_view data);
  Status Finish();
  Status Wrong(std::string_view what, std::string_view expected, std::string_view found) const {
    return DataLossError(fmt::format("{}: {}: expected {}, found {}", file_.name, what, expected, found));
  }

  HttpClient& client_;
  const DownloadedFile& file_;
  const DownloadControl& control_;
  std::string part_path_;
  File part_;
  int64_t have_ = 0;          // bytes of the part, all of them hashed
  bool from_before_ = false;  // some of them were there when we began
  std::string etag_;          // of the answer that the part comes from
  std::optional<Digest> digest_;
};

Status Transfer::Run() {
  RETURN_IF_ERROR(OpenPart());
  while (true) {
    RETURN_IF_ERROR(GetRest());
    const std::string found = digest_->Hex();
    if (found == file_.digest) return Finish();
    // What lay there may have been damaged, by a power cut for one; what comes from the server in one go was not.
    if (!from_before_) {
      (void)::unlink(part_path_.c_str());
      control_.progress(-have_);
      return Wrong(fmt::format("the {} of what was downloaded", DigestName(file_.digest_kind)), file_.digest, found);
    }
    RETURN_IF_ERROR(Restart());
  }
}

Status Transfer::OpenPart() {
  ASSIGN_OR_RETURN(part_, File::OpenWrite(part_path_));
  ASSIGN_OR_RETURN(const int64_t bytes, part_.Size());
  digest_.emplace(file_.digest_kind, file_.bytes);
  if (bytes > file_.bytes) return Restart();
  from_before_ = bytes > 0;
  return HashPart(bytes);
}

Status Transfer::HashPart(int64_t bytes) {
  std::vector<uint8_t> buffer(static_cast<size_t>(std::min<int64_t>(bytes, kReadBytes)));
  while (have_ < bytes) {
    if (control_.cancelled()) return CancelledError("stopped");
    const auto count = static_cast<size_t>(std::min<int64_t>(bytes - have_, kReadBytes));
    RETURN_IF_ERROR(part_.ReadAt(have_, {buffer.data(), count}));
    digest_->Update({reinterpret_cast<const char*>(buffer.data()), count});
    have_ += static_cast<int64_t>(count);
    control_.progress(static_cast<int64_t>(count));
  }
  return Status();
}

Status Transfer::Restart() {
  RETURN_IF_ERROR(part_.Truncate(0));
  control_.progress(-have_);
  have_ = 0;
  from_before_ = false;
  etag_.clear();
  digest_.emplace(file_.digest_kind, file_.bytes);
  return Status();
}

Status Transfer::GetRest() {
  Repetition repetition(control_);
  while (have_ < file_.bytes) {
    if (control_.cancelled()) return CancelledError("stopped");
    const int64_t before = have_;
    bool transient = false;
    double retry_after_s = -1;
    const Status status = GetOnce(transient, retry_after_s);
    if (!status.ok() && !transient) return status;
    if (have_ == file_.bytes) break;
    if (have_ - before >= kProgressBytes) repetition.Reset();
    const Status reason =
        status.ok() ? IoError(fmt::format("{}: the connection ended at {} of {} bytes", file_.name, have_, file_.bytes))
                    : status;
    RETURN_IF_ERROR(repetition.Wait(reason, retry_after_s));
  }
  return Status();
}

Status Transfer::GetOnce(bool& transient, double& retry_after_s) {
  const HttpRequest request{.url = file_.url, .token = file_.token, .from = have_, .if_range = etag_};
  const HttpAnswer answer = client_.Get(request, {.begin = [this](const HttpHead& head) { return Begin(head); },
                                                  .data = [this](std::string_view data) { return Append(data); }});
  transient = answer.transient;
  if (!answer.status.ok()) {
    return answer.status.code() == StatusCode::kCancelled ? answer.status : answer.status.WithContext(file_.name);
  }
  const int status = answer.head.status;
  if (status >= 200 && status < 300) return Status();
  transient = MayPass(status);
  retry_after_s = answer.head.retry_after_s;
  // The server does not have so many bytes: whatever the part is, it is not the beginning of what is there.
  if (status == 416 && have_ > 0) {
    transient = true;
    RETURN_IF_ERROR(Restart());
  }
  return HttpError(answer.head, file_.name, OriginOf(file_.url));
}

Status Transfer::Begin(const HttpHead& head) {
  if (head.status == 206) {
    if (!head.range || head.range->first != have_) {
      return Wrong("the part that the server sends", fmt::format("one from byte {}", have_),
                   head.range ? fmt::format("one from byte {}", head.range->first) : "no Content-Range");
    }
    if (head.range->total >= 0 && head.range->total != file_.bytes) {
      return Wrong("size", fmt::format("{} bytes as listed", file_.bytes),
                   fmt::format("a server that has {}", head.range->total));
    }
  } else if (head.status == 200) {
    // All of it, whatever was asked for: the server knows no ranges, or has another version than the part came from.
    if (have_ > 0) RETURN_IF_ERROR(Restart());
    if (head.content_bytes >= 0 && head.content_bytes != file_.bytes) {
      return Wrong("size", fmt::format("{} bytes as listed", file_.bytes),
                   fmt::format("a server that sends {}", head.content_bytes));
    }
  } else {
    return Wrong("answer", "HTTP status 200 or 206", fmt::format("{}", head.status));
  }
  etag_ = head.etag;
  return Status();
}

Status Transfer::Append(std::string_view data) {
  if (static_cast<int64_t>(data.size()) > file_.bytes - have_) {
    return Wrong("size", fmt::format("{} bytes as listed", file_.bytes), "a server that sends more");
  }
  RETURN_IF_ERROR(part_.WriteAt(have_, BytesOf(data)));
  digest_->Update(data);
  have_ += static_cast<int64_t>(data.size());
  control_.progress(static_cast<int64_t>(data.size()));
  return Status();
}

Status Transfer::Finish() {
  RETURN_IF_ERROR(part_.Sync());
  if (::rename(part_path_.c_str(), file_.path.c_str()) != 0) return ErrnoStatus(errno, "renaming", part_path_);
  return SyncFolder(std::filesystem::path(file_.path).parent_path().string());
}

}  // namespace

Status Download(HttpClient& client, const DownloadedFile& file, const DownloadControl& control) {
  return Transfer(client, file, control).Run();
}

namespace {

// `missing` empty: all of it.
Result<std::string> FetchText(HttpClient& client, const HttpRequest& request, int64_t max_bytes, std::string_view what,
                              const DownloadControl& control,
                              const std::function<int64_t(std::string_view text)>& missing) {
  Repetition repetition(control);
  while (true) {
    std::string text;
    bool enough = false;
    const auto take = [&](std::string_view data) {
      const auto more_than_allowed = [&](int64_t bytes) {
        return bytes > max_bytes - static_cast<int64_t>(text.size());
      };
      const Status too_long = ResourceExhaustedError(fmt::format("{}: more than {}", what, FormatSize(max_bytes)));
      if (!missing) {
        if (more_than_allowed(static_cast<int64_t>(data.size()))) return too_long;
        text += data;
        return Status();
      }
      for (int64_t more = missing(text); more > 0 && !data.empty(); more = missing(text)) {
        if (more_than_allowed(more)) return too_long;
        const std::string_view taken = data.substr(0, static_cast<size_t>(more));
        text += taken;
        data.remove_prefix(taken.size());
      }
      enough = missing(text) <= 0;
      return enough ? CancelledError("enough") : Status();
    };
    const HttpAnswer answer = client.Get(request, {.begin = [](const HttpHead&) { return Status(); }, .data = take});
    const int http = answer.head.status;
    if (enough || (answer.status.ok() && http >= 200 && http < 300 && !missing)) return text;
    Status status = answer.status.ok() ? HttpError(answer.head, what, OriginOf(request.url)) : answer.status;
    if (answer.status.ok() && http >= 200 && http < 300) {
      status =
          DataLossError(fmt::format("{}: it ends after {} bytes, {} are missing", what, text.size(), missing(text)));
    }
    if (!answer.transient && (!answer.status.ok() || !MayPass(http))) return status;
    if (answer.unreachable && repetition.failures() + 1 >= kMostUnreached) {
      return Status(status.code(),
                    fmt::format("{}: {}; is this machine online, and is the address right?", what, status.message()));
    }
    RETURN_IF_ERROR(repetition.Wait(status, answer.head.retry_after_s));
  }
}

}  // namespace

Result<std::string> Fetch(HttpClient& client, const HttpRequest& request, int64_t max_bytes, std::string_view what,
                          const DownloadControl& control) {
  return FetchText(client, request, max_bytes, what, control, nullptr);
}

Result<std::string> FetchBeginning(HttpClient& client, const HttpRequest& request, int64_t max_bytes,
                                   std::string_view what, const DownloadControl& control,
                                   const std::function<int64_t(std::string_view text)>& missing) {
  return FetchText(client, request, max_bytes, what, control, missing);
}

Status HttpError(const HttpHead& head, std::string_view what, std::string_view origin) {
  std::string text = fmt::format("{}: {} answers with HTTP status {}", what, origin, head.status);
  if (!head.error_code.empty() || !head.error_message.empty()) {
    text += fmt::format(" ({}{}{})", head.error_code, head.error_code.empty() || head.error_message.empty() ? "" : ": ",
                        head.error_message);
  }
  switch (head.status) {
    case 401:
    case 403:
      return PermissionError(text +
                             "; if the name is right, the repository is private or its terms must be agreed to: "
                             "set HF_TOKEN to a token that may read it");
    case 404:
    case 410: return NotFoundError(text + "; is the name right, and the revision?");
    case 429: return ResourceExhaustedError(text + ": too many requests");
    default: return IoError(text);
  }
}

}  // namespace nunspark
