// The file that a warm start reads, and the reads that it makes.
#include "weights/warm_start.h"

#include <list>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/eventually_testing.h"
#include "formats/content_hash.h"
#include "weights/cache_harness.h"

namespace nunspark {
namespace {

constexpr std::string_view kModel = "0123456789abcdef0123456789abcdef";
const std::vector<ExpertUses> kUses = {{.layer = 1, .expert = 7, .uses = 900},
                                       {.layer = 0, .expert = 3, .uses = 40},
                                       {.layer = 1, .expert = 0, .uses = 1}};

Result<std::vector<ExpertUses>> Parse(std::string_view text) { return ParseWarmStart(text, kModel, 2, 8); }

// The text with a checksum that is right.
std::string Sealed(const std::string& text) { return text + ChecksumOf(text) + "\n"; }

std::string HeadLines() { return "nunspark warm start 1\nmodel " + std::string(kModel) + "\n"; }

TEST(WarmStartFile, SaysAgainWhatWasWritten) {
  const Result<std::vector<ExpertUses>> read = Parse(WriteWarmStart(kModel, kUses));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(*read, kUses);
  EXPECT_TRUE(Parse(WriteWarmStart(kModel, {})).value().empty());
}

TEST(WarmStartFile, IsRefusedWhereverItIsCutOrChanged) {
  const std::string text = WriteWarmStart(kModel, kUses);
  for (size_t length = 0; length < text.size(); ++length) EXPECT_FALSE(Parse(text.substr(0, length)).ok()) << length;
  for (size_t at = 0; at < text.size(); ++at) {
    std::string changed = text;
    changed[at] ^= 1;
    EXPECT_FALSE(Parse(changed).ok()) << at;
  }
  EXPECT_FALSE(Parse(text + "\n").ok());
}

TEST(WarmStartFile, OfAnotherModelOrVersionIsNotUsed) {
  const Result<std::vector<ExpertUses>> other =
      ParseWarmStart(WriteWarmStart(kModel, kUses), "0123456789abcdef0123456789abcdee", 2, 8);
  ASSERT_FALSE(other.ok());
  EXPECT_NE(other.status().message().find("another model"), std::string::npos);
  const Result<std::vector<ExpertUses>> newer =
      Parse(Sealed("nunspark warm start 2\nmodel " + std::string(kModel) + "\n"));
  ASSERT_FALSE(newer.ok());
  EXPECT_NE(newer.status().message().find("nunspark warm start 1"), std::string::npos);
}

TEST(WarmStartFile, NamesEachExpertOfTheModelAtMostOnce) {
  EXPECT_TRUE(Parse(Sealed(HeadLines() + "1 7 1\n")).ok());
  for (const char* const line :
       {"2 0 1\n", "-1 0 1\n", "0 8 1\n", "0 -1 1\n", "0 0 0\n", "0 0 1099511627777\n", "0 0\n", "0 0 1 \n", "0  0 1\n",
        "x 0 1\n", "\n", "1 7 1\n1 7 1\n", "99999999999999999999 0 1\n"}) {
    const Result<std::vector<ExpertUses>> read = Parse(Sealed(HeadLines() + line));
    ASSERT_FALSE(read.ok()) << line;
    EXPECT_NE(read.status().message().find("line"), std::string::npos) << read.status().message();
  }
}

TEST(WarmStartFile, EarlierRunsCountLessTheLongerTheyAreAgo) {
  const std::vector<ExpertUses> run = {{.layer = 0, .expert = 3, .uses = 500}};
  EXPECT_EQ(AddUses(kUses, run, 1000), (std::vector<ExpertUses>{{.layer = 0, .expert = 3, .uses = 520},
                                                                {.layer = 1, .expert = 7, .uses = 450},
                                                                {.layer = 1, .expert = 0, .uses = 1}}));
  EXPECT_EQ(AddUses(kUses, {}, 100000), std::vector<ExpertUses>{}) << "and are forgotten in the end";
  EXPECT_EQ(AddUses(kUses, {}, 0), kUses);
}

// Experts of layer 0, the first named the most used.
Harness::Options Warm(const std::vector<int>& experts, int32_t slots) {
  Harness::Options options{.model = {.layers = 3, .experts = 16}, .expert_slots = slots};
  const FakeModel model(options.model);
  static std::list<std::vector<PieceId>> kept;
  kept.emplace_back();
  for (const int expert : experts) kept.back().push_back(model.Expert(0, expert));
  options.cache.warm_start = kept.back();
  return options;
}

bool IsOfExpert(const FakeModel& model, const ReadRequest& request) {
  for (PieceId id = 0; id < model.index.size(); ++id) {
    if (model.layout.pieces[static_cast<size_t>(id)].kind != PieceKind::kExpert) continue;
    for (const Extent& extent : model.index.piece(id).extents) {
      const int64_t at = request.offset - extent.file_offset;
      if (request.file == extent.file && at >= 0 && at < extent.bytes) return true;
    }
  }
  return false;
}

// Reads of experts do not come back until Release.
void HoldExperts(const FakeModel& model, FakeQueueControl& control) {
  control.HoldIf([&model](const ReadRequest& request) { return IsOfExpert(model, request); });
}

// Until so many reads of the warm start are in memory.
void AwaitWarm(const Harness& h, int64_t reads) {
  const int64_t bytes = reads * h.SlotBytes(h.model.Expert(0, 0));
  EXPECT_TRUE(Eventually([&] { return h.cache->stats().expert.bytes_read >= bytes; }));
}

TEST(WarmStart, ReadsWhatItIsToldWhileNobodyAsksForAnything) {
  Harness h(Warm({9, 2, 5, 11, 3, 0}, 8));
  AwaitWarm(h, 6);
  for (const int expert : {9, 2, 5, 11, 3, 0}) EXPECT_TRUE(h.Touch(h.model.Expert(0, expert))) << expert;
  EXPECT_FALSE(h.Touch(h.model.Expert(0, 1)));
  const CacheStats stats = h.cache->stats();
  EXPECT_EQ(stats.warm_start.issued, 6);
  EXPECT_EQ(stats.warm_start.used, 6);
  EXPECT_EQ(stats.warm_start.wasted, 0);
  EXPECT_EQ(stats.warm_start.used_bytes, stats.warm_start.issued_bytes);
  EXPECT_EQ(stats.expert_prefetch.issued, 0) << "it is no prediction";
}

TEST(WarmStart, FillsFreeSlotsOnlyAndTheMostUsedStayLongest) {
  Harness h(Warm({9, 2, 5, 11, 3, 0}, 4));
  AwaitWarm(h, 4);
  EXPECT_EQ(h.cache->stats().warm_start.issued, 4);
  EXPECT_LE(h.cache->stats().resident_peak_bytes, h.plan.core_region_bytes + h.plan.expert_region_bytes);
  EXPECT_FALSE(h.Touch(h.model.Expert(0, 15)));
  EXPECT_FALSE(h.Touch(h.model.Expert(0, 14)));
  EXPECT_TRUE(h.Touch(h.model.Expert(0, 9)));
  EXPECT_TRUE(h.Touch(h.model.Expert(0, 2)));
  EXPECT_FALSE(h.Touch(h.model.Expert(0, 11)));
  EXPECT_EQ(h.cache->stats().warm_start.issued, 4) << "nothing makes room for it";
  EXPECT_EQ(h.cache->stats().warm_start.wasted, 2);
}

TEST(WarmStart, NothingNewIsReadWhileAPassRuns) {
  Harness::Options options = Warm({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, 16);
  options.before_open = HoldExperts;
  Harness h(options);
  const int64_t begun = h.cache->stats().warm_start.issued;
  ASSERT_GT(begun, 0);
  ASSERT_LT(begun, 12) << "a few at a time";
  h.cache->BeginPass({});
  h.control->Release();
  h.Pass(0, h.Experts(0, {15}));
  AwaitWarm(h, begun + 1);
  EXPECT_EQ(h.cache->stats().warm_start.issued, begun);
  h.cache->EndPass();
  AwaitWarm(h, 13);
  EXPECT_EQ(h.cache->stats().warm_start.issued, 12);
}

TEST(WarmStart, DemandJoinsAReadThatIsOnItsWay) {
  Harness::Options options = Warm({4}, 8);
  options.before_open = HoldExperts;
  Harness h(options);
  std::thread release([&] { h.control->Release(); });
  h.Pass(0, h.Experts(0, {4}));
  release.join();
  EXPECT_EQ(h.cache->stats().expert.bytes_read, h.SlotBytes(h.model.Expert(0, 4))) << "read once";
}

TEST(WarmStart, AReadThatFailsIsSilentAndTriedAgainWhenItIsWanted) {
  Harness::Options options = Warm({4, 6}, 8);
  int failures = 2;
  options.before_open = [&failures](const FakeModel& model, FakeQueueControl& control) {
    control.SetFault([&](const ReadRequest& request) {
      return IsOfExpert(model, request) && failures-- > 0 ? IoError("the drive is gone") : Status();
    });
  };
  Harness h(options);
  AwaitWarm(h, 2);
  EXPECT_FALSE(h.Touch(h.model.Expert(0, 4)));
  EXPECT_FALSE(h.Touch(h.model.Expert(0, 6)));
  EXPECT_TRUE(h.AllSlotsWork(0));
}

TEST(WarmStart, ExpertUsesCountsPasses) {
  Harness h(Warm({}, 8));
  for (int pass = 0; pass < 3; ++pass) {
    h.cache->BeginPass({});
    h.Pass(1, h.Experts(1, pass == 0 ? std::vector<int>{2} : std::vector<int>{2, 3}));
    h.cache->EndPass();
  }
  const std::vector<int32_t> uses = h.cache->expert_uses();
  EXPECT_EQ(uses[static_cast<size_t>(h.model.Expert(1, 2))], 3);
  EXPECT_EQ(uses[static_cast<size_t>(h.model.Expert(1, 3))], 2);
  EXPECT_EQ(uses[static_cast<size_t>(h.model.Expert(0, 2))], 0);
}

}  // namespace
}  // namespace nunspark
