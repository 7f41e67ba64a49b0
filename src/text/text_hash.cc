#include "text/text_hash.h"

#include <sys/random.h>

#include <chrono>

namespace nunspark::text {
namespace {

uint64_t RandomWord() {
  uint64_t word = 0;
  if (getrandom(&word, sizeof(word), GRND_NONBLOCK) == static_cast<ssize_t>(sizeof(word))) return word;
  // Early in a machine's life there may be no randomness; the time and where things lie is better than nothing.
  const auto now = static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  return internal::Mix(now ^ 0x9E3779B97F4A7C15, reinterpret_cast<uintptr_t>(&word) ^ 0xD6E8FEB86659FD93);
}

}  // namespace

const uint64_t kHashKey = RandomWord();
const uint64_t kHashMultiplier = RandomWord() | 1;

}  // namespace nunspark::text
