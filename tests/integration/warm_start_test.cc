// What one engine leaves for the next: which experts to read while nobody asks.
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/eventually_testing.h"
#include "engine/model_files.h"
#include "engine/warm_start_file.h"
#include "integration/program.h"
#include "integration/serving.h"
#include "integration/support.h"
#include "io/file.h"

namespace nunspark::test {
namespace {

constexpr int64_t kContext = 64;

class WarmStart : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(::setenv("XDG_CACHE_HOME", (temp_.path() + "/cache").c_str(), 1), 0);
    const Ran packed = Nunspark("pack " + Demo() + " " + pack_);
    ASSERT_EQ(packed.code, 0) << packed.err;
  }
  void TearDown() override { ::unsetenv("XDG_CACHE_HOME"); }

  Runner Start(const std::string& model) const {
    return Runner::Open(model, {.context = kContext, .warm_start = true});
  }

  static std::vector<float> Run(Runner& runner) {
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < 12; ++i) tokens.push_back(100 + i * 7);
    return runner.Logits(tokens);
  }

  void RunOnce(const std::string& model) const {
    Runner runner = Start(model);
    Run(runner);
  }

  // Until all that the warm start wants is in memory.
  static CacheStats Settled(const Runner& runner) {
    CacheStats stats;
    EXPECT_TRUE(Eventually([&] {
      stats = runner.engine->stats().cache;
      return stats.warm_start.issued > 0 && stats.expert.bytes_read == stats.warm_start.issued_bytes;
    }));
    return stats;
  }

  const TempFolder temp_;
  const std::string pack_ = temp_.path() + "/pack";
  const std::string beside_ = pack_ + ".warm-start";
};

TEST_F(WarmStart, TheNextEngineHasTheExpertsInMemoryBeforeItIsAsked) {
  std::vector<float> want;
  int64_t used = 0;
  {
    Runner runner = Start(pack_);
    EXPECT_EQ(runner.engine->stats().cache.warm_start.issued, 0) << "there was no run yet";
    want = Run(runner);
    used = runner.engine->stats().cache.expert.misses;
    EXPECT_GT(used, 0);
  }
  ASSERT_TRUE(FileExists(beside_));
  EXPECT_FALSE(FolderExists(temp_.path() + "/cache"));
  Runner runner = Start(pack_);
  EXPECT_EQ(runner.engine->warm_start_note(), "");
  ASSERT_TRUE(Eventually([&] { return runner.engine->stats().cache.warm_start.issued >= used; }));
  EXPECT_EQ(Settled(runner).warm_start.issued, used);
  const std::vector<float> found = Run(runner);
  ASSERT_EQ(found.size(), want.size());
  EXPECT_EQ(std::memcmp(found.data(), want.data(), want.size() * sizeof(float)), 0);
  const CacheStats stats = runner.engine->stats().cache;
  EXPECT_EQ(stats.expert.misses, 0);
  EXPECT_EQ(stats.warm_start.used, used);
  EXPECT_LE(stats.resident_peak_bytes, runner.engine->plan().budget);
}

TEST_F(WarmStart, AFileThatDoesNotFitIsNotUsedAndReplaced) {
  RunOnce(pack_);
  const std::string good = ReadWholeFile(beside_).value();
  std::string damaged = good;
  damaged[damaged.size() / 2] ^= 1;
  const std::string other = WriteWarmStart("00000000000000000000000000000000", {});
  for (const std::string& text : {damaged, other, std::string(), std::string("rubbish\n")}) {
    ASSERT_TRUE(WriteFileAtomically(beside_, text).ok());
    {
      Runner runner = Start(pack_);
      EXPECT_NE(runner.engine->warm_start_note().find(beside_), std::string::npos) << runner.engine->warm_start_note();
      EXPECT_EQ(runner.engine->stats().cache.warm_start.issued, 0);
      Run(runner);
    }
    EXPECT_EQ(ReadWholeFile(beside_).value(), good);
  }
}

TEST_F(WarmStart, GoesToTheCacheFolderWhereThePacksCannotBeWritten) {
  std::filesystem::create_directory(beside_);  // nothing can be renamed over it
  RunOnce(pack_);
  const std::unique_ptr<ModelFilesImpl> files = ModelFilesImpl::OpenFolder(pack_).value();
  const std::string cached = temp_.path() + "/cache/nunspark/warm-start/" + files->checkpoint().source_hash;
  EXPECT_TRUE(FileExists(cached));
  const Runner runner = Start(pack_);
  EXPECT_GT(Settled(runner).warm_start.issued, 0);
}

TEST_F(WarmStart, OfACheckpointIsKeptInTheCacheFolder) {
  RunOnce(Demo());
  const std::unique_ptr<ModelFilesImpl> files = ModelFilesImpl::OpenFolder(Demo()).value();
  EXPECT_EQ(WarmStartPaths(files->checkpoint()).size(), 1U);
  EXPECT_TRUE(FileExists(WarmStartPaths(files->checkpoint()).front()));
}

TEST_F(WarmStart, ThatCannotBeKeptIsNamedAtTheStart) {
  const std::string file = temp_.path() + "/file";
  ASSERT_TRUE(WriteFileAtomically(file, "").ok());
  ASSERT_EQ(::setenv("XDG_CACHE_HOME", file.c_str(), 1), 0);
  const Runner runner = Start(Demo());
  const std::string note(runner.engine->warm_start_note());
  EXPECT_NE(note.find("cannot be kept: creating " + file), std::string::npos) << note;
}

TEST_F(WarmStart, IsForServersUnlessItIsAskedFor) {
  const std::string generate = "generate " + pack_ + " --prompt x --max-tokens 3 --json";
  const Json plain = JsonOf(Nunspark(generate));
  EXPECT_FALSE(FileExists(beside_));
  const Json asked = JsonOf(Nunspark(generate + " --warm-start"));
  EXPECT_TRUE(FileExists(beside_));
  const Json again = JsonOf(Nunspark(generate + " --warm-start"));
  EXPECT_GT(MemberOf(again, {"prefetch", "warm_start", "issued"}).as_int(), 0);
  const std::string ids = WriteJson(MemberOf(plain, {"ids"}));
  for (const Json& run : {asked, again}) EXPECT_EQ(WriteJson(MemberOf(run, {"ids"})), ids);

  for (const std::string flag : {"--no-warm-start", ""}) {
    std::filesystem::remove(beside_);
    Server server(flag, pack_);
    EXPECT_EQ(server.Post("/v1/chat/completions", Chat("Once", 4)).status, 200);
    EXPECT_EQ(server.Stop(SIGTERM), 0) << server.Log();
    EXPECT_EQ(FileExists(beside_), flag.empty());
  }
}

}  // namespace
}  // namespace nunspark::test
