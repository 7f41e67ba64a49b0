// MappedMemory: one anonymous mapping, in huge pages where that pays and the system allows it.
#ifndef NUNSPARK_BASE_MAPPED_MEMORY_H_
#define NUNSPARK_BASE_MAPPED_MEMORY_H_

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <utility>

#include "nunspark/stats.h"
#include "nunspark/status.h"

namespace nunspark {

// Zeroed. Move-only; unmaps in the destructor. Resident where touched - in huge pages 2 MiB at a time - and never more
// than the asked size rounded up to a small page, in resident memory as in address space.
class MappedMemory {
 public:
  // Smaller regions stay in small pages: they fit a processor's address caches anyway, and those that are touched only
  // in part would become resident as a whole.
  static constexpr int64_t kHugeFromBytes = int64_t{8} << 20;

  // What the memory is for: to be touched in the end, or to be address space for more than there is memory, of which
  // parts are given up again (small pages only; the system need not have as much).
  enum class Use { kAll, kParts };

  MappedMemory() = default;
  MappedMemory(MappedMemory&& other) noexcept { *this = std::move(other); }
  MappedMemory& operator=(MappedMemory&& other) noexcept;
  ~MappedMemory();

  // At least `bytes`, aligned to 4 KiB; from kHugeFromBytes on to 2 MiB where the address space has room for that.
  // Nothing is mapped for `bytes` <= 0. Errors: kResourceExhausted: "the system refuses 5.0 GB for <what>:
  // <errno>; <advice>".
  static Result<MappedMemory> Create(int64_t bytes, std::string_view what, std::string_view advice,
                                     Use use = Use::kAll);

  // The bytes [offset, offset + bytes) are zero and not resident. REQUIRES: both multiples of 4 KiB; Use::kParts.
  void GiveUp(int64_t offset, int64_t bytes);

  uint8_t* data() const { return data_; }
  int64_t bytes() const { return bytes_; }  // as asked

  // What of it is resident and in huge pages now; zeros where that cannot be read. The kernel counts per area, and
  // neighbours with the same attributes are one area to it: then its share is taken. Takes milliseconds.
  PageUse page_use() const;

 private:
  uint8_t* data_ = nullptr;
  int64_t bytes_ = 0;
};

// Why the system gives no huge pages to those who ask: "/sys/kernel/mm/transparent_hugepage/enabled says never". Empty
// when it gives them. `root` stands for "/" in tests.
std::string HugePageRefusal(const std::string& root = "");

// Of the bytes [begin, end), from text in the form of /proc/self/smaps.
PageUse ReadPageUse(std::istream& smaps, uint64_t begin, uint64_t end);

}  // namespace nunspark

#endif  // NUNSPARK_BASE_MAPPED_MEMORY_H_
