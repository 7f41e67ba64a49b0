#include "weights/mapped_memory.h"

#include <sys/mman.h>

#include <cerrno>

#include <fmt/format.h>

#include "base/size.h"
#include "io/file.h"

namespace nunspark {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

MappedMemory& MappedMemory::operator=(MappedMemory&& other) noexcept {
  std::swap(mapping_, other.mapping_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  std::swap(data_, other.data_);
  return *this;
}

MappedMemory::~MappedMemory() {
  if (mapping_ != nullptr) ::munmap(mapping_, mapped_bytes_);
}

Result<MappedMemory> MappedMemory::Create(int64_t bytes, const char* what) {
  MappedMemory memory;
  if (bytes <= 0) return memory;
  const bool huge = static_cast<size_t>(bytes) >= kHugePage;
  // The kernel aligns to small pages: ask for one huge page more, which is never touched.
  const size_t mapped = static_cast<size_t>(bytes) + (huge ? kHugePage : 0);
  void* const mapping = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) {
    return ResourceExhaustedError(fmt::format("the system refuses {} for {}: {}; try a smaller --budget",
                                              FormatSize(static_cast<int64_t>(mapped)), what, ErrnoText(errno)));
  }
  memory.mapping_ = mapping;
  memory.mapped_bytes_ = mapped;
  memory.data_ = static_cast<uint8_t*>(mapping);
  if (huge) {
    memory.data_ += (kHugePage - reinterpret_cast<uintptr_t>(mapping) % kHugePage) % kHugePage;
    // A wish: without huge pages everything works, somewhat slower. Whole ones only, so that no more becomes resident
    // than was asked for.
    (void)::madvise(memory.data_, static_cast<size_t>(bytes) / kHugePage * kHugePage, MADV_HUGEPAGE);
  }
  return memory;
}

}  // namespace nunspark
