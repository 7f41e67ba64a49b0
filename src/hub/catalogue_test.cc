#include "hub/catalogue.h"

#include <chrono>
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

const std::string kOld(40, 'a');
const std::string kNew(40, 'b');

class HubCache : public testing::Test {
 protected:
  HubCache() : cache_(folder_.Path("hub")) {}

  // A file of a snapshot, as a link to a blob named after its content.
  void Add(const std::string& id, const std::string& commit, const std::string& name, const std::string& content) {
    const std::string repo = RepoFolder(cache_, id);
    fs::create_directories(repo + "/blobs");
    folder_.Write("hub/" + RepoFolderName(id) + "/blobs/blob-" + content, content);
    ASSERT_TRUE(LinkBlob(repo, "blob-" + content, commit, name).ok());
  }
  void SetAge(const std::string& id, const std::string& commit, int hours) {
    fs::last_write_time(RepoFolder(cache_, id) + "/snapshots/" + commit,
                        fs::file_time_type::clock::now() - std::chrono::hours(hours));
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    const auto entries = ScanCatalogue({.packed_root = folder_.Path("packed"), .cache = cache_});
    EXPECT_TRUE(entries.ok()) << entries.status().message();
    if (entries.ok()) {
      for (const CatalogueEntry& entry : *entries) {
        names.push_back(std::string(ModelKindName(entry.kind)) + " " + entry.name + " " +
                        std::to_string(entry.size_bytes) + " " + entry.snapshot.substr(0, 1));
      }
    }
    return names;
  }
  std::string Found(const std::string& text) const {
    const auto found = FindCached(cache_, ParseRepoRef(text).value());
    if (!found.ok()) return "error: " + found.status().message();
    return *found ? (*found)->path.substr(RepoFolder(cache_, ParseRepoRef(text).value().id).size()) : "";
  }

  TestFolder folder_;
  std::string cache_;
};

TEST_F(HubCache, FoldersThatAreNotThereHoldNoModels) { EXPECT_THAT(Names(), testing::IsEmpty()); }

// Checklist item 78.
TEST_F(HubCache, ListsPacksThenCheckpointsThenGgufFiles) {
  fs::create_directories(folder_.Path("packed/zebra"));
  fs::create_directories(folder_.Path("packed/ant"));
  fs::create_directories(folder_.Path("packed/unfinished.partial"));
  folder_.Write("packed/zebra/manifest.json", "12345");
  folder_.Write("packed/ant/manifest.json", "1");
  folder_.Write("packed/loose.gguf", "123");
  fs::create_directories(folder_.Path("packed/own"));
  folder_.Write("packed/own/config.json", "{}");
  folder_.Write("packed/own/model.safetensors", "1");
  Add("org/b", kOld, "config.json", "{}");
  Add("org/b", kOld, "model.safetensors", "1234");
  Add("org/a", kOld, "sub/x-Q4.gguf", "12");
  Add("org/a", kOld, "x-00001-of-00002.gguf", "1");
  EXPECT_THAT(Names(), testing::ElementsAre("packed ant 1 ", "packed zebra 5 ", "unpacked org/b 6 a", "unpacked own 3 ",
                                            "gguf loose.gguf 3 ", "gguf org/a:sub/x-Q4.gguf 2 a"));
  EXPECT_EQ(ScanCatalogue({.packed_root = folder_.Path("packed"), .cache = ""})->front().path,
            folder_.Path("packed/ant"));
}

TEST_F(HubCache, TheNewestCompleteSnapshotCounts) {
  Add("org/a", kOld, "config.json", "{}");
  Add("org/a", kOld, "model.safetensors", "1234");
  Add("org/a", kNew, "config.json", "{}");
  SetAge("org/a", kOld, 2);
  SetAge("org/a", kNew, 1);
  EXPECT_THAT(Names(), testing::ElementsAre("unpacked org/a 6 a"));
  Add("org/a", kNew, "model.safetensors", "12345");
  EXPECT_THAT(Names(), testing::ElementsAre("unpacked org/a 7 b"));
}

TEST_F(HubCache, LinksAreThoseOfHuggingFace) {
  Add("org/a", kOld, "sub/x.gguf", "12");
  EXPECT_EQ(fs::read_symlink(RepoFolder(cache_, "org/a") + "/snapshots/" + kOld + "/sub/x.gguf"),
            "../../../blobs/blob-12");
}

TEST_F(HubCache, AModelIsFoundByNameRevisionAndFile) {
  EXPECT_EQ(Found("org/a"), "");
  Add("org/a", kOld, "config.json", "{}");
  Add("org/a", kOld, "model.safetensors", "1234");
  Add("org/a", kOld, "x-Q4_0.gguf", "1");
  Add("org/a", kNew, "config.json", "{}");
  EXPECT_EQ(Found("org/a"), "/snapshots/" + kOld);
  EXPECT_EQ(Found("org/a@" + kOld), "/snapshots/" + kOld);
  EXPECT_EQ(Found("org/a@" + kNew), "");
  EXPECT_EQ(Found("org/a@v1"), "");
  ASSERT_TRUE(WriteRef(cache_, "org/a", "v1", kOld).ok());
  EXPECT_EQ(Found("org/a@v1"), "/snapshots/" + kOld);
  EXPECT_EQ(Found("org/a:Q4_0"), "/snapshots/" + kOld + "/x-Q4_0.gguf");
  EXPECT_EQ(Found("org/a:Q8_0"), "");
  // A ref that is not a commit would lead anywhere.
  folder_.Write("hub/models--org--a/refs/v1", "../../../elsewhere");
  EXPECT_EQ(Found("org/a@v1"), "");
}

TEST_F(HubCache, OfSeveralGgufModelsOneMustBeNamed) {
  Add("org/a", kOld, "x-Q4_0.gguf", "1");
  EXPECT_EQ(Found("org/a"), "/snapshots/" + kOld + "/x-Q4_0.gguf");
  Add("org/a", kOld, "x-Q8_0.gguf", "2");
  EXPECT_THAT(Found("org/a"), testing::AllOf(testing::HasSubstr("error: org/a: 2 GGUF models are there"),
                                             testing::HasSubstr("x-Q8_0.gguf")));
}

TEST_F(HubCache, ABrokenLinkIsNoFile) {
  Add("org/a", kOld, "config.json", "{}");
  Add("org/a", kOld, "model.safetensors", "1234");
  fs::remove(RepoFolder(cache_, "org/a") + "/blobs/blob-1234");
  EXPECT_EQ(Found("org/a"), "");
  EXPECT_THAT(Names(), testing::IsEmpty());
}

TEST_F(HubCache, OneHolderHasALockAndTheNextWaits) {
  bool asked = false;
  {
    const auto held = LockBlob(cache_, "org/a", "b", [] { return true; });
    ASSERT_TRUE(held.ok());
    const auto refused = LockBlob(cache_, "org/a", "b", [&] { return asked = true; });
    EXPECT_EQ(refused.status().code(), StatusCode::kCancelled);
    EXPECT_TRUE(asked);
    ASSERT_EQ(ListLocks(cache_, "org/a")->size(), 1u);
    EXPECT_FALSE(OpenLocked(ListLocks(cache_, "org/a")->front())->has_value());
  }
  EXPECT_TRUE(LockBlob(cache_, "org/a", "b", [] { return true; }).ok());
}

}  // namespace
}  // namespace nunspark
