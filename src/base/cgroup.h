// The control groups this process is in, from its own up to the mounts' roots.
#ifndef NUNSPARK_BASE_CGROUP_H_
#define NUNSPARK_BASE_CGROUP_H_

#include <string>
#include <string_view>
#include <vector>

namespace nunspark {

// Folders that may hold the files of `controller` ("memory", "cpu"), nearest first, version 2 before version 1. A
// container often sees its own group as the mount's root while /proc/self/cgroup names the path outside, so folders in
// the list need not exist. `root` stands for "/" in tests.
std::vector<std::string> CgroupFolders(std::string_view controller, const std::string& root = "");

}  // namespace nunspark

#endif  // NUNSPARK_BASE_CGROUP_H_
