#include "cli/line_loop.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include <fmt/format.h>

#include "base/ascii.h"
#include "cli/interrupt.h"

namespace nunspark::cli {
namespace {

constexpr size_t kMaxLineBytes = 64 << 20;
constexpr const char* kTooLong = R"({"error":{"type":"invalid_argument","message":"the line is longer than 64 MiB"}})";

Status WriteLine(std::string text) {
  text += '\n';
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return Status();
  return IoError("standard output cannot be written to any more");
}

// Lines as they are read, cut at kMaxLineBytes.
class LineBuffer {
 public:
  explicit LineBuffer(const std::function<std::string(std::string_view)>& answer) : answer_(answer) {}

  Status Add(std::string_view bytes) {
    while (!bytes.empty()) {
      const size_t end = bytes.find('\n');
      const std::string_view part = bytes.substr(0, end);
      too_long_ |= line_.size() + part.size() > kMaxLineBytes;
      if (!too_long_) line_ += part;
      if (end == std::string_view::npos) return Status();
      bytes.remove_prefix(end + 1);
      RETURN_IF_ERROR(Finish());
    }
    return Status();
  }

  Status Finish() {
    const std::string_view line = AsciiTrim(line_);
    Status status;
    if (too_long_) {
      status = WriteLine(kTooLong);
    } else if (!line.empty()) {
      status = WriteLine(answer_(line));
    }
    line_.clear();
    too_long_ = false;
    return status;
  }

 private:
  const std::function<std::string(std::string_view)>& answer_;
  std::string line_;
  bool too_long_ = false;
};

}  // namespace

Status LoopOverLines(const std::function<std::string(std::string_view)>& answer) {
  LineBuffer lines(answer);
  char bytes[1 << 16];
  while (!Interrupted()) {
    const ssize_t count = read(STDIN_FILENO, bytes, sizeof(bytes));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return IoError(fmt::format("standard input cannot be read: {}", std::strerror(errno)));
    if (count == 0) return lines.Finish();
    RETURN_IF_ERROR(lines.Add({bytes, static_cast<size_t>(count)}));
  }
  return CancelledError("stopped");
}

}  // namespace nunspark::cli
