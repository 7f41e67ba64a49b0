#include "cli/line_loop.h"

#include <stdio.h>

#include <cstdlib>

#include "base/ascii.h"
#include "cli/interrupt.h"

namespace nunspark::cli {
namespace {

constexpr ssize_t kMaxLineBytes = 64 << 20;

// getline's buffer.
struct LineBuffer {
  ~LineBuffer() { std::free(data); }
  char* data = nullptr;
  size_t capacity = 0;
};

}  // namespace

Status LoopOverLines(const std::function<std::string(std::string_view)>& answer) {
  LineBuffer buffer;
  while (!Interrupted()) {
    const ssize_t length = getline(&buffer.data, &buffer.capacity, stdin);
    if (length < 0) break;
    if (length > kMaxLineBytes) return InvalidArgumentError("a line of standard input is longer than 64 MiB");
    const std::string_view line = AsciiTrim({buffer.data, static_cast<size_t>(length)});
    if (line.empty()) continue;
    std::string out = answer(line);
    out += '\n';
    if (std::fwrite(out.data(), 1, out.size(), stdout) != out.size() || std::fflush(stdout) != 0) {
      return IoError("standard output cannot be written to any more");
    }
  }
  return Status();
}

}  // namespace nunspark::cli
