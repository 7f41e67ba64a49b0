// NUNSPARK_SANITIZED: defined when a sanitizer that reserves address space of its own is on, so that tests that limit
// address space are left out.
#ifndef NUNSPARK_BASE_SANITIZED_TESTING_H_
#define NUNSPARK_BASE_SANITIZED_TESTING_H_

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define NUNSPARK_SANITIZED
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define NUNSPARK_SANITIZED
#endif

#endif  // NUNSPARK_BASE_SANITIZED_TESTING_H_
