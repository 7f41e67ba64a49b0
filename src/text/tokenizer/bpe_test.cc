#include "text/tokenizer/bpe.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <thread>

#include "text/tokenizer/double_array.h"
#include "text/tokenizer/testing.h"

namespace nunspark::text {
namespace {

using testing::BpeModel;
using testing::JsonOf;
using testing::LoadJsonText;
using testing::Parts;
using testing::TokensOf;
using Texts = std::vector<std::string>;

// A random vocabulary over a, b, c and "▁", and its rules.
struct RandomBpe {
  Vocabulary keys;
  std::vector<MergeRule> rules;

  explicit RandomBpe(std::mt19937& random) {
    for (const char* text : {"a", "b", "c", "▁"}) keys.Insert(text, keys.id_end());
    for (uint32_t rank = 0; rank < 25; ++rank) {
      const TokenId left = static_cast<TokenId>(random() % static_cast<size_t>(keys.id_end()));
      const TokenId right = static_cast<TokenId>(random() % static_cast<size_t>(keys.id_end()));
      const std::string text = std::string(keys.Text(left)) + std::string(keys.Text(right));
      TokenId result = keys.Find(text);
      if (result == kNoToken) keys.Insert(text, result = keys.id_end());
      rules.push_back({left, right, result, rank});
    }
  }
};

// The definition: again and again the lowest rank, the leftmost of equals.
std::vector<TokenId> Naive(const RandomBpe& bpe, std::string_view text) {
  std::vector<TokenId> ids;
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = text[at] < 0 ? 3 : 1;
    ids.push_back(bpe.keys.Find(text.substr(at, bytes)));
    at += bytes;
  }
  std::map<std::pair<TokenId, TokenId>, const MergeRule*> rules;
  for (const MergeRule& rule : bpe.rules) rules[{rule.left, rule.right}] = &rule;
  for (;;) {
    const MergeRule* best = nullptr;
    size_t place = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto rule = rules.find({ids[i], ids[i + 1]});
      if (rule != rules.end() && (best == nullptr || rule->second->rank < best->rank)) {
        best = rule->second;
        place = i;
      }
    }
    if (best == nullptr) return ids;
    ids[place] = best->result;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(place) + 1);
  }
}

TEST(Bpe, MergesAsTheDefinitionDoes) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const RandomBpe random_bpe(random);
    BpeOptions options;
    options.unknown = 0;  // never needed; lets the text be cut where no rule reaches across
    const Bpe bpe(random_bpe.keys, random_bpe.rules, options);
    const size_t length = random() % (round % 3 == 0 ? 300 : 30);
    std::string text;
    for (size_t i = 0; i < length; ++i) text += std::array<const char*, 4>{"a", "b", "c", "▁"}[random() % 4];
    std::vector<TokenId> ids;
    EncodeScratch scratch;
    const Span whole{0, static_cast<uint32_t>(text.size())};
    ASSERT_TRUE(bpe.Encode(text, {&whole, 1}, scratch, ids).ok());
    ASSERT_EQ(ids, Naive(random_bpe, text)) << text;
  }
}

TEST(Bpe, AMillionEqualCharactersTakeNoQuadraticTime) {
  const auto tokenizer =
      LoadJsonText(JsonOf({.model = BpeModel({"a", "aa", "aaaa", "aaa"}, {"a a", "aa aa", "aa a"})}));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  const auto ids = (*tokenizer)->Encode(std::string(1000003, 'a'), AddSpecials::kNo);
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(ids->size(), 250001u);
  EXPECT_EQ(ids->front(), 2);
  EXPECT_EQ(ids->back(), 3);
}

TEST(Bpe, UnknownCharactersFallBackFuseOrVanish) {
  const auto tokens = [](const std::string& options, std::string_view text) {
    const auto tokenizer = LoadJsonText(JsonOf({.model = BpeModel({"<unk>", "a", "<0xC3>", "<0xA9>"}, {}, options)}));
    return tokenizer.ok() ? TokensOf(**tokenizer, text) : Texts{tokenizer.status().message()};
  };
  EXPECT_EQ(tokens("", "axya"), (Texts{"a", "a"}));
  EXPECT_EQ(tokens(R"(,"unk_token":"<unk>")", "axya"), (Texts{"a", "<unk>", "<unk>", "a"}));
  EXPECT_EQ(tokens(R"(,"unk_token":"<unk>","fuse_unk":true)", "axya"), (Texts{"a", "<unk>", "a"}));
  EXPECT_EQ(tokens(R"(,"unk_token":"<unk>","byte_fallback":true)", "éx"), (Texts{"<0xC3>", "<0xA9>", "<unk>"}));
  EXPECT_EQ(tokens(R"(,"unk_token":"<none>")", "a"), (Texts{"a"}));
  EXPECT_EQ(tokens(R"(,"unk_token":"<none>")", "x")[0].substr(0, 6), "error:");
}

