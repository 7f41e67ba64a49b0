// Tokenizer files that would make the work quadratic in the text, or the text explode: what is not refused when the
// file is read ends in an error while it is used, and what is legal but odd stays linear.
#include <gtest/gtest.h>

#include <cstring>

#include <fmt/format.h>

#include "text/tokenizer/base64.h"
#include "text/tokenizer/gguf_vocab.h"
#include "text/tokenizer/testing.h"
#include "text/tokenizer/tokenize_lines.h"

namespace nunspark::text {
namespace {

using testing::BpeModel;
using testing::JsonOf;
using testing::LoadJsonText;
using testing::Parts;
using testing::TokensOf;
using Texts = std::vector<std::string>;

std::string Letters(size_t count, char letter = 'a') { return std::string(count, letter); }

// What becomes of encoding `text`: "" or the error's message.
std::string EncodeError(const Result<std::unique_ptr<PipelineTokenizer>>& tokenizer, std::string_view text) {
  if (!tokenizer.ok()) return "not loaded: " + tokenizer.status().message();
  const Status status = (*tokenizer)->Encode(text, AddSpecials::kNo).status();
  EXPECT_TRUE(status.ok() || status.code() == StatusCode::kResourceExhausted);
  return status.message();
}

constexpr std::string_view kTooMuch =
    "the text takes too much work: the tokenizer file has tokens, patterns or replacements that no real one has";

TEST(Hostile, LongTokensThatAlmostMatchEverywhere) {
  const std::string almost = Letters(100000) + "b";
  EXPECT_EQ(EncodeError(LoadJsonText(JsonOf(
                            {.model = R"({"type":"Unigram","vocab":[["a",-1],[")" + almost + R"(",-1]],"unk_id":0})"})),
                        Letters(100000)),
            kTooMuch);
  EXPECT_EQ(EncodeError(LoadJsonText(JsonOf({.added_tokens = R"([{"content":")" + almost + R"("}])",
                                             .model = BpeModel({"a", "b"}, {})})),
                        Letters(100000)),
            kTooMuch);
  // A long token by itself is no crime.
  EXPECT_EQ(EncodeError(LoadJsonText(JsonOf({.added_tokens = R"([{"content":")" + almost + R"("}])",
                                             .model = BpeModel({"a", "b"}, {})})),
                        almost + almost + Letters(5000)),
            "");
}

TEST(Hostile, TokensThatSwallowTheSpaceThatTheyAre) {
  const auto tokenizer =
      LoadJsonText(JsonOf({.added_tokens = R"([{"content":" ","lstrip":true,"rstrip":true,"normalized":false}])",
                           .model = BpeModel({"a", " "}, {})}));
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ(TokensOf(**tokenizer, "a  a"), (Texts{"a", " ", "a"}));
  const auto ids = (*tokenizer)->Encode("a" + Letters(1000000, ' ') + "a", AddSpecials::kNo);
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(*ids, (std::vector<TokenId>{0, 1, 0}));
}

TEST(Hostile, MarksInTheWrongOrder) {
  const auto tokenizer =
      LoadJsonText(JsonOf({.normalizer = R"({"type":"NFD"})", .model = BpeModel({"a", "\u0316", "\u0301"}, {})}));
  ASSERT_TRUE(tokenizer.ok());
  constexpr size_t kPairs = 200000;
  std::string text = "a";
  for (size_t i = 0; i < kPairs; ++i) text += "\u0301\u0316";  // above, below
  const auto ids = (*tokenizer)->Encode(text, AddSpecials::kNo);
  ASSERT_TRUE(ids.ok());
  std::vector<TokenId> expected{0};
  expected.insert(expected.end(), kPairs, 1);
  expected.insert(expected.end(), kPairs, 2);
  EXPECT_EQ(*ids, expected);
}

TEST(Hostile, NormalizersThatMakeTextsExplode) {
  const auto with_normalizer = [](const std::string& normalizer) {
    return LoadJsonText(JsonOf({.normalizer = normalizer,
                                .added_tokens = R"([{"content":"<x>","normalized":false}])",
                                .model = BpeModel({"a", "b"}, {})}));
  };
  std::string doubling = R"({"type":"Sequence","normalizers":[)";
  for (int i = 0; i < 40; ++i) {
    doubling += fmt::format(R"({}{{"type":"Replace","pattern":{{"String":"a"}},"content":"aa"}})", i == 0 ? "" : ",");
  }
  EXPECT_EQ(EncodeError(with_normalizer(doubling + "]}"), "a"), kTooMuch);
  EXPECT_EQ(EncodeError(with_normalizer(R"({"type":"Replace","pattern":{"String":"a"},"content":")" +
                                        Letters(10000000, 'b') + R"("})"),
                        Letters(100)),
            kTooMuch);
  // Once for every text between added tokens.
  std::string parts;
  for (int i = 0; i < 10000; ++i) parts += "a<x>";
  EXPECT_EQ(EncodeError(with_normalizer(R"({"type":"Prepend","prepend":")" + Letters(60000, 'b') + R"("})"), parts),
            kTooMuch);
}

