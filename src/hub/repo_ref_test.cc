#include "hub/repo_ref.h"

#include <gtest/gtest.h>

namespace nunspark {
namespace {

TEST(RepoRef, TakesIdRevisionAndFileApart) {
  const RepoRef ref = ParseRepoRef("org/name-4.bit@refs/pr/1:sub/x-Q4_K_M.gguf").value();
  EXPECT_EQ(ref.id, "org/name-4.bit");
  EXPECT_EQ(ref.revision, "refs/pr/1");
  EXPECT_EQ(ref.file, "sub/x-Q4_K_M.gguf");
  EXPECT_EQ(ref.Text(), "org/name-4.bit@refs/pr/1:sub/x-Q4_K_M.gguf");
  EXPECT_EQ(ParseRepoRef("gpt2").value().revision_or_default(), "main");
}

TEST(RepoRef, RefusesWhatHubsDoNotAllow) {
  for (const char* text :
       {"",       "/",        "a/",     "/b",       "a/b/c",  "../b",       "a/..",       "a/-b",
        "a/b.",   "a--b/c",   "a b/c",  "a/b.git",  "a/b@",   "a/b@..",     "a/b@x/../y", "a/b@/x",
        "a/b@x/", "a/b@x//y", "a/b@.x", "a/b@x\\y", "a/b@-x", "a/b@x.lock", "a/b:",       "a/b\n/c"}) {
    EXPECT_FALSE(ParseRepoRef(text).ok()) << text;
  }
  EXPECT_FALSE(ParseRepoRef(std::string("a/") + std::string(200, 'x')).ok());
  EXPECT_FALSE(ParseRepoRef(std::string("a/b\0c", 5)).ok());
}

TEST(RepoRef, AModelArgumentNeedsAnOwnerToBeOne) {
  EXPECT_TRUE(AsRepoRef("org/name").has_value());
  EXPECT_FALSE(AsRepoRef("name").has_value());
  EXPECT_FALSE(AsRepoRef("./name").has_value());
  EXPECT_FALSE(AsRepoRef("a/b/c").has_value());
}

TEST(RepoRef, FolderNamesGoBothWays) {
  EXPECT_EQ(RepoFolderName("org/name"), "models--org--name");
  EXPECT_EQ(RepoIdOfFolder("models--org--name"), "org/name");
  EXPECT_EQ(RepoIdOfFolder("models--gpt2"), "gpt2");
  for (const char* name : {"datasets--org--name", "models--", "models--..--x", "models--a--b--c"}) {
    EXPECT_FALSE(RepoIdOfFolder(name).has_value()) << name;
  }
}

}  // namespace
}  // namespace nunspark
