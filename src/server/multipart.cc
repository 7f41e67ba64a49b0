#include "server/multipart.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/ascii.h"

namespace nunspark::server {
namespace {

constexpr size_t kMostBoundaryBytes = 70;  // RFC 2046
constexpr size_t kMostPaddingBytes = 64;   // spaces after a delimiter
// What is taken from the front of pending_ moves the rest: it stays small, however many fields a body has.
constexpr size_t kPieceBytes = 64 << 10;

constexpr std::string_view kSpaces = " \t";

Status Bad(std::string_view what) { return InvalidArgumentError(fmt::format("the form is malformed: {}", what)); }

// One "; name=value" of a header's value; the value quoted or not. False: there is none, or it is malformed.
bool TakeParameter(std::string_view& rest, std::string& name, std::string& value) {
  const size_t begin = rest.find_first_not_of(" \t;");
  if (begin == std::string_view::npos) return false;
  rest.remove_prefix(begin);
  const size_t equals = rest.find('=');
  if (equals == std::string_view::npos) return false;
  name = AsciiLower(AsciiTrim(rest.substr(0, equals)));
  rest.remove_prefix(equals + 1);
  value.clear();
  if (!rest.starts_with('"')) {
    const size_t end = std::min(rest.find(';'), rest.size());
    value = std::string(AsciiTrim(rest.substr(0, end)));
    rest.remove_prefix(end);
    return true;
  }
  for (size_t i = 1; i < rest.size(); ++i) {
    if (rest[i] == '"') {
      rest.remove_prefix(i + 1);
      return true;
    }
    // Only what has to be escaped is: some clients send Windows paths as they are.
    if (rest[i] == '\\' && i + 1 < rest.size() && (rest[i + 1] == '"' || rest[i + 1] == '\\')) ++i;
    value += rest[i];
  }
  return false;
}

Result<MultipartField> FieldOf(std::string_view head) {
  while (!head.empty()) {
    const size_t end = std::min(head.find("\r\n"), head.size());
    const std::string_view line = head.substr(0, end);
    head.remove_prefix(std::min(end + 2, head.size()));
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) return Bad("a line of a field's head has no colon");
    if (AsciiLower(AsciiTrim(line.substr(0, colon))) != "content-disposition") continue;
    if (line.find('\0') != std::string_view::npos) return Bad("a NUL in a field's head");
    std::string_view rest = AsciiTrim(line.substr(colon + 1));
    const size_t type_end = std::min(rest.find(';'), rest.size());
    if (AsciiLower(AsciiTrim(rest.substr(0, type_end))) != "form-data") return Bad("a part that is no form-data");
    rest.remove_prefix(type_end);
    MultipartField field;
    std::string name, value;
    bool named = false;
    while (TakeParameter(rest, name, value)) {
      if (name == "name" && !std::exchange(named, true)) field.name = value;
      if (name == "filename" && !field.filename) field.filename = value;
    }
    if (!named) return Bad("a field without a name");
    return field;
  }
  return Bad("a part without Content-Disposition");
}

}  // namespace

Result<std::string> MultipartReader::BoundaryOf(std::string_view content_type) {
  const size_t end = std::min(content_type.find(';'), content_type.size());
  if (AsciiLower(AsciiTrim(content_type.substr(0, end))) != "multipart/form-data") {
    return InvalidArgumentError("the Content-Type must be multipart/form-data");
  }
  std::string_view rest = content_type.substr(end);
  std::string name, value;
  while (TakeParameter(rest, name, value)) {
    if (name != "boundary") continue;
    if (value.empty() || value.size() > kMostBoundaryBytes || value.find_first_of("\r\n") != std::string::npos) break;
    return value;
  }
  return InvalidArgumentError("the Content-Type must name a boundary of 1 to 70 characters");
}

MultipartReader::MultipartReader(std::string_view boundary, MultipartHandler& handler)
    : delimiter_("\r\n--" + std::string(boundary)), handler_(handler) {}

Status MultipartReader::Push(std::string_view bytes) {
  for (; !bytes.empty(); bytes.remove_prefix(std::min(bytes.size(), kPieceBytes))) {
    pending_ += bytes.substr(0, kPieceBytes);
    for (bool more = true; more;) {
      ASSIGN_OR_RETURN(more, Step());
    }
  }
  return Status();
}

Status MultipartReader::Finish() const {
  return place_ == Place::kEpilogue ? Status() : Bad("it ends before its last boundary");
}

Result<bool> MultipartReader::Step() {
  switch (place_) {
    case Place::kPreamble:
    case Place::kData: return SkipOrData();
    case Place::kDelimiter: return Delimiter();
    case Place::kHead: return Head();
    case Place::kEpilogue: pending_.clear(); return false;
  }
  return false;
}

Result<bool> MultipartReader::SkipOrData() {
  const size_t at = pending_.find(delimiter_);
  const bool found = at != std::string::npos;
  // What may be the beginning of a delimiter stays.
  const size_t held = delimiter_.size() - 1;
  const size_t count = found ? at : pending_.size() > held ? pending_.size() - held : 0;
  if (place_ == Place::kData) {
    if (count > 0) RETURN_IF_ERROR(handler_.OnData(std::string_view(pending_).substr(0, count)));
    if (found) RETURN_IF_ERROR(handler_.OnFieldEnd());
  }
  pending_.erase(0, count + (found ? delimiter_.size() : 0));
  if (found) place_ = Place::kDelimiter;
  return found;
}

Result<bool> MultipartReader::Delimiter() {
  if (pending_.size() < 2) return false;
  if (pending_.starts_with("--")) {
    place_ = Place::kEpilogue;
    return true;
  }
  const size_t end = pending_.find_first_not_of(kSpaces);
  if (std::min(end, pending_.size()) > kMostPaddingBytes) return Bad("too many spaces after a boundary");
  if (end == std::string::npos || pending_.size() < end + 2) return false;
  if (pending_.compare(end, 2, "\r\n") != 0) return Bad("a boundary that is not followed by a line end");
  if (++fields_ > kMostFields) return Bad(fmt::format("it has more than {} fields", kMostFields));
  // The line end stays: an empty head is then two of them like any other.
  pending_.erase(0, end);
  place_ = Place::kHead;
  return true;
}

Result<bool> MultipartReader::Head() {
  constexpr std::string_view kEnd = "\r\n\r\n";
  const size_t end = pending_.find(kEnd);
  const bool found = end != std::string::npos;
  if (found ? end > kMostHeadBytes : pending_.size() >= kMostHeadBytes + kEnd.size()) {
    return Bad(fmt::format("a field's head is longer than {} bytes", kMostHeadBytes));
  }
  if (!found) return false;
  ASSIGN_OR_RETURN(const MultipartField field,
                   FieldOf(end < 2 ? std::string_view() : std::string_view(pending_).substr(2, end - 2)));
  RETURN_IF_ERROR(handler_.OnField(field));
  pending_.erase(0, end + kEnd.size());
  place_ = Place::kData;
  return true;
}

}  // namespace nunspark::server
