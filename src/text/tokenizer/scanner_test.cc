#include "text/tokenizer/scanner.h"

#include <gtest/gtest.h>

#include <random>

#include "base/json.h"
#include "base/utf8.h"
#include "text/tokenizer/regex.h"

namespace nunspark::text {
namespace {

// Characters that the patterns tell apart, and random ones of every plane.
std::string RandomText(std::mt19937& random) {
  static const std::vector<std::string> kParts = {
      " ",      "  ",         "\t",         "\n",         "\r\n", "\u00a0", "\u3000", "\u0085", "\u2028", "'",
      "'s",     "'LL",        "'ſ",         "'Re",        "a",    "Bc",     "XYZ",    "é",      "ǅ",      "ʰ",
      "ª",      "中",         "文字",       "ひ",         "カ",   "한",     "ㄱ",     "ㄅ",     "\u0301", "\u0903",
      "\u20dd", "1",          "42",         "Ⅷ",          "½",    "٣",      "!",      "…",      "“",      "—",
      "、",     "/",          "//",         "$",          "+",    "€",      "_",      "😀",      "\u200d", "\u200b",
      "\u0001", "\U000323af", "\U00011de0", "\U0010ffff", "︰",   "\u303f", "ー"};
  std::string text;
  const int count = static_cast<int>(random() % 20);
  for (int i = 0; i < count; ++i) {
    if (random() % 8 == 0) {
      uint32_t c = static_cast<uint32_t>(random() % 0x110000);
      if (c >= 0xD800 && c < 0xE000) c = 'x';
      AppendUtf8(c, text);
    } else {
      text += kParts[random() % kParts.size()];
    }
  }
  return text;
}

TEST(Scanner, MatchesWhatTheRegularExpressionMatches) {
  std::mt19937 random(20261130);
  for (const std::string_view pattern : ScannerPatterns()) {
    const Scanner scanner = FindScanner(pattern);
    ASSERT_NE(scanner, nullptr);
    const Result<Regex> regex = Regex::Compile(pattern, "test");
    ASSERT_TRUE(regex.ok()) << regex.status().message();
    for (int i = 0; i < 3000; ++i) {
      const std::string text = RandomText(random);
      std::vector<Span> scanned;
      std::vector<Span> matched;
      const Span whole{0, static_cast<uint32_t>(text.size())};
      scanner(text, whole, scanned);
      WorkLimit work;
      ASSERT_TRUE(regex->FindMatches(text, whole, work, matched).ok());
      ASSERT_EQ(scanned.size(), matched.size()) << pattern << "\n" << JsonQuote(text);
      for (size_t k = 0; k < scanned.size(); ++k) {
        ASSERT_TRUE(scanned[k] == matched[k]) << pattern << "\n" << JsonQuote(text) << " match " << k;
      }
    }
  }
}

TEST(Scanner, SeesThePieceAsTheWholeText) {
  const std::string text = "ab  cd";
  std::vector<Span> matches;
  Gpt2Scanner()(text, {1, 4}, matches);  // "b  ": the spaces are at its end
  ASSERT_EQ(matches.size(), 2u);
  EXPECT_TRUE((matches[1] == Span{2, 4}));
}

TEST(Scanner, UnknownPatternsHaveNone) { EXPECT_EQ(FindScanner(R"(\p{L}+)"), nullptr); }

}  // namespace
}  // namespace nunspark::text
