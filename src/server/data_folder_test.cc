#include "server/data_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/test_folder.h"

namespace nunspark::server {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(DataFolder, IsMadeForItsOwnerAlone) {
  const TestFolder test;
  const Result<DataFolder> folder = DataFolder::Open(test.Path("data"));
  ASSERT_TRUE(folder.ok()) << folder.status().message();
  struct stat info = {};
  ASSERT_EQ(::stat(folder->path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

TEST(DataFolder, IsHeldByOneAtATime) {
  const TestFolder test;
  std::optional<DataFolder> first;
  {
    Result<DataFolder> opened = DataFolder::Open(test.path());
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    first = std::move(opened).value();
  }
  const Status second = DataFolder::Open(test.path()).status();
  EXPECT_EQ(second.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(second.message(), AllOf(HasSubstr(test.path()), HasSubstr("process " + std::to_string(::getpid()))));
  first.reset();
  EXPECT_TRUE(DataFolder::Open(test.path()).ok());
}

TEST(DataFolder, RefusesAFileAndAFolderInNothing) {
  const TestFolder test;
  EXPECT_THAT(DataFolder::Open(test.Write("file", "x")).status().message(), HasSubstr("expected a folder"));
  EXPECT_EQ(DataFolder::Open(test.Path("none/data")).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace nunspark::server
