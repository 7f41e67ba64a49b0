#include "base/memory_reservation.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>

#include <fmt/format.h>

namespace nunspark {
namespace {

constexpr auto kLongestWait = std::chrono::seconds(2);
constexpr const char* kLockName = ".lock";

// A descriptor of the folder, made when it is not there; -1 unless it is this user's own.
int OpenFolder(const std::string& folder) {
  (void)::mkdir(folder.c_str(), 0700);
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  struct stat status = {};
  if (fd >= 0 && ::fstat(fd, &status) == 0 && status.st_uid == ::geteuid()) return fd;
  if (fd >= 0) ::close(fd);
  return -1;
}

std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The whole number at the start of `text`; -1 when there is none.
int64_t NumberOf(std::string_view text) {
  int64_t value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end != text.data() && value >= 0 ? value : -1;
}

int64_t ResidentBytes(int64_t pid) {
  int64_t size_pages = 0, resident_pages = 0;
  std::ifstream(fmt::format("/proc/{}/statm", pid)) >> size_pages >> resident_pages;
  return resident_pages * ::sysconf(_SC_PAGESIZE);
}

// The bytes of the entry `name`, 0 when its owner has ended: then it is removed.
int64_t LiveEntry(int folder_fd, const char* name) {
  const int fd = ::openat(folder_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return 0;
  int64_t bytes = 0;
  if (::flock(fd, LOCK_SH | LOCK_NB) == 0) {
    (void)::unlinkat(folder_fd, name, 0);
  } else {
    std::array<char, 32> text = {};
    const ssize_t got = ::pread(fd, text.data(), text.size(), 0);
    bytes = got > 0 ? std::max<int64_t>(NumberOf({text.data(), static_cast<size_t>(got)}), 0) : 0;
  }
  ::close(fd);
  return bytes;
}

}  // namespace

std::string ReservationFolder() { return fmt::format("/dev/shm/nunspark-{}", ::geteuid()); }

PlanningLock::PlanningLock(const std::string& folder) {
  const int folder_fd = OpenFolder(folder);
  if (folder_fd < 0) return;
  fd_ = ::openat(folder_fd, kLockName, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  ::close(folder_fd);
  const auto until = std::chrono::steady_clock::now() + kLongestWait;
  while (fd_ >= 0 && ::flock(fd_, LOCK_EX | LOCK_NB) != 0 && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

PlanningLock::~PlanningLock() {
  if (fd_ >= 0) ::close(fd_);
}

MemoryReservation& MemoryReservation::operator=(MemoryReservation&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  return *this;
}

MemoryReservation::~MemoryReservation() {
  if (fd_ < 0) return;
  (void)::unlink(path_.c_str());
  ::close(fd_);
}

MemoryReservation MemoryReservation::Take(int64_t bytes, const std::string& folder) {
  static std::atomic<int> count = 0;
  MemoryReservation reservation;
  const int folder_fd = OpenFolder(folder);
  if (folder_fd < 0) return reservation;
  const std::string name = fmt::format("{}-{}", ::getpid(), count.fetch_add(1));
  // Under its name only once it is locked: a file without a lock is taken for a dead one's.
  const std::string unfinished = "." + name;
  const int fd = ::openat(folder_fd, unfinished.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
  const std::string text = std::to_string(bytes);
  if (fd >= 0 && ::flock(fd, LOCK_EX | LOCK_NB) == 0 &&
      ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
      ::renameat(folder_fd, unfinished.c_str(), folder_fd, name.c_str()) == 0) {
    reservation.fd_ = fd;
    reservation.path_ = folder + "/" + name;
  } else if (fd >= 0) {
    (void)::unlinkat(folder_fd, unfinished.c_str(), 0);
    ::close(fd);
  }
  ::close(folder_fd);
  return reservation;
}

OutstandingMemory ReadOutstandingMemory(const std::string& folder) {
  OutstandingMemory outstanding;
  const int folder_fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder_fd < 0) return outstanding;
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::fdopendir(folder_fd), &::closedir);
  if (entries == nullptr) {
    ::close(folder_fd);
    return outstanding;
  }
  std::map<int64_t, int64_t> planned;  // process -> bytes
  while (const dirent* entry = ::readdir(entries.get())) {
    const int64_t pid = entry->d_name[0] == '.' ? -1 : NumberOf(entry->d_name);
    if (pid > 0) planned[pid] += LiveEntry(folder_fd, entry->d_name);
  }
  const std::string own_groups = ReadText("/proc/self/cgroup");
  for (const auto& [pid, bytes] : planned) {
    const int64_t untouched = std::max<int64_t>(bytes - ResidentBytes(pid), 0);
    outstanding.bytes += untouched;
    if (ReadText(fmt::format("/proc/{}/cgroup", pid)) == own_groups) outstanding.same_group_bytes += untouched;
  }
  return outstanding;
}

}  // namespace nunspark
