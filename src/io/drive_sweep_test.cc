#include "io/drive_sweep.h"

#include <gtest/gtest.h>

#include "io/test_folder.h"

namespace nunspark {
namespace {

const SweepOptions kShort{.request_bytes = {4096, 65536, 1 << 20}, .depths = {1, 4}, .seconds_each = 0.01};

TEST(DriveSweep, MeasuresEverySizeAtEveryDepth) {
  const TestFolder folder;
  const std::string path = folder.Write("data", RandomBytes(1 << 20, 1));
  const Result<DriveSweep> sweep = SweepDrive(path, 1 << 20, {}, kShort);
  ASSERT_TRUE(sweep.ok()) << sweep.status().message();
  ASSERT_EQ(sweep->scattered.size(), 6U);
  double fastest = 0;
  for (const SweepPoint& point : sweep->scattered) {
    EXPECT_GT(point.bytes_per_second, 0);
    fastest = std::max(fastest, point.bytes_per_second);
  }
  EXPECT_EQ(sweep->fastest.bytes_per_second, fastest);
  EXPECT_GE(sweep->best.bytes_per_second, 0.95 * fastest);
  EXPECT_LE(sweep->best.request_bytes, sweep->fastest.request_bytes);
  EXPECT_GT(sweep->sequential.bytes_per_second, 0);
  EXPECT_NE(sweep->queue, "");
}

TEST(DriveSweep, LeavesOutWhatTheFileIsTooSmallFor) {
  const TestFolder folder;
  const std::string path = folder.Write("data", RandomBytes(65536, 1));
  EXPECT_EQ(SweepDrive(path, 65536, {}, kShort)->scattered.size(), 4U);
  EXPECT_EQ(SweepDrive(folder.Write("tiny", "x"), 1, {}, kShort).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(SweepDrive(folder.Path("nothing"), 1, {}, kShort).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace nunspark
