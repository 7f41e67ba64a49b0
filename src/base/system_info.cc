#include "base/system_info.h"

#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>
#include <vector>

namespace nunspark {
namespace {

std::optional<int64_t> ReadNumber(const std::string& path) {
  int64_t value = 0;
  std::ifstream file(path);
  return file >> value ? std::optional(value) : std::nullopt;
}

std::string ReadWord(const std::string& path) {
  std::string word;
  std::ifstream(path) >> word;
  return word;
}

// Folders of `parent` whose names are `prefix` and a number.
std::vector<std::string> Numbered(const std::string& parent, std::string_view prefix) {
  std::vector<std::string> folders;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(parent, error)) {
    const std::string name = entry.path().filename().string();
    const bool numbered = name.size() > prefix.size() && name.starts_with(prefix) &&
                          name.find_first_not_of("0123456789", prefix.size()) == std::string::npos;
    if (numbered) folders.push_back(entry.path().string());
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

int64_t LimitBytes(rlim_t limit) {
  constexpr rlim_t kMost = rlim_t{1} << 62;
  return limit == RLIM_INFINITY || limit > kMost ? -1 : static_cast<int64_t>(limit);
}

}  // namespace

SwapInfo ReadSwap(const std::string& root) {
  int64_t total = 0, free = 0, value = 0;
  std::ifstream file(root + "/proc/meminfo");
  for (std::string key, unit; file >> key >> value; std::getline(file, unit)) {
    if (key == "SwapTotal:") total = value * 1024;
    if (key == "SwapFree:") free = value * 1024;
  }
  return {.total_bytes = total, .used_bytes = std::max<int64_t>(total - free, 0)};
}

LockLimits ReadLockLimits() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return {};
  return {.soft_bytes = LimitBytes(limit.rlim_cur), .hard_bytes = LimitBytes(limit.rlim_max)};
}

int OvercommitMode(const std::string& root) {
  return static_cast<int>(ReadNumber(root + "/proc/sys/vm/overcommit_memory").value_or(-1));
}

std::string HugePageMode(const std::string& root) {
  std::ifstream file(root + "/sys/kernel/mm/transparent_hugepage/enabled");
  for (std::string word; file >> word;) {
    if (word.size() > 2 && word.front() == '[' && word.back() == ']') return word.substr(1, word.size() - 2);
  }
  return "";
}

CpuClock ReadCpuClock(const std::string& root) {
  CpuClock clock;
  for (const std::string& cpu : Numbered(root + "/sys/devices/system/cpu", "cpu")) {
    if (clock.governor.empty()) clock.governor = ReadWord(cpu + "/cpufreq/scaling_governor");
    clock.current_khz = std::max(clock.current_khz, ReadNumber(cpu + "/cpufreq/scaling_cur_freq").value_or(0));
    clock.highest_khz = std::max(clock.highest_khz, ReadNumber(cpu + "/cpufreq/cpuinfo_max_freq").value_or(0));
    for (const char* counter : {"core_throttle_count", "package_throttle_count"}) {
      const std::optional<int64_t> count = ReadNumber(cpu + "/thermal_throttle/" + counter);
      if (count) clock.throttled = std::max(clock.throttled, *count);
    }
  }
  return clock;
}

Heat ReadHeat(const std::string& root) {
  Heat hottest;
  for (const std::string& zone : Numbered(root + "/sys/class/thermal", "thermal_zone")) {
    const std::optional<int64_t> now = ReadNumber(zone + "/temp");  // thousandths of a degree
    if (!now || static_cast<double>(*now) / 1000 <= hottest.now) continue;
    hottest = {.now = static_cast<double>(*now) / 1000, .limit = -1};
    for (int trip = 0;; ++trip) {
      const std::string name = zone + "/trip_point_" + std::to_string(trip);
      const std::optional<int64_t> limit = ReadNumber(name + "_temp");
      if (!limit) break;
      const std::string type = ReadWord(name + "_type");
      if (type != "passive" && type != "hot" && type != "critical") continue;
      const double degrees = static_cast<double>(*limit) / 1000;
      if (degrees > 0) hottest.limit = hottest.limit < 0 ? degrees : std::min(hottest.limit, degrees);
    }
  }
  return hottest;
}

}  // namespace nunspark
