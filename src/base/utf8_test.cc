#include "base/utf8.h"

#include <gtest/gtest.h>

namespace nunspark {
namespace {

TEST(Utf8, RepairsOneReplacementPerMaximalBadPart) {
  EXPECT_EQ(RepairUtf8("a\xF0\x9F\x98"
                       "b"),
            "a\xEF\xBF\xBD"
            "b");
  EXPECT_EQ(RepairUtf8("\xC0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(RepairUtf8("\xED\xA0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(RepairUtf8("\xF4\x90"), "\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(Utf8, CountsOnlySuffixesThatMoreBytesCanComplete) {
  const std::string emoji = "\xF0\x9F\x98\x80";
  EXPECT_EQ(IncompleteUtf8Suffix("ab"), 0u);
  EXPECT_EQ(IncompleteUtf8Suffix(emoji), 0u);
  for (size_t n = 1; n < 4; ++n) EXPECT_EQ(IncompleteUtf8Suffix("x" + emoji.substr(0, n)), n);
  EXPECT_EQ(IncompleteUtf8Suffix("\xF0\x28"), 0u);
  EXPECT_EQ(IncompleteUtf8Suffix("\x80\x80"), 0u);
}

TEST(Utf8, RoundTripsEveryScalarValue) {
  for (uint32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    AppendUtf8(c, text);
    const Utf8Char decoded = DecodeUtf8(text, 0);
    ASSERT_TRUE(decoded.valid && decoded.code_point == c && decoded.bytes == text.size()) << c;
  }
}

}  // namespace
}  // namespace nunspark
