#include "decode/draft.h"

#include <gtest/gtest.h>

#include <string>

#include "base/json.h"
#include "base/read_file.h"

namespace nunspark {
namespace {

// Checklist item 58.
TEST(TreeShape, CountsNodesPathsAndLevels) {
  const std::string path = std::string(NUNSPARK_SOURCE_DIR) + "/tests/data/drafts/tree/shapes.json";
  const Json golden = ParseJson(ReadWholeFile(path).value(), path).value();
  ASSERT_FALSE(golden.Find("shapes")->as_array().empty());
  for (const Json& one : golden.Find("shapes")->as_array()) {
    std::vector<int32_t> branching;
    for (const Json& children : one.Find("branching")->as_array()) {
      branching.push_back(static_cast<int32_t>(children.as_int()));
    }
    const Result<TreeShape> shape = TreeShape::Create(branching);
    ASSERT_TRUE(shape.ok()) << shape.status().message();
    EXPECT_EQ(shape->nodes() + 1, one.Find("num_nodes")->as_int());
    EXPECT_EQ(shape->paths(), std::ssize(one.Find("leaves")->as_array()));
    EXPECT_EQ(shape->depth() + 1, one.Find("path_len")->as_int());
    EXPECT_EQ(shape->chain(), shape->paths() == 1);
  }
  EXPECT_EQ(TreeShape::Create({4, 2, 2, 1, 1})->nodes(), 60);
  EXPECT_EQ(TreeShape::Create({4, 2, 2, 1, 1})->paths(), 16);
}

TEST(TreeShape, RefusesLevelsThatMakeNoTree) {
  const auto refuse = [](std::vector<int32_t> branching, const std::string& part) {
    const Result<TreeShape> shape = TreeShape::Create(std::move(branching));
    ASSERT_FALSE(shape.ok()) << part;
    EXPECT_EQ(shape.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(shape.status().message().find(part), std::string::npos) << shape.status().message();
  };
  refuse({}, "at least one level");
  refuse({0}, "found 0");
  refuse({2, 0}, "found 0");
  refuse({-1}, "found -1");
  refuse({65}, "64 children, found 65");
  refuse({64, 64}, "1024 nodes");
  refuse({2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2}, "1024");
}

}  // namespace
}  // namespace nunspark
