#include "base/mapped_memory.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <istream>

#include <fmt/format.h>

#include "base/align.h"
#include "base/check.h"
#include "base/errno_status.h"
#include "base/size.h"

namespace nunspark {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;

// Null and errno when the system refuses.
uint8_t* Map(int64_t bytes, int flags = 0) {
  void* const mapping =
      ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  return mapping == MAP_FAILED ? nullptr : static_cast<uint8_t*>(mapping);
}

void Unmap(uint8_t* begin, int64_t bytes) {
  if (bytes > 0) (void)::munmap(begin, static_cast<size_t>(bytes));
}

// The kernel aligns to small pages: takes one huge page more and gives back what lies before and after.
uint8_t* MapAligned(int64_t bytes) {
  uint8_t* const mapping = Map(bytes + kHugePage);
  if (mapping == nullptr) return nullptr;
  const int64_t before = -static_cast<int64_t>(reinterpret_cast<uintptr_t>(mapping)) & (kHugePage - 1);
  Unmap(mapping, before);
  Unmap(mapping + before + bytes, kHugePage - before);
  return mapping + before;
}

}  // namespace

MappedMemory& MappedMemory::operator=(MappedMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedMemory::~MappedMemory() { Unmap(data_, bytes_); }

Result<MappedMemory> MappedMemory::Create(int64_t bytes, std::string_view what, std::string_view advice, Use use) {
  MappedMemory memory;
  if (bytes <= 0) return memory;
  const int64_t mapped = AlignUp(bytes, ::sysconf(_SC_PAGESIZE));
  if (use == Use::kAll && bytes >= kHugeFromBytes) memory.data_ = MapAligned(mapped);
  const bool aligned = memory.data_ != nullptr;
  if (!aligned) memory.data_ = Map(mapped, use == Use::kParts ? MAP_NORESERVE : 0);
  if (memory.data_ == nullptr) {
    return ResourceExhaustedError(
        fmt::format("the system refuses {} for {}: {}; {}", FormatSize(bytes), what, ErrnoText(errno), advice));
  }
  memory.bytes_ = bytes;
  // A wish: without huge pages everything works, somewhat slower. Whole ones only, so that no more becomes resident
  // than was asked for.
  if (aligned) (void)::madvise(memory.data_, static_cast<size_t>(AlignDown(bytes, kHugePage)), MADV_HUGEPAGE);
  // Where huge pages are for all, one would come back whole for the first byte of a part.
  if (use == Use::kParts) (void)::madvise(memory.data_, static_cast<size_t>(mapped), MADV_NOHUGEPAGE);
  return memory;
}

void MappedMemory::GiveUp(int64_t offset, int64_t bytes) {
  CHECK(offset >= 0 && bytes >= 0 && offset + bytes <= bytes_);
  CHECK(::madvise(data_ + offset, static_cast<size_t>(bytes), MADV_DONTNEED) == 0);
}

PageUse MappedMemory::page_use() const {
  if (bytes_ == 0) return {};
  std::ifstream smaps("/proc/self/smaps");
  const auto begin = reinterpret_cast<uintptr_t>(data_);
  return ReadPageUse(smaps, begin, begin + static_cast<uint64_t>(bytes_));
}

PageUse ReadPageUse(std::istream& smaps, uint64_t begin, uint64_t end) {
  double resident = 0, huge = 0;
  double share = 0;  // of the area whose lines are being read, the part inside [begin, end)
  for (std::string line; std::getline(smaps, line);) {
    uint64_t first = 0, last = 0, kilobytes = 0;
    // An area begins with "first-last rwxp ..."; "name: value kB" follow.
    if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " ", &first, &last) == 2) {
      const uint64_t from = std::max(first, begin), to = std::min(last, end);
      share = from < to ? static_cast<double>(to - from) / static_cast<double>(last - first) : 0;
    } else if (share > 0 && std::sscanf(line.c_str(), "Rss: %" SCNu64 " kB", &kilobytes) == 1) {
      resident += share * static_cast<double>(kilobytes) * 1024;
    } else if (share > 0 && std::sscanf(line.c_str(), "AnonHugePages: %" SCNu64 " kB", &kilobytes) == 1) {
      huge += share * static_cast<double>(kilobytes) * 1024;
    }
  }
  return {.resident_bytes = static_cast<int64_t>(resident), .huge_bytes = static_cast<int64_t>(huge)};
}

std::string HugePageRefusal(const std::string& root) {
  static constexpr const char* kSetting = "/sys/kernel/mm/transparent_hugepage/enabled";
  std::ifstream file(root + kSetting);
  std::string setting;
  if (!std::getline(file, setting)) return "this kernel has no transparent huge pages";
  if (setting.find("[never]") != std::string::npos) return fmt::format("{} says never", kSetting);
  if (::prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 1) return "they are switched off for this process (prctl)";
  return "";
}

}  // namespace nunspark
