#include "base/size.h"

#include <gtest/gtest.h>

namespace nunspark {
namespace {

// Contract checklist item 71.
TEST(ParseSize, TakesTheContractsUnitsAsDecimal) {
  const std::pair<const char*, int64_t> cases[] = {{"0", 0},
                                                   {"1024", 1024},
                                                   {"1TB", 1000000000000},
                                                   {"2t", 2000000000000},
                                                   {"1.5GB", 1500000000},
                                                   {"6g", 6000000000},
                                                   {"84MB", 84000000},
                                                   {"1m", 1000000},
                                                   {"12kb", 12000},
                                                   {"3K", 3000},
                                                   {"7B", 7},
                                                   {" 10 GB ", 10000000000},
                                                   {"0.5gB", 500000000}};
  for (const auto& [text, bytes] : cases) {
    const Result<int64_t> size = ParseSize(text);
    ASSERT_TRUE(size.ok()) << text;
    EXPECT_EQ(*size, bytes) << text;
  }
}

TEST(ParseSize, RefusesEverythingElse) {
  for (const char* text : {"",        " ",
                           "GB",      "1.5",
                           "-1",      "-1GB",
                           "1GiB",    "1 G B",
                           "1.2.3GB", "1e3",
                           "ten",     "1QB",
                           "auto",    "99999999999999999999",
                           "1e30TB",  "999999999999TB",
                           "0x10",    "nan",
                           "inf",     "+5"}) {
    EXPECT_FALSE(ParseSize(text).ok()) << text;
  }
}

TEST(SizeFlag, IsShortAndOnTheAskedSide) {
  EXPECT_EQ(SizeFlagAtLeast(1'048'000'000), "1.05GB");
  EXPECT_EQ(SizeFlagAtMost(1'048'000'000), "1.04GB");
  EXPECT_EQ(SizeFlagAtLeast(999'999'999), "1.00GB");
  EXPECT_EQ(SizeFlagAtLeast(12'000'000'000), "12.0GB");
  EXPECT_EQ(SizeFlagAtMost(999), "999");
  EXPECT_EQ(SizeFlagAtMost(5'000'000'000'000'000), "5000TB");
  uint64_t state = 1;
  for (int i = 0; i < 100000; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const int64_t bytes = static_cast<int64_t>(state >> (2 + i % 60));
    if (bytes > 9'000'000'000'000'000'000) continue;
    ASSERT_GE(ParseSize(SizeFlagAtLeast(bytes)).value(), bytes);
    ASSERT_LE(ParseSize(SizeFlagAtMost(bytes)).value(), bytes);
  }
}

}  // namespace
}  // namespace nunspark
