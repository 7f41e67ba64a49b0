#include "base/memory_rate.h"

#include <gtest/gtest.h>

namespace nunspark {
namespace {

TEST(MemoryRate, IsThatOfAMachine) {
  for (const int threads : {1, 2}) {
    const Result<double> rate = MeasureMemoryRate(threads, 16 << 20);
    ASSERT_TRUE(rate.ok()) << rate.status().message();
    EXPECT_GT(*rate, 1e7);
    EXPECT_LT(*rate, 1e14);
  }
}

TEST(MemoryRate, TooMuchMemoryIsAnError) { EXPECT_FALSE(MeasureMemoryRate(1, int64_t{1} << 60).ok()); }

}  // namespace
}  // namespace nunspark
