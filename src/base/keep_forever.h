// For what the system may still use when its owner goes: it stays as long as the process, in sight of leak checkers.
#ifndef NUNSPARK_BASE_KEEP_FOREVER_H_
#define NUNSPARK_BASE_KEEP_FOREVER_H_

#include <mutex>
#include <utility>
#include <vector>

namespace nunspark {

template <typename T>
void KeepForever(T thing) {
  static std::mutex mutex;
  static auto* const kept = new std::vector<T>;
  const std::lock_guard lock(mutex);
  kept->push_back(std::move(thing));
}

}  // namespace nunspark

#endif  // NUNSPARK_BASE_KEEP_FOREVER_H_
