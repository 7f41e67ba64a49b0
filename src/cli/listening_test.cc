#include "cli/listening.h"

#include <gtest/gtest.h>

namespace nunspark::cli {
namespace {

TEST(Listening, AddressesOfTheNewKindStandInBrackets) {
  EXPECT_EQ(AddressOf("127.0.0.1", 8080), "http://127.0.0.1:8080");
  EXPECT_EQ(AddressOf("::1", 8080), "http://[::1]:8080");
}

}  // namespace
}  // namespace nunspark::cli