TEST(Hostile, CharacterMapsThatGoRoundInCircles) {
  // A trie of one state that takes any number of letters a, and says each time that they become a megabyte.
  std::string units(98 * sizeof(uint32_t), '\0');
  const uint32_t unit = 'a' | 1u << 8 | static_cast<uint32_t>('a') << 10;
  std::memcpy(units.data() + 'a' * sizeof(unit), &unit, sizeof(unit));
  const uint32_t bytes = static_cast<uint32_t>(units.size());
  std::string blob(sizeof(bytes), '\0');
  std::memcpy(blob.data(), &bytes, sizeof(bytes));
  blob += units + Letters(1 << 20, 'b');
  const auto tokenizer = LoadJsonText(
      JsonOf({.normalizer = R"({"type":"Precompiled","precompiled_charsmap":")" + EncodeBase64(blob) + R"("})",
              .model = BpeModel({"a", "b"}, {})}));
  EXPECT_EQ(EncodeError(tokenizer, "ab"), "");
  EXPECT_EQ((*tokenizer)->Encode("ab", AddSpecials::kNo)->size(), (size_t{1} << 20) + 1);
  EXPECT_EQ(EncodeError(tokenizer, Letters(100000)), kTooMuch);
}

TEST(Hostile, PatternsThatLookAtAllOfTheRestEachTime) {
  EXPECT_EQ(EncodeError(LoadJsonText(JsonOf({.pre_tokenizer = R"({"type":"Split","pattern":{"Regex":"a+b|a"},
                                             "behavior":"Isolated","invert":false})",
                                             .model = BpeModel({"a", "b"}, {})})),
                        Letters(2000000)),
            kTooMuch);
}

TEST(Hostile, BytesThatAreMappedAgainAndAgain) {
  std::string steps = R"({"type":"Sequence","pretokenizers":[)";
  for (int i = 0; i < 64; ++i) {
    steps += fmt::format(R"({}{{"type":"ByteLevel","add_prefix_space":false,"use_regex":false}})", i == 0 ? "" : ",");
  }
  EXPECT_EQ(EncodeError(LoadJsonText(JsonOf({.pre_tokenizer = steps + "]}", .model = BpeModel({"a", "b"}, {})})), "é"),
            kTooMuch);
}

TEST(Hostile, DecodersThatMakeTokensExplode) {
  std::string doubling = R"({"type":"Sequence","decoders":[)";
  for (int i = 0; i < 40; ++i) {
    doubling += fmt::format(R"({}{{"type":"Replace","pattern":{{"String":"a"}},"content":"aa"}})", i == 0 ? "" : ",");
  }
  const auto tokenizer = LoadJsonText(JsonOf({.decoder = doubling + "]}", .model = BpeModel({"a"}, {})}));
  ASSERT_TRUE(tokenizer.ok());
  const std::string text = (*tokenizer)->Decode(std::vector<TokenId>{0}, SkipSpecials::kNo);
  EXPECT_GE(text.size(), size_t{1} << 18);
  EXPECT_LE(text.size(), size_t{1} << 22);
  EXPECT_EQ(text.find_first_not_of('a'), std::string::npos);
}

