// The file that a batch is made of: a request a line.
#ifndef NUNSPARK_SERVER_BATCH_INPUT_H_
#define NUNSPARK_SERVER_BATCH_INPUT_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "io/file.h"
#include "nunspark/status.h"

namespace nunspark::server {

inline constexpr int64_t kMostBatchLines = 50000;        // requests of one batch
inline constexpr int64_t kMostBatchLineBytes = 8 << 20;  // as a request's body may have
inline constexpr size_t kMostCustomIdBytes = 512;

// What a line may ask: "/v1/chat/completions", ...
std::span<const std::string_view> BatchEndpoints();

// Lines of a file, one after the other; holds a line at a time.
class BatchLineReader {
 public:
  // `file` must outlive it.
  explicit BatchLineReader(const File& file) : file_(file) {}

  // False: there are no more. Errors: those of reading.
  Result<bool> Next();

  // Of the line that Next found, without its end.
  int64_t line() const { return line_; }  // from 1
  int64_t offset() const { return offset_; }
  int64_t bytes() const { return bytes_; }
  std::string_view text() const { return text_; }  // empty when it is too long
  bool too_long() const { return bytes_ > kMostBatchLineBytes; }

 private:
  Status Fill();

  const File& file_;
  std::string block_;
  size_t at_ = 0;     // in block_
  int64_t read_ = 0;  // bytes of the file in and before block_
  int64_t size_ = -1;
  int64_t line_ = 0, offset_ = 0, bytes_ = 0;
  std::string text_;
};

// Why a line cannot be run: a word for programs, a sentence, the field.
struct BatchLineError {
  std::string code, message, param;
};

struct BatchLineRequest {
  std::string custom_id;
  Json body;
};

// True: `request` is what the line says. False: `error` says why it is none. `endpoint`: the batch's, which its lines
// must name too.
bool ParseBatchLine(std::string_view text, std::string_view endpoint, BatchLineRequest& request, BatchLineError& error);

}  // namespace nunspark::server

#endif  // NUNSPARK_SERVER_BATCH_INPUT_H_
