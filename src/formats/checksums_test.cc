#include "formats/checksums.h"

#include <unistd.h>

#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/content_hash.h"
#include "io/test_folder.h"

namespace nunspark {
namespace {

using ::testing::HasSubstr;

TEST(Checksums, ReadsBackWhatItWrites) {
  const TestFolder folder;
  folder.Write("manifest.json", "{}\n");
  folder.Write("core.safetensors", RandomBytes(10'000, 1));
  const FileChecksum manifest = *MakeFileChecksum(folder.path(), "manifest.json", 3);
  const FileChecksum core = *MakeFileChecksum(folder.path(), "core.safetensors", 4096);
  const std::string text = WriteChecksums({manifest, core});
  EXPECT_EQ(text, WriteChecksums({core, manifest})) << "the order of files must not matter";
  const auto files = ParseChecksums(text, "checksums.json");
  ASSERT_TRUE(files.ok()) << files.status().message();
  ASSERT_EQ(files->size(), 2U);
  EXPECT_EQ((*files)[0], core);
  EXPECT_EQ((*files)[1], manifest);
}

TEST(Checksums, EveryChangeOfAByteIsFound) {
  const std::string text =
      WriteChecksums({{.name = "a.json", .bytes = 12, .checksum = ChecksumOf(std::string_view("a"))},
                      {.name = "b", .bytes = 0, .checksum = ChecksumOf(std::string_view("b"))}});
  ASSERT_TRUE(ParseChecksums(text, "c").ok());
  for (size_t at = 0; at < text.size(); ++at) {
    for (int value = 0; value < 256; ++value) {
      std::string changed = text;
      changed[at] = static_cast<char>(value);
      if (changed == text) continue;
      ASSERT_EQ(ParseChecksums(changed, "c").status().code(), StatusCode::kDataLoss) << at << " " << value;
    }
  }
  for (size_t size = 0; size < text.size(); ++size)
    ASSERT_FALSE(ParseChecksums(text.substr(0, size), "c").ok()) << size;
  EXPECT_FALSE(ParseChecksums(text + "\n", "c").ok());
}

TEST(Checksums, RefusesBadFields) {
  const auto with = [](std::string from, std::string to) {
    std::string text = WriteChecksums({{.name = "a", .bytes = 1, .checksum = ChecksumOf(std::string_view("a"))},
                                       {.name = "b", .bytes = 1, .checksum = ChecksumOf(std::string_view("b"))}});
    text.replace(text.find(from), from.size(), to);
    return ParseChecksums(text, "checksums.json").status().message();
  };
  EXPECT_THAT(with("\"a\"", "\"../a\""), HasSubstr("files[0].name: expected a file name without folders"));
  EXPECT_THAT(with("\"a\"", "\"b\""), HasSubstr("files[1].name: expected names in rising order"));
  EXPECT_THAT(with("\"bytes\":1", "\"bytes\":-1"), HasSubstr("files[0].bytes: expected an integer from 0"));
  EXPECT_THAT(with("xxh3:", "xxh4:"), HasSubstr("files[0].checksum: expected"));
  EXPECT_THAT(with("\"version\": 1", "\"version\": 2"), HasSubstr("version: expected 1, found 2"));
  EXPECT_THAT(with("\"self\"", "\"sell\""), HasSubstr("its own checksum and content disagree"));
}

}  // namespace
}  // namespace nunspark
