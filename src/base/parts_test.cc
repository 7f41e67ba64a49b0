#include "base/parts.h"

#include <gtest/gtest.h>

namespace nunspark {
namespace {

using Parts = std::vector<std::string_view>;

TEST(Parts, AreOneMoreThanSeparators) {
  EXPECT_EQ(SplitAt("a,,b", ','), (Parts{"a", "", "b"}));
  EXPECT_EQ(SplitAt("a,", ','), (Parts{"a", ""}));
  EXPECT_EQ(SplitAt("", ','), (Parts{""}));
}

TEST(Parts, SlashesAtTheEndBelongToNoName) {
  EXPECT_EQ(WithoutEndSlashes("/a/b//"), "/a/b");
  EXPECT_EQ(WithoutEndSlashes("//"), "/");
  EXPECT_EQ(LastPathPart("/a/b//"), "b");
  EXPECT_EQ(LastPathPart("b"), "b");
  EXPECT_EQ(LastPathPart("/"), "");
}

}  // namespace
}  // namespace nunspark