TEST(Hostile, TokensOfNothingButWhatIsStripped) {
  const auto tokenizer = LoadJsonText(
      JsonOf({.decoder = R"({"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"b"},"content":"a"},
                      {"type":"Strip","content":"a","start":1,"stop":1000000000}]})",
              .model = BpeModel({"a", "b", Letters(300000, 'b'), "caabac"}, {})}));
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ((*tokenizer)->Decode(std::vector<TokenId>{2, 3, 2}, SkipSpecials::kNo), "caaaac");
}

TEST(Hostile, TemplatesThatRepeatTheText) {
  std::string items = R"({"Sequence":{"id":"A","type_id":0}})";
  for (int i = 0; i < 8; ++i) items += R"(,{"Sequence":{"id":"A","type_id":0}})";
  const auto tokenizer = LoadJsonText(JsonOf(
      {.post_processor = R"({"type":"TemplateProcessing","single":[)" + items + R"(],"pair":[],"special_tokens":{}})",
       .model = BpeModel({"a"}, {})}));
  EXPECT_EQ(tokenizer.status().message(), "test.json: post_processor: single: more than 8 texts");
}

TEST(Hostile, MergesThatComeTwice) {
  EXPECT_EQ(LoadJsonText(R"({"model":{"vocab":{"a":0},"merges":[],"merges":[]}})").status().message(),
            "test.json: model.merges: expected once, found twice");
}

// 20 texts of 4096 bytes: more to cut than is allowed.
Texts LongTexts() {
  Texts texts;
  for (char last = 'a'; last < 'a' + 20; ++last) texts.push_back(Letters(4095) + last);
  return texts;
}

TEST(Hostile, LongTokensThatAreCutEverywhere) {
  const Texts texts = LongTexts();
  GgufVocab vocab;
  vocab.model = "llama";
  vocab.tokens = {"<unk>", "a"};
  for (const std::string& text : texts) vocab.tokens.push_back(text);
  vocab.token_types.assign(vocab.tokens.size(), static_cast<int32_t>(GgufVocab::TokenType::kNormal));
  vocab.scores.assign(vocab.tokens.size(), -1);
  vocab.add_bos = false;
  const std::string_view expected = ": expected tokens whose lengths squared add up to 268435456 at most, found more";
  EXPECT_EQ(LoadGgufVocab(vocab, "test.gguf").status().message(),
            "test.gguf: tokenizer.ggml.tokens[17]" + std::string(expected));
  vocab.tokens.resize(10);
  vocab.token_types.resize(10);
  vocab.scores.resize(10);
  EXPECT_TRUE(LoadGgufVocab(vocab, "test.gguf").ok());

  std::string ranks;
  for (int byte = 0; byte < 256; ++byte) {
    ranks += fmt::format("{} {}\n", EncodeBase64(std::string(1, static_cast<char>(byte))), byte);
  }
  for (size_t i = 0; i < texts.size(); ++i) ranks += fmt::format("{} {}\n", EncodeBase64(texts[i]), 256 + i);
  EXPECT_EQ(LoadTiktoken(ranks, "ranks", {}, "").status().message(), "ranks: rank 271" + std::string(expected));
}

TEST(Hostile, AnswersThatRepeatALongToken) {
  const auto tokenizer =
      LoadJsonText(JsonOf({.decoder = R"({"type":"Fuse"})", .model = BpeModel({"a", Letters(10000000)}, {})}));
  ASSERT_TRUE(tokenizer.ok());
  std::string ids = "1";
  for (int i = 0; i < 60; ++i) ids += ",1";
  EXPECT_EQ(TokenizeLine(**tokenizer, "{\"ids\":[" + ids + "]}"),
            R"({"error":{"type":"resource_exhausted","message":"the answer would be longer than 536870912 bytes"}})");
}

}  // namespace
}  // namespace nunspark::text
