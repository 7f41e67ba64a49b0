#include "text/tokenizer/regex.h"

#include <gtest/gtest.h>

#include "base/utf8.h"
#include "text/unicode/unicode.h"

namespace nunspark::text {
namespace {

std::vector<std::string> MatchesOf(std::string_view pattern, std::string_view text) {
  const Result<Regex> regex = Regex::Compile(pattern, "test");
  if (!regex.ok()) return {regex.status().message()};
  std::vector<Span> spans;
  WorkLimit work;
  const Status status = regex->FindMatches(text, {0, static_cast<uint32_t>(text.size())}, work, spans);
  if (!status.ok()) return {status.message()};
  std::vector<std::string> matches;
  for (const Span& span : spans) matches.emplace_back(text.substr(span.begin, span.end - span.begin));
  return matches;
}

using Texts = std::vector<std::string>;

TEST(Regex, ClassesAreThoseOfUnicode16) {
  EXPECT_EQ(MatchesOf(R"(\p{Lu}+)", "aA\u1C89b"), (Texts{"A\u1C89"}));            // a capital of Unicode 16
  EXPECT_EQ(MatchesOf(R"([\p{Nd}x]+)", "1\U00010D40y"), (Texts{"1\U00010D40"}));  // a digit of Unicode 16
  EXPECT_EQ(MatchesOf(R"(\p{^L}+)", "ab1!"), (Texts{"1!"}));
  EXPECT_EQ(MatchesOf(R"(\P{L}+)", "ab1!"), (Texts{"1!"}));
  EXPECT_EQ(MatchesOf(R"([^\s\p{L}]+)", "a 1! b"), (Texts{"1!"}));
  EXPECT_EQ(MatchesOf(R"([\p{L}&&[^\p{Han}]]+)", "a漢b"), (Texts{"a", "b"}));
  EXPECT_EQ(MatchesOf(R"([[:alpha:]]+)", "a1ⓐ"), (Texts{"a", "ⓐ"}));
}

TEST(Regex, SuperscriptsAreWordCharactersOutsideBracketsOnly) {
  EXPECT_EQ(MatchesOf(R"(\w)", "=²"), (Texts{"²"}));
  EXPECT_EQ(MatchesOf(R"([\w])", "=²"), (Texts{}));
  EXPECT_EQ(MatchesOf(R"(\W)", "=²"), (Texts{"="}));
}

TEST(Regex, PropertiesDoNotFoldCaseButBracketsDo) {
  EXPECT_EQ(MatchesOf(R"((?i:\p{Lu}))", "aB"), (Texts{"B"}));
  EXPECT_EQ(MatchesOf(R"((?i:[\p{Lu}]))", "aB"), (Texts{"a", "B"}));
}

TEST(Regex, LettersOfUnicode16FoldTheirCase) {
  EXPECT_EQ(MatchesOf(R"((?i)[\p{Lu}]+)", "\u019B\uA7DC1\U00010D70"), (Texts{"\u019B\uA7DC", "\U00010D70"}));
  EXPECT_EQ(MatchesOf(R"((?i)[^\p{Lu}]+)", "\u019B\uA7DC1"), (Texts{"1"}));
  EXPECT_EQ(MatchesOf(R"((?i)[\P{Lu}]+)", "\u019B\uA7DC1"), (Texts{"\u019B\uA7DC1"}));
  EXPECT_EQ(MatchesOf("(?i:\u019B)", "\uA7DC\u019B"), (Texts{"\uA7DC", "\u019B"}));
  EXPECT_EQ(MatchesOf(R"([\p{Lu}]+)", "\u019B\uA7DC"), (Texts{"\uA7DC"}));
}

TEST(Regex, EmptyMatchesDoNotFollowAMatch) {
  EXPECT_EQ(MatchesOf("x*", "abxxc").size(), 4u);  // before a, before b, xx, at the end
}

TEST(Regex, BadPatternsNameTheField) {
  for (const char* pattern : {"(", "[a", "a\\", "\\p{L", "\\p{Nonsense}", "(?<n>a)(?<", "*"}) {
    const Result<Regex> regex = Regex::Compile(pattern, "file: field");
    ASSERT_FALSE(regex.ok()) << pattern;
    EXPECT_EQ(regex.status().code(), StatusCode::kDataLoss);
    EXPECT_TRUE(regex.status().message().starts_with("file: field: ")) << regex.status().message();
  }
  EXPECT_FALSE(Regex::Compile(std::string(100000, 'a'), "x").ok());
}

TEST(Regex, EndlessBacktrackingIsAnError) {
  const Result<Regex> regex = Regex::Compile("(a|aa)+c", "test");
  ASSERT_TRUE(regex.ok());
  const std::string text = std::string(200, 'a') + "bc";
  std::vector<Span> matches;
  WorkLimit work;
  const Status status = regex->FindMatches(text, {0, 202}, work, matches);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
}

// Steps of nested repeats are so dear that counting them bounds nothing: here processor time does.
TEST(Regex, NestedRepeatsEnd) {
  const Result<Regex> regex = Regex::Compile("((((a{1,1000}){1,1000}){1,1000}){1,1000})b", "test");
  ASSERT_TRUE(regex.ok());
  const std::string text(100'000, 'a');
  std::vector<Span> matches;
  WorkLimit work(text.size());
  const Status status = regex->FindMatches(text, {0, static_cast<uint32_t>(text.size())}, work, matches);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
}

TEST(Regex, BacktrackingOfAllSearchesCountsTogether) {
  const Result<Regex> regex = Regex::Compile("x|(?:a|aa)+c", "test");
  ASSERT_TRUE(regex.ok());
  // Each search tries some ten thousand ways before it finds the x.
  std::string text;
  for (int i = 0; i < 100000; ++i) text += "aaaaaaaaaaaaaaax";
  const Span whole{0, static_cast<uint32_t>(text.size())};
  std::vector<Span> matches;
  WorkLimit enough = WorkLimit::OfSteps(uint64_t{1} << 40);
  ASSERT_TRUE(regex->FindMatches(text.substr(0, 1600), {0, 1600}, enough, matches).ok());
  EXPECT_EQ(matches.size(), 100u);
  matches.clear();
  WorkLimit work = WorkLimit::OfSteps(1'000'000);
  const Status status = regex->FindMatches(text, whole, work, matches);
  EXPECT_EQ(status.message(), "test: the regular expression failed on the text: retry-limit-in-match over");
  EXPECT_LT(matches.size(), 1000u);
}

TEST(Unicode, LowercaseIsFull) {
  std::string out;
  for (const uint32_t c : {uint32_t{'A'}, 0x130u, 0x1E9Eu, 0x10400u, 0x1C89u, uint32_t{'1'}}) AppendLowercase(c, out);
  EXPECT_EQ(out, "ai\u0307ß\U00010428\u1C8A1");
}

TEST(Unicode, GraphemesFollowTheRules) {
  const auto count = [](std::string_view text) {
    int clusters = 0;
    for (size_t at = 0; at < text.size(); at = NextGrapheme(text, at)) ++clusters;
    return clusters;
  };
  EXPECT_EQ(count("ab"), 2);
  EXPECT_EQ(count("e\u0301"), 1);
  EXPECT_EQ(count("\r\n"), 1);
  EXPECT_EQ(count("\n\u0301"), 2);
  EXPECT_EQ(count("👩\u200d👩\u200d👧"), 1);
  EXPECT_EQ(count("🇩🇪🇫🇷🇮"), 3);
  EXPECT_EQ(count("각각"), 2);
  EXPECT_EQ(count("क्\u200dष"), 1);  // conjunct
  EXPECT_EQ(count("क\u200dष"), 2);
  EXPECT_EQ(count("\u0600a"), 1);  // prepend
}

TEST(Unicode, WordCharactersAreThoseOfTheRegexCrate) {
  EXPECT_TRUE(IsWordCharacter('_') && IsWordCharacter(0x200D) && IsWordCharacter(0x24B6) && IsWordCharacter(0x301));
  EXPECT_FALSE(IsWordCharacter(0xB2) || IsWordCharacter('-') || IsWordCharacter(0x2070));
}

TEST(Unicode, RangesCoverExactlyTheirSet) {
  const UnicodeTable& table = UnicodeTable::Get();
  std::vector<bool> in(kCodePointLimit, false);
  for (const CodePointRange& range : RangesOf(kPunctuation)) {
    for (uint32_t c = range.first; c <= range.last; ++c) in[c] = true;
  }
  for (uint32_t c = 0; c < kCodePointLimit; ++c) ASSERT_EQ(in[c], table.In(c, kPunctuation)) << c;
}

}  // namespace
}  // namespace nunspark::text
