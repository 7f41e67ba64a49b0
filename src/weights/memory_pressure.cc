#include "weights/memory_pressure.h"

#include <filesystem>
#include <fstream>
#include <utility>

namespace nunspark {
namespace {

// Per cent of the last ten seconds in which some task waited for memory: reclaim that a program notices begins here.
constexpr double kWaitingPercent = 10;

// The folder of the process's group in version 2; empty when there is none.
std::string GroupFolder(const std::string& root) {
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (line.starts_with("0::/")) return root + "/sys/fs/cgroup" + line.substr(3);
  }
  return "";
}

}  // namespace

MemoryPressure::MemoryPressure(const std::string& root) {
  const std::string group = GroupFolder(root);
  std::error_code error;
  const auto exists = [&](const std::string& path) { return std::filesystem::exists(path, error); };
  if (!group.empty() && exists(group + "/memory.events")) events_path_ = group + "/memory.events";
  pressure_path_ = !group.empty() && exists(group + "/memory.pressure") ? group + "/memory.pressure"
                                                                        : root + "/proc/pressure/memory";
  if (!exists(pressure_path_)) pressure_path_.clear();
  Sample();
}

bool MemoryPressure::Sample() {
  bool pressure = false;
  if (!events_path_.empty()) {
    std::ifstream file(events_path_);
    int64_t events = 0, count = 0;
    for (std::string name; file >> name >> count;) events += name == "high" || name == "max" ? count : 0;
    const int64_t before = std::exchange(events_, events);
    pressure = before >= 0 && events > before;
  }
  if (!pressure && !pressure_path_.empty()) {
    // some avg10=0.00 avg60=0.00 avg300=0.00 total=0
    std::ifstream file(pressure_path_);
    std::string kind;
    if (file >> kind && kind == "some" && file.ignore(64, '=')) {
      double waiting = 0;
      pressure = file >> waiting && waiting >= kWaitingPercent;
    }
  }
  return pressure;
}

}  // namespace nunspark
