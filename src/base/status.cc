#include "nunspark/status.h"

#include <cstdio>
#include <cstdlib>

namespace nunspark {

std::string_view StatusCodeName(StatusCode code) {
  switch (code) {
    case StatusCode::kOk: return "ok";
    case StatusCode::kInvalidArgument: return "invalid_argument";
    case StatusCode::kNotFound: return "not_found";
    case StatusCode::kPermission: return "permission";
    case StatusCode::kDataLoss: return "data_loss";
    case StatusCode::kUnsupported: return "unsupported";
    case StatusCode::kResourceExhausted: return "resource_exhausted";
    case StatusCode::kIo: return "io";
    case StatusCode::kCancelled: return "cancelled";
  }
  return "unknown";
}

Status::Status(StatusCode code, std::string message)
    : rep_(code == StatusCode::kOk ? nullptr : std::make_shared<const Rep>(Rep{code, std::move(message)})) {}

const std::string& Status::message() const {
  static const std::string* const kEmpty = new std::string();
  return rep_ ? rep_->message : *kEmpty;
}

Status Status::WithContext(std::string_view context) const {
  if (ok()) return *this;
  return Status(code(), std::string(context) + ": " + message());
}

Status InvalidArgumentError(std::string message) { return Status(StatusCode::kInvalidArgument, std::move(message)); }
Status NotFoundError(std::string message) { return Status(StatusCode::kNotFound, std::move(message)); }
Status PermissionError(std::string message) { return Status(StatusCode::kPermission, std::move(message)); }
Status DataLossError(std::string message) { return Status(StatusCode::kDataLoss, std::move(message)); }
Status UnsupportedError(std::string message) { return Status(StatusCode::kUnsupported, std::move(message)); }
Status ResourceExhaustedError(std::string message) {
  return Status(StatusCode::kResourceExhausted, std::move(message));
}
Status IoError(std::string message) { return Status(StatusCode::kIo, std::move(message)); }
Status CancelledError(std::string message) { return Status(StatusCode::kCancelled, std::move(message)); }

namespace internal {

void DieOnBadResult(const Status& status) {
  std::fprintf(stderr, "CHECK failed: value of a failed Result: %s\n", status.message().c_str());
  std::abort();
}

}  // namespace internal
}  // namespace nunspark
