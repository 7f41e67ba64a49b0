#include "base/cgroup.h"

#include <algorithm>
#include <fstream>

namespace nunspark {
namespace {

bool HasController(std::string_view list, std::string_view name) {
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    if (list.substr(0, comma) == name) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

void AddUpwards(const std::string& mount, std::string path, std::vector<std::string>& folders) {
  while (!path.empty() && path != "/") {
    folders.push_back(mount + path);
    path.resize(path.find_last_of('/') == std::string::npos ? 0 : path.find_last_of('/'));
  }
  folders.push_back(mount);
}

}  // namespace

std::vector<std::string> CgroupFolders(std::string_view controller, const std::string& root) {
  const std::string mount = root + "/sys/fs/cgroup";
  std::vector<std::string> version_2, version_1;
  // Lines "hierarchy:controllers:path"; version 2 is hierarchy 0 with no controllers. Both exist on hybrid systems.
  std::ifstream lines(root + "/proc/self/cgroup");
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      AddUpwards(mount, path, version_2);
      AddUpwards(mount + "/unified", path, version_2);
    } else if (HasController(controllers, controller)) {
      AddUpwards(mount + "/" + std::string(controller), path, version_1);
    }
  }
  version_2.insert(version_2.end(), version_1.begin(), version_1.end());
  return version_2;
}

}  // namespace nunspark
