#include "base/read_file.h"

#include <stdlib.h>
#include <sys/stat.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/check.h"

namespace nunspark {
namespace {

using ::testing::HasSubstr;

class ReadFileTest : public ::testing::Test {
 protected:
  ReadFileTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "nunspark_test_XXXXXX").string();
    CHECK(::mkdtemp(pattern.data()) != nullptr);
    folder_ = pattern;
  }
  ~ReadFileTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  std::string Path(std::string_view name) const { return folder_ + "/" + std::string(name); }

  std::string Write(std::string_view name, std::string_view content) const {
    FILE* const file = std::fopen(Path(name).c_str(), "wb");
    CHECK(file != nullptr);
    CHECK(std::fwrite(content.data(), 1, content.size(), file) == content.size());
    CHECK(std::fclose(file) == 0);
    return Path(name);
  }

  static std::string Bytes(size_t count) {
    std::string bytes(count, '\0');
    for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<char>(i * i / 251);
    return bytes;
  }

 private:
  std::string folder_;
};

TEST_F(ReadFileTest, ReadsEverySizeNearItsBuffers) {
  for (const size_t size : {0, 1, 4094, 4095, 4096, 4097, 8192, 100'000}) {
    const std::string content = Bytes(size);
    const std::string path = Write("a", content);
    for (const Result<std::string>& read : {ReadRegularFile(path), ReadWholeFile(path)}) {
      ASSERT_TRUE(read.ok()) << read.status().message();
      EXPECT_EQ(*read, content) << size;
      EXPECT_GE(read->capacity(), size + kReadFilePadding);
    }
  }
}

TEST_F(ReadFileTest, StopsAtItsLimitAndSaysWhy) {
  const std::string path = Write("a", "12345");
  EXPECT_EQ(*ReadRegularFile(path, {.max_bytes = 5}), "12345");
  EXPECT_EQ(*ReadWholeFile(path, {.max_bytes = 5}), "12345");
  const ReadFileOptions four{.max_bytes = 4, .limit_reason = "enough for four letters"};
  for (const Status& status : {ReadRegularFile(path, four).status(), ReadWholeFile(path, four).status()}) {
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    EXPECT_EQ(status.message(), path + " is larger than 4 bytes, enough for four letters");
  }
}

TEST_F(ReadFileTest, ReadsFilesThatClaimToBeEmpty) {
  EXPECT_THAT(*ReadRegularFile("/proc/self/status"), HasSubstr("VmPeak"));
  EXPECT_EQ(ReadRegularFile("/proc/self/status", {.max_bytes = 10}).status().code(), StatusCode::kResourceExhausted);
}

TEST_F(ReadFileTest, ReadsPipesOnlyWhereAUserMayNameOne) {
  const std::string pipe = Path("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  // Nobody writes: this would never return if it waited.
  const Status refused = ReadRegularFile(pipe).status();
  EXPECT_EQ(refused.code(), StatusCode::kIo);
  EXPECT_EQ(refused.message(), pipe + " is no regular file, expected a file");

  const std::string sent = Bytes(300'000);
  std::thread writer([&] { Write("pipe", sent); });
  EXPECT_EQ(*ReadWholeFile(pipe), sent);
  writer.join();
}

TEST_F(ReadFileTest, SaysWhatCannotBeRead) {
  const std::string folder = Path("");
  EXPECT_EQ(ReadRegularFile(folder).status().message(), folder + " is a folder, expected a file");
  EXPECT_THAT(ReadWholeFile(folder).status().message(), HasSubstr("Is a directory (EISDIR)"));
  for (const Status& status : {ReadRegularFile(Path("none")).status(), ReadWholeFile(Path("none")).status()}) {
    EXPECT_EQ(status.code(), StatusCode::kNotFound);
    EXPECT_EQ(status.message(), "opening " + Path("none") + " failed: No such file or directory (ENOENT)");
  }
  EXPECT_EQ(ReadRegularFile(Write("file", "") + "/below").status().code(), StatusCode::kNotFound);
}

TEST_F(ReadFileTest, FollowsLinks) {
  std::filesystem::create_symlink(Write("a", "content"), Path("link"));
  EXPECT_EQ(*ReadRegularFile(Path("link")), "content");
}

}  // namespace
}  // namespace nunspark
