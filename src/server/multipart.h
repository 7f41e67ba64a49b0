// multipart/form-data (RFC 7578) as it comes in, cut anywhere: uploads never are in memory as a whole.
#ifndef NUNSPARK_SERVER_MULTIPART_H_
#define NUNSPARK_SERVER_MULTIPART_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "nunspark/status.h"

namespace nunspark::server {

// What stands before a part's data.
struct MultipartField {
  std::string name;
  std::optional<std::string> filename;  // as the client wrote it: any bytes but line ends and NUL
};

// Gets the parts in their order. An error ends the reading with that error.
class MultipartHandler {
 public:
  virtual ~MultipartHandler() = default;
  virtual Status OnField(const MultipartField& field) = 0;
  // Data of the field, in pieces that are not empty.
  virtual Status OnData(std::string_view data) = 0;
  virtual Status OnFieldEnd() = 0;
};

// Holds at most one field's head and what it was given last.
class MultipartReader {
 public:
  static constexpr int64_t kMostFields = 10'000;
  static constexpr size_t kMostHeadBytes = 16 << 10;  // of one field

  // The boundary that a Content-Type names. Errors: kInvalidArgument.
  static Result<std::string> BoundaryOf(std::string_view content_type);

  // `handler` must outlive it.
  MultipartReader(std::string_view boundary, MultipartHandler& handler);

  // Errors: kInvalidArgument, saying what is wrong with the form; the handler's. Nothing may follow an error.
  Status Push(std::string_view bytes);
  // After the last bytes. Errors: kInvalidArgument for a form that is cut off.
  Status Finish() const;

 private:
  enum class Place : uint8_t { kPreamble, kDelimiter, kHead, kData, kEpilogue };

  // Each takes from pending_ what it can; false: more bytes are needed.
  Result<bool> Step();
  Result<bool> SkipOrData();
  Result<bool> Delimiter();
  Result<bool> Head();

  const std::string delimiter_;  // with the line end before it, which is no data
  MultipartHandler& handler_;
  Place place_ = Place::kPreamble;
  std::string pending_ = "\r\n";  // the first delimiter needs no line before it
  int64_t fields_ = 0;
};

}  // namespace nunspark::server

#endif  // NUNSPARK_SERVER_MULTIPART_H_
