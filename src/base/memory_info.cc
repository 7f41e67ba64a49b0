#include "base/memory_info.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <string_view>

#include "base/ascii.h"
#include "base/cgroup.h"
#include "base/parts.h"

namespace nunspark {
namespace {

// Version 1 writes a number near 2^63 for "no limit"; no machine has this much.
constexpr int64_t kNoLimit = int64_t{1} << 60;

// "" when the file cannot be read. The files are a few kilobytes at most.
std::string ReadSmallFile(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  return text.str();
}

// The number at the start of `text`, spaces skipped; 0 when there is none ("max").
int64_t LeadingNumber(std::string_view text) {
  text = AsciiTrim(text);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && value > 0 ? value : 0;
}

// "MemTotal:   16384 kB" -> bytes; 0 when there is no such line.
int64_t FieldKilobytes(std::string_view text, std::string_view name) {
  for (const std::string_view line : SplitAt(text, '\n')) {
    if (line.size() > name.size() && line.starts_with(name) && line[name.size()] == ':') {
      const int64_t kilobytes = LeadingNumber(line.substr(name.size() + 1));
      return kilobytes < kNoLimit / 1024 ? kilobytes * 1024 : 0;
    }
  }
  return 0;
}

// The number in the file; 0 when there is none or when it means "no limit".
int64_t FileNumber(const std::string& path) {
  const int64_t value = LeadingNumber(ReadSmallFile(path));
  return value < kNoLimit ? value : 0;
}

// "active_file 4096" -> 4096; 0 when there is no such line.
int64_t StatBytes(std::string_view text, std::string_view name) {
  for (const std::string_view line : SplitAt(text, '\n')) {
    if (line.size() > name.size() && line.starts_with(name) && line[name.size()] == ' ') {
      return std::min(LeadingNumber(line.substr(name.size())), kNoLimit);
    }
  }
  return 0;
}

// What a group uses and the kernel cannot take back: all but the pages of files and caches of kernel objects.
int64_t FirmlyUsed(const std::string& folder) {
  const std::string stat = ReadSmallFile(folder + "/memory.stat");
  // Version 1 has names of its own for the sums over a group and those below it, which its usage counts too.
  const bool version_2 = ::access((folder + "/memory.current").c_str(), F_OK) == 0;
  const std::string prefix = version_2 ? "" : "total_";
  const int64_t reclaimable = StatBytes(stat, prefix + "active_file") + StatBytes(stat, prefix + "inactive_file") +
                              StatBytes(stat, "slab_reclaimable");
  const int64_t used = FileNumber(folder + (version_2 ? "/memory.current" : "/memory.usage_in_bytes"));
  return std::max<int64_t>(used - reclaimable, 0);
}

int64_t SmallerKnown(int64_t a, int64_t b) { return a == 0 || b == 0 ? std::max(a, b) : std::min(a, b); }

}  // namespace

MachineMemory ReadMachineMemory(const std::string& root) {
  const std::string text = ReadSmallFile(root + "/proc/meminfo");
  return {.total_bytes = FieldKilobytes(text, "MemTotal"), .available_bytes = FieldKilobytes(text, "MemAvailable")};
}

CgroupMemory ReadCgroupMemory(int64_t own_bytes, const std::string& root) {
  CgroupMemory memory;
  for (const std::string& folder : CgroupFolders("memory", root)) {
    int64_t limit = 0;
    for (const char* file : {"/memory.max", "/memory.high", "/memory.limit_in_bytes"}) {
      limit = SmallerKnown(limit, FileNumber(folder + file));
    }
    if (limit == 0) continue;
    const int64_t others = std::max<int64_t>(FirmlyUsed(folder) - own_bytes, 0);
    memory.limit_bytes = SmallerKnown(memory.limit_bytes, limit);
    memory.share_bytes = SmallerKnown(memory.share_bytes, std::max<int64_t>(limit - others, 1));
  }
  return memory;
}

ProcessMemory ReadProcessMemory(const std::string& root) {
  ProcessMemory memory;
  std::istringstream statm(ReadSmallFile(root + "/proc/self/statm"));
  int64_t virtual_pages = 0;
  int64_t resident_pages = 0;
  int64_t shared_pages = 0;  // of files
  if (statm >> virtual_pages >> resident_pages >> shared_pages) {
    const int64_t page_bytes = ::sysconf(_SC_PAGESIZE);
    memory = {.resident_bytes = resident_pages * page_bytes,
              .anonymous_bytes = std::max<int64_t>(resident_pages - shared_pages, 0) * page_bytes,
              .virtual_bytes = virtual_pages * page_bytes};
  }
  // statm counts in batches per thread or processor and may lag by megabytes; the roll-up walks the page tables.
  const std::string rollup = ReadSmallFile(root + "/proc/self/smaps_rollup");
  memory.resident_bytes = std::max(memory.resident_bytes, FieldKilobytes(rollup, "Rss"));
  if (const int64_t exact = FieldKilobytes(rollup, "Anonymous"); exact > 0) memory.anonymous_bytes = exact;
  return memory;
}

int64_t AddressSpaceLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return 0;
  return limit.rlim_cur < static_cast<rlim_t>(kNoLimit) ? static_cast<int64_t>(limit.rlim_cur) : 0;
}

}  // namespace nunspark
