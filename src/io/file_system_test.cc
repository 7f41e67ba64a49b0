#include "io/file_system.h"

#include <gtest/gtest.h>

#include "io/test_folder.h"

namespace nunspark {
namespace {

TEST(FileSystem, IsNamedByItsNumber) {
  EXPECT_EQ(FileSystemOf(0xEF53).name, "ext4");
  EXPECT_EQ(FileSystemOf(0xEF53).kind, FileSystemKind::kLocal);
  EXPECT_EQ(FileSystemOf(0x6969).kind, FileSystemKind::kNetwork);
  EXPECT_EQ(FileSystemOf(0xFFFFFFFFFF534D42).name, "cifs") << "sign-extended";
  EXPECT_EQ(FileSystemOf(0x01021994).kind, FileSystemKind::kMemory);
  EXPECT_EQ(FileSystemOf(0x1234567).name, "0x1234567");
}

TEST(FileSystem, OfAPathIsInspected) {
  const TestFolder folder;
  const Result<FileSystemInfo> info = InspectFileSystem(folder.path());
  ASSERT_TRUE(info.ok()) << info.status().message();
  EXPECT_NE(info->name, "");
  EXPECT_GT(info->free_bytes, 0);
  EXPECT_EQ(InspectFileSystem(folder.Path("nothing")).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace nunspark
