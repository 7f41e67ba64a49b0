#include "text/stop_strings.h"

#include <gtest/gtest.h>

#include <random>

namespace nunspark::text {
namespace {

// All that comes out when the text comes in pieces of these sizes, one after the other.
std::string Delivered(const std::vector<std::string>& stops, const std::string& text,
                      const std::vector<size_t>& sizes) {
  StopStrings stream(stops);
  std::string out;
  for (size_t at = 0, i = 0; at < text.size(); at += sizes[i++ % sizes.size()]) {
    out += stream.Push(text.substr(at, sizes[i % sizes.size()]));
  }
  return out + stream.Finish();
}

// Checklist items 62 to 64.
TEST(StopStrings, EndTheTextBeforeTheFirstMatch) {
  EXPECT_EQ(Delivered({"END"}, "one END two", {1}), "one ");
  EXPECT_EQ(Delivered({"END", ""}, "one EN D two", {1}), "one EN D two");
  EXPECT_EQ(Delivered({}, "one", {2}), "one");
  EXPECT_EQ(Delivered({"\n\n", "x"}, "a\n\nx", {3}), "a");
  EXPECT_EQ(Delivered({"abcd", "bc"}, "zabcd", {5}), "za");
  EXPECT_EQ(Delivered({"aab"}, "aaaab", {1}), "aa");
  EXPECT_EQ(Delivered({"STOP"}, "text STO", {3}), "text STO");
}

TEST(StopStrings, HoldBackOnlyWhatCouldBecomeAMatch) {
  StopStrings stream({"<end>"});
  EXPECT_EQ(stream.Push("a < b"), "a < b");
  EXPECT_EQ(stream.Push(" <e"), " ");
  EXPECT_EQ(stream.Push("x"), "<ex");
  EXPECT_EQ(stream.Push("<en"), "");
  EXPECT_FALSE(stream.matched());
  EXPECT_EQ(stream.Push("d> more"), "");
  ASSERT_TRUE(stream.matched());
  EXPECT_EQ(stream.match(), "<end>");
  EXPECT_EQ(stream.Push("more"), "");
  EXPECT_EQ(stream.Finish(), "");
}

TEST(StopStrings, PiecesLeaveNoTraceAndNoMatchIsMissed) {
  std::mt19937 random(3);
  const auto pick = [&random](int most) { return static_cast<size_t>(random() % static_cast<unsigned>(most)); };
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> stops(1 + pick(3));
    for (std::string& stop : stops) {
      for (size_t n = 1 + pick(4); n > 0; --n) stop += static_cast<char>('a' + pick(2));
    }
    std::string text;
    for (size_t n = pick(30); n > 0; --n) text += static_cast<char>('a' + pick(3));
    std::vector<size_t> sizes(5);
    for (size_t& size : sizes) size = 1 + pick(4);
    size_t first_end = text.size() + 1, want = text.size();
    for (const std::string& stop : stops) {
      const size_t at = text.find(stop);
      if (at == std::string::npos || at + stop.size() > first_end) continue;
      want = at + stop.size() == first_end ? std::min(want, at) : at;
      first_end = at + stop.size();
    }
    for (const std::vector<size_t>& pieces : {std::vector<size_t>{1}, sizes, {100}}) {
      EXPECT_EQ(Delivered(stops, text, pieces), text.substr(0, want)) << text;
    }
  }
}

}  // namespace
}  // namespace nunspark::text
