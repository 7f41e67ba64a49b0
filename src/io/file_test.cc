#include "io/file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/test_folder.h"

namespace nunspark {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

std::span<const uint8_t> Bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

TEST(File, ReadsBackWhatItWrote) {
  const TestFolder folder;
  Result<File> file = File::Create(folder.Path("a"));
  ASSERT_TRUE(file.ok()) << file.status().message();
  ASSERT_TRUE(file->WriteAt(3, Bytes("world")).ok());
  ASSERT_TRUE(file->WriteAt(0, Bytes("abc")).ok());
  ASSERT_TRUE(file->Sync().ok());
  EXPECT_EQ(*file->Size(), 8);
  ASSERT_TRUE(file->Truncate(6).ok());
  const Result<File> again = File::OpenRead(folder.Path("a"));
  ASSERT_TRUE(again.ok());
  std::string text(4, ' ');
  ASSERT_TRUE(again->ReadAt(2, {reinterpret_cast<uint8_t*>(text.data()), text.size()}).ok());
  EXPECT_EQ(text, "cwor");
}

TEST(File, OpenWriteKeepsWhatIsThereAndFollowsNoLink) {
  const TestFolder folder;
  {
    Result<File> made = File::OpenWrite(folder.Path("a"));
    ASSERT_TRUE(made.ok()) << made.status().message();
    ASSERT_TRUE(made->WriteAt(0, Bytes("hello")).ok());
  }
  Result<File> again = File::OpenWrite(folder.Path("a"));
  ASSERT_TRUE(again.ok());
  ASSERT_TRUE(again->WriteAt(0, Bytes("J")).ok());
  std::string text(5, ' ');
  ASSERT_TRUE(again->ReadAt(0, {reinterpret_cast<uint8_t*>(text.data()), text.size()}).ok());
  EXPECT_EQ(text, "Jello");
  ASSERT_EQ(::symlink(folder.Path("a").c_str(), folder.Path("link").c_str()), 0);
  EXPECT_THAT(File::OpenWrite(folder.Path("link")).status().message(), HasSubstr("ELOOP"));
}

TEST(File, ReadPastTheEndSaysWhereTheFileEnds) {
  const TestFolder folder;
  const Result<File> file = File::OpenRead(folder.Write("short", "0123456789"));
  ASSERT_TRUE(file.ok());
  uint8_t out[8];
  const Status status = file->ReadAt(5, out);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_EQ(status.message(), "read of 8 bytes at 5 in " + folder.Path("short") +
                                  " failed: expected at least 13 bytes, the file ends at 10");
}

TEST(File, MovesTheDescriptor) {
  const TestFolder folder;
  Result<File> opened = File::OpenRead(folder.Write("a", "x"));
  ASSERT_TRUE(opened.ok());
  File first = std::move(opened).value();
  const int fd = first.fd();
  File second = std::move(first);
  EXPECT_EQ(second.fd(), fd);
  EXPECT_FALSE(first.is_open());  // NOLINT: the moved-from state is part of the contract
  second.Close();
  EXPECT_FALSE(second.is_open());
}

TEST(File, MissingFileIsNotFound) {
  const Status status = File::OpenRead("/nonexistent/file").status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "opening /nonexistent/file failed: No such file or directory (ENOENT)");
}

TEST(File, RefusesFoldersAndPipes) {
  const TestFolder folder;
  EXPECT_THAT(File::OpenRead(folder.path()).status().message(), HasSubstr("is a folder, expected a file"));
  ASSERT_EQ(::mkfifo(folder.Path("pipe").c_str(), 0600), 0);
  EXPECT_THAT(File::OpenRead(folder.Path("pipe")).status().message(), HasSubstr("is no regular file"));
}

TEST(File, FullDiskIsResourceExhausted) {
  Result<File> full = File::Create("/dev/full");
  if (!full.ok()) GTEST_SKIP() << "no /dev/full here";
  const Status status = full->WriteAt(0, Bytes("data"));
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "write of 4 bytes at 0 to /dev/full failed: No space left on device (ENOSPC)");
}

TEST(File, ATemporaryOneHasNoName) {
  const TestFolder folder;
  Result<File> file = File::CreateTemporary(folder.path());
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_TRUE(ListFolder(folder.path())->empty());
  ASSERT_TRUE(file->Truncate(8192).ok());
  file->TryDirect();
  alignas(4096) uint8_t written[4096], read[4096];
  std::fill_n(written, 4096, uint8_t{9});
  ASSERT_TRUE(file->WriteAt(4096, written).ok());
  ASSERT_TRUE(file->ReadAt(4096, read).ok());
  EXPECT_EQ(read[4095], 9);
  const Status missing = File::CreateTemporary(folder.Path("none")).status();
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_THAT(missing.message(), HasSubstr("a temporary file in " + folder.Path("none")));
}

TEST(File, OneForItsOwnerCannotBeReadByOthers) {
  const TestFolder folder;
  ASSERT_TRUE(File::Create(folder.Path("a"), FileAccess::kOwner).ok());
  struct stat info = {};
  ASSERT_EQ(::stat(folder.Path("a").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
}

TEST(AtomicFile, ReplacesOnlyOnCommit) {
  const TestFolder folder;
  const std::string path = folder.Write("a", "old");
  {
    Result<AtomicFile> file = AtomicFile::Create(path);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->Append("half of the").ok());
    EXPECT_EQ(*ReadWholeFile(path), "old");
  }
  EXPECT_EQ(*ReadWholeFile(path), "old");
  EXPECT_THAT(*ListFolder(folder.path()), ElementsAre("a"));  // the temporary file is gone

  Result<AtomicFile> file = AtomicFile::Create(path);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file->Append("all of ").ok());
  ASSERT_TRUE(file->Append("the new").ok());
  ASSERT_TRUE(file->Commit().ok());
  EXPECT_EQ(*ReadWholeFile(path), "all of the new");
  EXPECT_THAT(*ListFolder(folder.path()), ElementsAre("a"));
}

TEST(AtomicFile, FailsCleanlyWhenTheFolderIsMissing) {
  const Status status = WriteFileAtomically("/nonexistent/folder/file", "x");
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
}

TEST(Folders, ListsNamesInOrder) {
  const TestFolder folder;
  folder.Write("b", "");
  folder.Write("a", "");
  folder.Write("B", "");
  EXPECT_THAT(*ListFolder(folder.path()), ElementsAre("B", "a", "b"));
  EXPECT_EQ(ListFolder(folder.Path("none")).status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(FolderExists(folder.path()));
  EXPECT_FALSE(FolderExists(folder.Path("a")));
  EXPECT_TRUE(FileExists(folder.Path("a")));
  EXPECT_FALSE(FileExists(folder.path()));
}

TEST(Folders, JoinsWithOneSlash) {
  EXPECT_EQ(JoinPath("a", "b"), "a/b");
  EXPECT_EQ(JoinPath("a//", "b"), "a/b");
  EXPECT_EQ(JoinPath("/", "b"), "/b");
  EXPECT_EQ(JoinPath("", "b"), "b");
}

}  // namespace
}  // namespace nunspark