TEST(Bpe, WholePiecesWinWhenMergesAreIgnored) {
  const auto tokens = [](const std::string& options) {
    const auto tokenizer =
        LoadJsonText(JsonOf({.model = BpeModel({"a", "b", "c", "ab", "bc", "abc"}, {"b c", "a b"}, options)}));
    return TokensOf(**tokenizer, "abc");
  };
  EXPECT_EQ(tokens(""), (Texts{"a", "bc"}));
  EXPECT_EQ(tokens(R"(,"ignore_merges":true)"), (Texts{"abc"}));
}

TEST(Bpe, AffixesBelongToTheKeys) {
  const auto tokenizer =
      LoadJsonText(JsonOf({.model = BpeModel({"a", "##b", "##c</w>", "##bc</w>"}, {"##b ##c</w>"},
                                             R"(,"continuing_subword_prefix":"##","end_of_word_suffix":"</w>")")}));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ(TokensOf(**tokenizer, "abc"), (Texts{"a", "##bc</w>"}));
}

TEST(Bpe, ThreadsShareOneTokenizer) {
  const auto tokenizer = LoadJsonText(JsonOf({.model = BpeModel({"a", "b", "ab", "abab", " "}, {"a b", "ab ab"})}));
  ASSERT_TRUE(tokenizer.ok());
  const std::vector<TokenId> expected = *(*tokenizer)->Encode("abab ab a", AddSpecials::kNo);
  std::vector<std::thread> threads;
  std::array<bool, 4> equal{};
  for (size_t i = 0; i < equal.size(); ++i) {
    threads.emplace_back([&, i] {
      bool all = true;
      for (int round = 0; round < 500; ++round)
        all = all && *(*tokenizer)->Encode("abab ab a", AddSpecials::kNo) == expected;
      equal[i] = all;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const bool one : equal) EXPECT_TRUE(one);
}

TEST(Vocabulary, LastIdOfATextAndFirstTextOfAnIdCount) {
  Vocabulary vocabulary;
  vocabulary.Insert("a", 3);
  vocabulary.Insert("b", 3);
  vocabulary.Insert("a", 5);
  EXPECT_EQ(vocabulary.Find("a"), 5);
  EXPECT_EQ(vocabulary.Find("b"), 3);
  EXPECT_EQ(vocabulary.Text(3), "a");
  EXPECT_EQ(vocabulary.Text(5), "a");
  EXPECT_EQ(vocabulary.Text(4), "");
  EXPECT_EQ(vocabulary.size(), 2u);
  EXPECT_EQ(vocabulary.id_end(), 6);
  EXPECT_EQ(vocabulary.Find("c"), kNoToken);
}

TEST(DoubleArray, FindsWhatAMapFinds) {
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    std::map<std::string, int32_t> map;
    while (map.size() < 200) {
      std::string key;
      for (size_t i = 0, n = 1 + random() % 6; i < n; ++i)
        key += static_cast<char>(random() % (round % 2 == 0 ? 3 : 256));
      map.emplace(key, static_cast<int32_t>(map.size()));
    }
    std::vector<DoubleArray::Key> keys;
    for (const auto& [key, value] : map) keys.push_back({key, value});
    DoubleArray trie;
    trie.Build(keys);
    for (int i = 0; i < 200; ++i) {
      std::string text;
      for (int k = 0; k < 8; ++k) text += static_cast<char>(random() % (round % 2 == 0 ? 3 : 256));
      std::vector<std::pair<size_t, int32_t>> expected;
      for (size_t n = 1; n <= text.size(); ++n) {
        const auto it = map.find(text.substr(0, n));
        if (it != map.end()) expected.emplace_back(n, it->second);
      }
      std::vector<std::pair<size_t, int32_t>> found;
      trie.FindPrefixes(text, [&](size_t bytes, int32_t value) { found.emplace_back(bytes, value); });
      ASSERT_EQ(found, expected);
    }
  }
}

}  // namespace
}  // namespace nunspark::text
