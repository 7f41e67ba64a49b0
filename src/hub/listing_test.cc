#include "hub/listing.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"

namespace nunspark {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const std::string kCommit(40, 'c');
const std::string kSha256(64, 'a');
const std::string kSha1(40, 'b');

std::string ListingOf(std::string_view files) {
  return R"({"sha":")" + kCommit + R"(","siblings":[)" + std::string(files) + "]}";
}

std::string FileNamed(std::string_view name) {
  return R"({"rfilename":)" + JsonQuote(name) + R"(,"size":1,"blobId":")" + kSha1 + "\"}";
}

TEST(Listing, HoldsCommitAndFilesByName) {
  const RepoListing listing =
      ParseListing(
          ListingOf(R"({"rfilename":"z/b.safetensors","size":134,"blobId":")" + kSha1 + R"(","lfs":{"sha256":")" +
                    kSha256 + R"(","size":5000000000,"pointerSize":134}},)" + FileNamed("config.json")),
          "listing")
          .value();
  EXPECT_EQ(listing.commit, kCommit);
  ASSERT_EQ(listing.files.size(), 2u);
  EXPECT_EQ(listing.files[0].name, "config.json");
  EXPECT_EQ(listing.files[0].digest, kSha1);
  EXPECT_EQ(listing.files[0].digest_kind, DigestKind::kGitBlob);
  EXPECT_EQ(listing.files[1].bytes, 5000000000);
  EXPECT_EQ(listing.files[1].digest, kSha256);
  EXPECT_EQ(listing.files[1].digest_kind, DigestKind::kSha256);
}

TEST(Listing, HostileNamesAreRefusedByName) {
  const std::string longest(1100, 'x');
  const std::pair<std::string, const char*> cases[] = {{"../evil", "leads out"},
                                                       {"a/../../evil", "leads out"},
                                                       {"/etc/passwd", "absolute"},
                                                       {"a/./b", "leads out"},
                                                       {"a//b", "leads out"},
                                                       {"a/", "leads out"},
                                                       {"", "empty"},
                                                       {std::string("a\0b", 3), "control"},
                                                       {"a\nb", "control"},
                                                       {"..\\evil", "backslash"},
                                                       {longest, "more than 1024"},
                                                       {std::string(250, 'y'), "more than 230"},
                                                       {"\x7f", "control"}};
  for (const auto& [name, reason] : cases) {
    const Status status = ParseListing(ListingOf(FileNamed("ok.json") + "," + FileNamed(name)), "listing").status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << name;
    EXPECT_THAT(status.message(), AllOf(HasSubstr(reason), HasSubstr(JsonQuote(name.substr(0, 200)).substr(0, 100))));
  }
  EXPECT_FALSE(CheckFileName("a\xff").ok());
  EXPECT_TRUE(CheckFileName("sub/\xc3\xa4 b..c.json").ok());
}

TEST(Listing, AFileThatIsListedTwiceIsRefused) {
  const Status status =
      ParseListing(ListingOf(FileNamed("a") + "," + FileNamed("b") + "," + FileNamed("a")), "l").status();
  EXPECT_THAT(status.message(), AllOf(HasSubstr("\"a\""), HasSubstr("twice")));
}

TEST(Listing, FilesThatWouldBeOneElsewhereAreRefused) {
  const auto files = [](std::initializer_list<const char*> names) {
    std::vector<RepoFile> result;
    for (const char* name : names) result.push_back({.name = name, .bytes = 1, .digest = kSha256});
    return result;
  };
  EXPECT_TRUE(CheckTogether(files({"config.json", "tokenizer.json"})).ok());
  EXPECT_THAT(CheckTogether(files({"Config.json", "config.json"})).message(),
              AllOf(HasSubstr("\"config.json\""), HasSubstr("\"Config.json\"")));
  EXPECT_THAT(CheckTogether(files({"NUL.gguf"})).message(), HasSubstr("device"));
  EXPECT_THAT(CheckTogether(files({"com1/x.gguf"})).message(), HasSubstr("device"));
  EXPECT_TRUE(CheckTogether(files({"com10.gguf", "null.gguf"})).ok());
}

TEST(Listing, WhatIsMalformedIsRefused) {
  for (const std::string& text :
       {std::string(""), std::string("[]"), std::string("{}"), std::string(R"({"sha":"main","siblings":[]})"),
        R"({"sha":")" + kCommit + R"("})", R"({"sha":")" + kCommit + R"(","siblings":{}})", ListingOf("1"),
        ListingOf("{}"), ListingOf(R"({"rfilename":"a"})"), ListingOf(R"({"rfilename":"a","size":-1})"),
        ListingOf(R"({"rfilename":"a","size":1e99})"), ListingOf(R"({"rfilename":"a","size":1,"blobId":"../../x"})"),
        ListingOf(R"({"rfilename":"a","size":1,"lfs":{"sha256":")" + kSha1 + R"("}})"),
        ListingOf(R"({"rfilename":"a","size":1,"lfs":{"sha256":7}})")}) {
    EXPECT_EQ(ParseListing(text, "listing").status().code(), StatusCode::kDataLoss) << text;
  }
  EXPECT_EQ(ParseListing(ListingOf(R"({"rfilename":"a","size":1})"), "l")->files[0].digest, "");
}

TEST(Listing, NumberAndSizeAreBounded) {
  std::string files = FileNamed("0");
  for (size_t i = 1; i <= kMaxListedFiles; ++i) files += "," + FileNamed(std::to_string(i));
  EXPECT_EQ(ParseListing(ListingOf(files), "l").status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(ParseListing(std::string(static_cast<size_t>(kMaxListingBytes) + 1, ' '), "l").status().code(),
            StatusCode::kResourceExhausted);
}

TEST(Digest, IsThatOfTheToolsThatMadeIt) {
  // sha256sum, git hash-object.
  Digest sha256(DigestKind::kSha256, 5);
  sha256.Update("he");
  sha256.Update("llo");
  EXPECT_EQ(sha256.Hex(), "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824");
  Digest git(DigestKind::kGitBlob, 5);
  git.Update("hello");
  EXPECT_EQ(git.Hex(), "b6fc4c620b67d95f953a5c1c1230aaab5db5a1b0");
}

}  // namespace
}  // namespace nunspark
