#include "io/file_system.h"

#include <sys/vfs.h>

#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "base/errno_status.h"

namespace nunspark {
namespace {

struct Known {
  uint32_t magic;
  std::string_view name;
  FileSystemKind kind;
};

// linux/magic.h and the sources of those that are not in it.
constexpr Known kKnown[] = {
    {0xEF53, "ext4", FileSystemKind::kLocal},          {0x58465342, "xfs", FileSystemKind::kLocal},
    {0x9123683E, "btrfs", FileSystemKind::kLocal},     {0xF2F52010, "f2fs", FileSystemKind::kLocal},
    {0x2FC12FC1, "zfs", FileSystemKind::kLocal},       {0xCA451A4E, "bcachefs", FileSystemKind::kLocal},
    {0x5346544E, "ntfs", FileSystemKind::kLocal},      {0x7366746E, "ntfs3", FileSystemKind::kLocal},
    {0x2011BAB0, "exfat", FileSystemKind::kLocal},     {0x4D44, "vfat", FileSystemKind::kLocal},
    {0x01021994, "tmpfs", FileSystemKind::kMemory},    {0x858458F6, "ramfs", FileSystemKind::kMemory},
    {0x6969, "nfs", FileSystemKind::kNetwork},         {0xFF534D42, "cifs", FileSystemKind::kNetwork},
    {0xFE534D42, "smb2", FileSystemKind::kNetwork},    {0x517B, "smb", FileSystemKind::kNetwork},
    {0x00C36400, "ceph", FileSystemKind::kNetwork},    {0x01021997, "9p", FileSystemKind::kNetwork},
    {0x5346414F, "afs", FileSystemKind::kNetwork},     {0x0BD00BD0, "lustre", FileSystemKind::kNetwork},
    {0x794C7630, "overlayfs", FileSystemKind::kOther}, {0x65735546, "fuse", FileSystemKind::kOther},
    {0x73717368, "squashfs", FileSystemKind::kOther}};

}  // namespace

FileSystemInfo FileSystemOf(uint64_t magic) {
  // The kernel's type is signed on some machines: the number has 32 bits.
  const auto wanted = static_cast<uint32_t>(magic);
  for (const Known& known : kKnown) {
    if (known.magic == wanted) return {.name = std::string(known.name), .kind = known.kind, .free_bytes = 0};
  }
  return {.name = fmt::format("{:#x}", wanted), .kind = FileSystemKind::kOther, .free_bytes = 0};
}

Status CreateFolders(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  return error ? ErrnoStatus(error.value(), "creating folder", path) : Status();
}

Result<FileSystemInfo> InspectFileSystem(const std::string& path) {
  struct statfs status = {};
  if (::statfs(path.c_str(), &status) != 0) return ErrnoStatus(errno, "statfs", path);
  FileSystemInfo info = FileSystemOf(static_cast<uint64_t>(status.f_type));
  info.free_bytes = static_cast<int64_t>(status.f_bavail) * static_cast<int64_t>(status.f_bsize);
  return info;
}

}  // namespace nunspark
