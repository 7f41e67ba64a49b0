#include "cli/line_loop.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

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

}  // namespace

Status ReadLines(int fd, const std::string& what, const LineCallback& on_line) {
  std::string line;
  bool too_long = false;
  const auto finish = [&] {
    const std::string_view trimmed = AsciiTrim(line);
    const Status status = too_long || !trimmed.empty() ? on_line(trimmed, too_long) : Status();
    line.clear();
    too_long = false;
    return status;
  };
  std::vector<char> buffer(1 << 16);
  while (!Interrupted()) {
    const ssize_t count = read(fd, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return IoError(fmt::format("{} cannot be read: {}", what, std::strerror(errno)));
    if (count == 0) return finish();
    std::string_view bytes(buffer.data(), static_cast<size_t>(count));
    while (!bytes.empty()) {
      const size_t end = bytes.find('\n');
      const std::string_view part = bytes.substr(0, end);
      too_long |= line.size() + part.size() > kMaxLineBytes;
      if (!too_long) line += part;
      if (end == std::string_view::npos) break;
      bytes.remove_prefix(end + 1);
      RETURN_IF_ERROR(finish());
    }
  }
  return CancelledError("stopped");
}

Status LoopOverLines(const std::function<std::string(std::string_view)>& answer) {
  return ReadLines(STDIN_FILENO, "standard input",
                   [&](std::string_view line, bool too_long) { return WriteLine(too_long ? kTooLong : answer(line)); });
}

}  // namespace nunspark::cli
