#include "base/memory_info.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <string_view>

#include "base/ascii.h"

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
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    if (line.size() > name.size() && line.starts_with(name) && line[name.size()] == ':') {
      const int64_t kilobytes = LeadingNumber(line.substr(name.size() + 1));
      return kilobytes < kNoLimit / 1024 ? kilobytes * 1024 : 0;
    }
    begin = end + 1;
  }
  return 0;
}

int64_t SmallerLimit(int64_t a, int64_t b) {
  if (a <= 0 || a >= kNoLimit) a = 0;
  if (b <= 0 || b >= kNoLimit) b = 0;
  if (a == 0 || b == 0) return std::max(a, b);
  return std::min(a, b);
}

// Limits of the group at `path` below `mount` and of every group above it. A container often sees its own group as the
// mount's root while /proc/self/cgroup names the path outside: folders that do not exist are then passed over.
int64_t SmallestUpwards(const std::string& mount, std::string path, std::initializer_list<const char*> files) {
  int64_t limit = 0;
  while (true) {
    const std::string folder = mount + (path == "/" ? "" : path);
    for (const char* file : files) limit = SmallerLimit(limit, LeadingNumber(ReadSmallFile(folder + "/" + file)));
    if (path.empty() || path == "/") return limit;
    path.resize(path.find_last_of('/') == std::string::npos ? 0 : path.find_last_of('/'));
  }
}

bool HasController(std::string_view list, std::string_view name) {
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    if (list.substr(0, comma) == name) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

}  // namespace

MachineMemory ReadMachineMemory(const std::string& root) {
  const std::string text = ReadSmallFile(root + "/proc/meminfo");
  return {.total_bytes = FieldKilobytes(text, "MemTotal"), .available_bytes = FieldKilobytes(text, "MemAvailable")};
}

int64_t ReadCgroupLimit(const std::string& root) {
  // Lines "hierarchy:controllers:path"; version 2 is hierarchy 0 with no controllers. Both exist on hybrid systems.
  std::istringstream lines(ReadSmallFile(root + "/proc/self/cgroup"));
  const std::string mount = root + "/sys/fs/cgroup";
  int64_t limit = 0;
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string_view controllers = std::string_view(line).substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      limit = SmallerLimit(limit, SmallestUpwards(mount, path, {"memory.max", "memory.high"}));
      limit = SmallerLimit(limit, SmallestUpwards(mount + "/unified", path, {"memory.max", "memory.high"}));
    } else if (HasController(controllers, "memory")) {
      limit = SmallerLimit(limit, SmallestUpwards(mount + "/memory", path, {"memory.limit_in_bytes"}));
    }
  }
  return limit;
}

ProcessMemory ReadProcessMemory(const std::string& root) {
  ProcessMemory memory;
  std::istringstream statm(ReadSmallFile(root + "/proc/self/statm"));
  int64_t virtual_pages = 0;
  int64_t resident_pages = 0;
  if (statm >> virtual_pages >> resident_pages) {
    const int64_t page_bytes = ::sysconf(_SC_PAGESIZE);
    memory = {.resident_bytes = resident_pages * page_bytes, .virtual_bytes = virtual_pages * page_bytes};
  }
  // statm counts in batches per thread or processor and may lag by megabytes; the roll-up walks the page tables.
  const int64_t exact = FieldKilobytes(ReadSmallFile(root + "/proc/self/smaps_rollup"), "Rss");
  memory.resident_bytes = std::max(memory.resident_bytes, exact);
  return memory;
}

int64_t AddressSpaceLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return 0;
  return limit.rlim_cur < static_cast<rlim_t>(kNoLimit) ? static_cast<int64_t>(limit.rlim_cur) : 0;
}

}  // namespace nunspark
