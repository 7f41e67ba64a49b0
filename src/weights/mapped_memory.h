// MappedMemory: one anonymous mapping, in huge pages where the system allows them.
#ifndef NUNSPARK_WEIGHTS_MAPPED_MEMORY_H_
#define NUNSPARK_WEIGHTS_MAPPED_MEMORY_H_

#include <cstdint>
#include <utility>

#include "nunspark/status.h"

namespace nunspark {

// Zeroed, resident only where touched. Move-only; unmaps in the destructor.
class MappedMemory {
 public:
  MappedMemory() = default;
  MappedMemory(MappedMemory&& other) noexcept { *this = std::move(other); }
  MappedMemory& operator=(MappedMemory&& other) noexcept;
  ~MappedMemory();

  // At least `bytes`, aligned to a huge page (2 MiB) when it is that large, else to kIoAlignment.
  // Errors: kResourceExhausted names `what`, the size and the errno.
  static Result<MappedMemory> Create(int64_t bytes, const char* what);

  uint8_t* data() const { return data_; }

 private:
  void* mapping_ = nullptr;
  size_t mapped_bytes_ = 0;
  uint8_t* data_ = nullptr;
};

}  // namespace nunspark

#endif  // NUNSPARK_WEIGHTS_MAPPED_MEMORY_H_
