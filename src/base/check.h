// CHECK (always) and DCHECK (debug and sanitizer builds): for our own mistakes, never for bad input.
#ifndef NUNSPARK_BASE_CHECK_H_
#define NUNSPARK_BASE_CHECK_H_

namespace nunspark::internal {
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition);
}  // namespace nunspark::internal

#define CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::nunspark::internal::CheckFailed(__FILE__, __LINE__, #condition))

#ifdef NDEBUG
#define DCHECK(condition) static_cast<void>(sizeof(!(condition)))
#else
#define DCHECK(condition) CHECK(condition)
#endif

#endif  // NUNSPARK_BASE_CHECK_H_
