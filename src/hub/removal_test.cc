#include "hub/removal.h"

#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hub/cache.h"
#include "io/locked_file.h"
#include "io/test_folder.h"

namespace nunspark {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const std::string kOld(40, 'a');
const std::string kNew(40, 'b');

class Removing : public testing::Test {
 protected:
  Removing() : cache_(folder_.Path("hub")), repo_(RepoFolder(cache_, "org/a")) {
    Add(kOld, "config.json", "{}");
    Add(kOld, "model.safetensors", "old weights");
    Add(kNew, "config.json", "{}");
    Add(kNew, "model.safetensors", "new weights!");
    Add(kNew, "x-Q4.gguf", "gguf");
    EXPECT_TRUE(WriteRef(cache_, "org/a", "main", kNew).ok());
    EXPECT_TRUE(WriteRef(cache_, "org/a", "v1", kOld).ok());
    fs::create_directories(folder_.Path("packed/p"));
    folder_.Write("packed/p/manifest.json", "{}");
    folder_.Write("packed/p/model-core.safetensors", "core");
  }
  void Add(const std::string& commit, const std::string& name, const std::string& content) {
    fs::create_directories(repo_ + "/blobs");
    folder_.Write("hub/models--org--a/blobs/" + content, content);
    EXPECT_TRUE(LinkBlob(repo_, content, commit, name).ok());
  }
  Result<Removal> Plan(std::string_view name) const {
    return PlanRemoval({.packed_root = folder_.Path("packed"), .cache = cache_}, name);
  }
  bool HasBlob(const std::string& content) const { return fs::exists(repo_ + "/blobs/" + content); }

  TestFolder folder_;
  std::string cache_, repo_;
};

TEST_F(Removing, ARepositoryGoesWithAllItsSnapshots) {
  const Removal removal = Plan("org/a").value();
  EXPECT_EQ(removal.freed_bytes, 2 + 11 + 12 + 4 + 40 + 40);
  EXPECT_TRUE(HasBlob("gguf"));
  ASSERT_TRUE(Remove(removal).ok());
  EXPECT_FALSE(fs::exists(repo_));
  EXPECT_EQ(Plan("org/a").status().code(), StatusCode::kNotFound);
}

TEST_F(Removing, OfOneSnapshotWhatOthersShareStays) {
  fs::create_directories(repo_ + "/.no_exist/" + kOld);
  fs::create_directories(repo_ + "/trees");
  for (const std::string& path : {"/.no_exist/" + kOld + "/adapter_config.json", "/trees/" + kOld + ".json"}) {
    folder_.Write("hub/models--org--a" + path, "");
  }
  const Removal removal = Plan("org/a@v1").value();
  EXPECT_EQ(removal.freed_bytes, 11);
  EXPECT_EQ(removal.kept_bytes, 2);
  ASSERT_TRUE(Remove(removal).ok());
  for (const std::string& folder : {"/snapshots/" + kOld, "/.no_exist/" + kOld, "/trees/" + kOld + ".json"}) {
    EXPECT_FALSE(fs::exists(repo_ + folder)) << folder;
  }
  EXPECT_FALSE(HasBlob("old weights"));
  EXPECT_TRUE(HasBlob("{}"));
  EXPECT_FALSE(ReadRef(cache_, "org/a", "v1").has_value());
  EXPECT_EQ(ReadRef(cache_, "org/a", "main"), kNew);
  EXPECT_EQ((*FindCached(cache_, ParseRepoRef("org/a").value()))->path, repo_ + "/snapshots/" + kNew);
}

TEST_F(Removing, AGgufFileGoesAlone) {
  ASSERT_TRUE(Remove(Plan("org/a:x-Q4.gguf").value()).ok());
  EXPECT_FALSE(HasBlob("gguf"));
  EXPECT_TRUE(HasBlob("new weights!"));
  EXPECT_TRUE(fs::exists(repo_ + "/snapshots/" + kNew + "/model.safetensors"));
}

TEST_F(Removing, NothingOutsideIsTouched) {
  const std::string precious = folder_.Write("precious", "precious");
  fs::create_symlink(precious, repo_ + "/snapshots/" + kOld + "/link");
  fs::create_directory_symlink(folder_.path(), repo_ + "/snapshots/" + kOld + "/folder");
  fs::create_symlink("../../../../precious", repo_ + "/snapshots/" + kOld + "/up");
  ASSERT_TRUE(Remove(Plan("org/a@" + kOld).value()).ok());
  EXPECT_TRUE(fs::exists(precious));
  fs::create_directory_symlink(folder_.path(), repo_ + "/elsewhere");
  ASSERT_TRUE(Remove(Plan("org/a").value()).ok());
  EXPECT_TRUE(fs::exists(precious));
  EXPECT_FALSE(fs::exists(repo_));
}

TEST_F(Removing, WhatIsBeingDownloadedIsRefused) {
  const auto lock = LockBlob(cache_, "org/a", "x", [] { return true; });
  ASSERT_TRUE(lock.ok());
  EXPECT_THAT(Plan("org/a").status().message(), HasSubstr("being downloaded"));
}

TEST_F(Removing, APackGoesWithItsFolder) {
  folder_.Write("packed/p.warm-start", "");
  const Removal removal = Plan("p").value();
  EXPECT_EQ(removal.freed_bytes, 6);
  ASSERT_TRUE(removal.files.front().ends_with("manifest.json"));
  ASSERT_TRUE(Remove(removal).ok());
  EXPECT_FALSE(fs::exists(folder_.Path("packed/p")));
  EXPECT_FALSE(fs::exists(folder_.Path("packed/p.warm-start")));
}

TEST_F(Removing, PacksThatAreOrHoldLinksAreLeftToPeople) {
  fs::create_directory_symlink(folder_.Path("packed/p"), folder_.Path("packed/q"));
  EXPECT_THAT(Plan("q").status().message(), HasSubstr("is a link"));
  fs::create_symlink("/", folder_.Path("packed/p/root"));
  EXPECT_THAT(Plan("p").status().message(), HasSubstr("root is no file of a pack"));
}

TEST_F(Removing, ACheckpointBesideThePacksIsLeftToPeople) {
  fs::create_directories(folder_.Path("packed/own"));
  folder_.Write("packed/own/config.json", "{}");
  folder_.Write("packed/own/model.safetensors", "1");
  EXPECT_THAT(Plan("own").status().message(), HasSubstr("by hand"));
}

TEST_F(Removing, APackThatIsBeingMadeIsRefused) {
  fs::create_directories(folder_.Path("packed/p.partial"));
  const std::string journal = folder_.Write("packed/p.partial/journal", "");
  const auto lock = OpenLocked(journal);
  ASSERT_TRUE(lock.ok() && lock->has_value());
  EXPECT_THAT(Plan("p").status().message(), HasSubstr("being packed"));
}

TEST_F(Removing, UnknownAndHostileNamesAreNotFound) {
  for (const char* name : {"", "..", "../packed", "org/b", "org/a@v2", "/", "packed/p", "org/a:none.gguf"}) {
    EXPECT_EQ(Plan(name).status().code(), StatusCode::kNotFound) << name << " " << Plan(name).status().message();
  }
}

}  // namespace
}  // namespace nunspark
