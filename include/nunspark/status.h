// Status and Result<T>: how the world's failures travel.
//
// A Status is either ok or a code with one human-readable message. The message says what failed, where (file, tensor,
// piece, flag), what was expected, what was found and, where there is one, the next step. Both types are [[nodiscard]].
// Failures of our own logic are CHECKs, never a Status. Thread-compatible values.
#ifndef NUNSPARK_STATUS_H_
#define NUNSPARK_STATUS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace nunspark {

enum class StatusCode : uint8_t {
  kOk,
  kInvalidArgument,    // a flag, request or option that cannot be honoured
  kNotFound,           // a file, tensor, piece or model that is not there
  kPermission,         // the system refuses access
  kDataLoss,           // a file that is truncated, corrupt or contradicts itself
  kUnsupported,        // well-formed, but this build does not know it
  kResourceExhausted,  // a budget, limit or disk that is too small
  kIo,                 // the system failed a read or write (errno is in the message)
  kCancelled,          // the caller asked to stop
};

// Stable lower-case name, for logs and JSON ("data_loss").
std::string_view StatusCodeName(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // ok
  Status(StatusCode code, std::string message);

  bool ok() const { return rep_ == nullptr; }
  StatusCode code() const { return rep_ ? rep_->code : StatusCode::kOk; }
  const std::string& message() const;

  // The same status with `context` and ": " put before the message. ok stays ok.
  Status WithContext(std::string_view context) const;

 private:
  struct Rep {
    StatusCode code;
    std::string message;
  };
  // Shared and immutable: a failed read hands one status to every waiter.
  std::shared_ptr<const Rep> rep_;
};

Status InvalidArgumentError(std::string message);
Status NotFoundError(std::string message);
Status PermissionError(std::string message);
Status DataLossError(std::string message);
Status UnsupportedError(std::string message);
Status ResourceExhaustedError(std::string message);
Status IoError(std::string message);
Status CancelledError(std::string message);

// A value or the reason why there is none. Reading the value of a failed Result is a programming error (CHECK).
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT: implicit on purpose
  Result(Status status) : status_(std::move(status)) {}  // NOLINT: REQUIRES: !status.ok()

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }

  T& value() & { return Checked(); }
  const T& value() const& { return const_cast<Result*>(this)->Checked(); }
  T&& value() && { return std::move(Checked()); }
  T& operator*() & { return Checked(); }
  const T& operator*() const& { return const_cast<Result*>(this)->Checked(); }
  T&& operator*() && { return std::move(Checked()); }
  T* operator->() { return &Checked(); }
  const T* operator->() const { return &const_cast<Result*>(this)->Checked(); }

 private:
  T& Checked();

  std::optional<T> value_;
  Status status_;
};

namespace internal {
[[noreturn]] void DieOnBadResult(const Status& status);
}  // namespace internal

template <typename T>
T& Result<T>::Checked() {
  if (!value_.has_value()) internal::DieOnBadResult(status_);
  return *value_;
}

}  // namespace nunspark

// Shorthands for nunspark's own sources, which define NUNSPARK_STATUS_MACROS; users of the library do not get them.
#ifdef NUNSPARK_STATUS_MACROS

#define NUNSPARK_CONCAT_INNER_(a, b) a##b
#define NUNSPARK_CONCAT_(a, b) NUNSPARK_CONCAT_INNER_(a, b)

// Returns the status of `expr` from the enclosing function unless it is ok.
#define RETURN_IF_ERROR(expr) RETURN_IF_ERROR_IMPL_(NUNSPARK_CONCAT_(nunspark_status_, __LINE__), expr)
#define RETURN_IF_ERROR_IMPL_(status, expr)                              \
  do {                                                                   \
    if (::nunspark::Status status = (expr); !status.ok()) return status; \
  } while (false)

// Evaluates `expr` (a Result), returns its status on failure, else moves its value into `lhs`.
#define ASSIGN_OR_RETURN(lhs, expr) ASSIGN_OR_RETURN_IMPL_(NUNSPARK_CONCAT_(nunspark_result_, __LINE__), lhs, expr)
#define ASSIGN_OR_RETURN_IMPL_(result, lhs, expr) \
  auto result = (expr);                           \
  if (!result.ok()) return result.status();       \
  lhs = std::move(result).value()

#endif  // NUNSPARK_STATUS_MACROS

#endif  // NUNSPARK_STATUS_H_
