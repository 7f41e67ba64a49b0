#include "text/tokenizer/gguf_vocab.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>

#include <fmt/format.h>

#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/gguf_pre.h"
#include "text/tokenizer/testing.h"

namespace nunspark::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TokensOf;

constexpr int32_t kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6;

// A vocabulary that owns its texts.
class Builder {
 public:
  Builder(std::string_view model, std::string_view pre) {
    vocab.model = model;
    vocab.pre = pre;
  }
  Builder& Token(std::string text, int32_t type = kNormal, float score = 0) {
    vocab.tokens.push_back(texts_.emplace_back(std::move(text)));
    vocab.token_types.push_back(type);
    vocab.scores.push_back(score);
    return *this;
  }
  Builder& Merge(std::string merge) {
    vocab.merges.push_back(texts_.emplace_back(std::move(merge)));
    return *this;
  }
  // The visible forms of all bytes.
  Builder& AllBytes() {
    for (int byte = 0; byte < 256; ++byte) {
      std::string visible;
      AppendByteLevel(std::string(1, static_cast<char>(byte)), visible);
      Token(visible);
    }
    return *this;
  }
  Builder& ByteTokens() {
    for (int byte = 0; byte < 256; ++byte) Token(fmt::format("<0x{:02X}>", byte), kByte);
    return *this;
  }
  std::unique_ptr<Tokenizer> Load() const {
    Result<std::unique_ptr<Tokenizer>> tokenizer = LoadGgufVocab(vocab, "test.gguf");
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    return tokenizer.ok() ? std::move(tokenizer).value() : nullptr;
  }
  std::string Error() const { return LoadGgufVocab(vocab, "test.gguf").status().message(); }

  GgufVocab vocab;

 private:
  std::deque<std::string> texts_;
};

Builder SmallLlama() {
  Builder builder("llama", "default");
  builder.Token("<unk>", kUnknown).Token("<s>", kControl).Token("</s>", kControl).ByteTokens();
  builder.Token("▁", kNormal, -5).Token("a", kNormal, -6).Token("b", kNormal, -7).Token("ab", kNormal, -1);
  builder.Token("▁a", kNormal, -3).Token("▁ab", kNormal, -2);
  return builder;
}

TEST(GgufVocab, ByteLevelTokensMergeByRankAfterTheFamilysCut) {
  Builder builder("gpt2", "smollm");
  builder.Token("<|im_start|>", kControl).AllBytes().Token("Ġa").Token("ab").Token("12");
  builder.Merge("Ġ a").Merge("a b").Merge("1 2");
  const auto tokenizer = builder.Load();
  EXPECT_THAT(TokensOf(*tokenizer, " ab12<|im_start|>"), ElementsAre("Ġa", "b", "1", "2", "<|im_start|>"));
  EXPECT_TRUE(tokenizer->IsSpecial(0));
  builder.vocab.pre = "gpt-2";  // which does not cut digits apart
  EXPECT_THAT(TokensOf(*builder.Load(), "12"), ElementsAre("12"));
}

TEST(GgufVocab, QwensTextsAreComposedFirst) {
  Builder builder("gpt2", "qwen2");
  builder.AllBytes().Token("Ã©");
  builder.Merge("Ã ©");
  EXPECT_THAT(TokensOf(*builder.Load(), "e\u0301"), ElementsAre("Ã©"));
  builder.vocab.pre = "dbrx";
  EXPECT_THAT(TokensOf(*builder.Load(), "e\u0301"), ElementsAre("e", "Ì", "ģ"));
}

TEST(GgufVocab, IdsThatOnlyFillTheTableAreNoTokens) {
  Builder builder("gpt2", "qwen2");
  builder.AllBytes().Token("[PAD256]", kUnused).Token("").Token("[PAD9]", kUnused).Merge("a b").Token("ab");
  const auto tokenizer = builder.Load();
  EXPECT_EQ(tokenizer->TokenText(256), "");
  EXPECT_EQ(tokenizer->FindToken("[PAD256]"), std::nullopt);
  EXPECT_EQ(tokenizer->FindToken("[PAD9]"), 258);  // the number is another
  EXPECT_EQ(tokenizer->vocab_size(), 260);
}

TEST(GgufVocab, ScoresBecomeMergesBestFirst) {
  const auto tokenizer = SmallLlama().Load();
  EXPECT_THAT(TokensOf(*tokenizer, "ab"), ElementsAre("▁ab"));
  EXPECT_THAT(TokensOf(*tokenizer, "a ba"), ElementsAre("▁a", "▁", "b", "a"));
  EXPECT_THAT(TokensOf(*tokenizer, "ä"), ElementsAre("▁", "<0xC3>", "<0xA4>"));
  EXPECT_THAT(TokensOf(*tokenizer, "a</s>a"), ElementsAre("▁a", "</s>", "▁a"));
  EXPECT_EQ(tokenizer->Decode(*tokenizer->Encode("ab ä", AddSpecials::kNo), SkipSpecials::kNo), "ab ä");
}

TEST(GgufVocab, WithoutASpacePrefixTextsStartAsTheyAre) {
  Builder builder = SmallLlama();
  builder.vocab.add_space_prefix = false;
  const auto tokenizer = builder.Load();
  EXPECT_THAT(TokensOf(*tokenizer, "ab"), ElementsAre("ab"));
  EXPECT_EQ(tokenizer->Decode(*tokenizer->Encode(" ab", AddSpecials::kNo), SkipSpecials::kNo), " ab");
}

TEST(GgufVocab, RunsOfSpacesThatTheFormatUnescapedMergeAgain) {
  Builder builder = SmallLlama();
  builder.vocab.add_space_prefix = false;
  builder.Token("  ", kUserDefined, -1000).Token("   ", kUserDefined, -1000).Token("    ", kUserDefined, -1000);
  const auto tokenizer = builder.Load();
  // All of them rank before "▁a", the longest left part first.
  EXPECT_THAT(TokensOf(*tokenizer, "    a"), ElementsAre("▁▁▁▁", "a"));
  EXPECT_THAT(TokensOf(*tokenizer, "  ab"), ElementsAre("▁▁", "ab"));
  EXPECT_THAT(TokensOf(*tokenizer, " ab"), ElementsAre("▁ab"));
}

TEST(GgufVocab, BosAndEosAreAddedAsTheFileSays) {
  Builder builder = SmallLlama();
  EXPECT_THAT(TokensOf(*builder.Load(), "ab", AddSpecials::kYes), ElementsAre("<s>", "▁ab"));
  builder.vocab.add_bos = false;
  builder.vocab.add_eos = true;
  builder.vocab.eos_id = 2;
  EXPECT_THAT(TokensOf(*builder.Load(), "ab", AddSpecials::kYes), ElementsAre("▁ab", "</s>"));
  builder.vocab.eos_id = 99999;
  EXPECT_THAT(builder.Error(), HasSubstr("tokenizer.ggml.eos_token_id, found id 99999"));
}

TEST(GgufVocab, LlamaThreeAddsItsBosByItself) {
  Builder builder("gpt2", "llama-bpe");
  builder.AllBytes().Token("ab").Token("<|begin_of_text|>", kControl).Merge("a b");
  builder.vocab.bos_id = 257;
  EXPECT_THAT(TokensOf(*builder.Load(), "ab", AddSpecials::kYes), ElementsAre("<|begin_of_text|>", "ab"));
  builder.vocab.add_bos = false;
  EXPECT_THAT(TokensOf(*builder.Load(), "ab", AddSpecials::kYes), ElementsAre("ab"));
}

TEST(GgufVocab, PhiThreesTokensSwallowTheSpaceBehindThem) {
  Builder builder = SmallLlama();
  builder.Token("<|end|>", kControl);
  EXPECT_THAT(TokensOf(*builder.Load(), "<|end|> a"), ElementsAre("<|end|>", "▁", "▁a"));
  builder.vocab.model_name = "Phi-3 mini";
  EXPECT_THAT(TokensOf(*builder.Load(), "<|end|> a"), ElementsAre("<|end|>", "▁a"));
}

TEST(GgufVocab, GemmaFoursWholeWordsMergeByTheFilesRanks) {
  Builder builder("gemma4", "");
  builder.Token("<unk>", kUnknown).ByteTokens().Token("▁").Token("a").Token("\n").Token("▁a").Token("\n\n");
  builder.Merge("▁ a").Merge("\n \n");
  EXPECT_THAT(TokensOf(*builder.Load(), "a a\n\n\x01"), ElementsAre("a", "▁a", "\n\n", "<0x01>"));
}

TEST(GgufVocab, UnigramTokensAreChosenByTheirSum) {
  Builder builder("t5", "");
  builder.Token("<pad>", kControl).Token("</s>", kControl).Token("<unk>", kUnknown).Token("▁", kNormal, -2);
  builder.Token("▁ab", kNormal, -1).Token("ab", kNormal, -5).Token("a", kNormal, -1).Token("b", kNormal, -1);
  const auto tokenizer = builder.Load();
  EXPECT_THAT(TokensOf(*tokenizer, "ab  ba", AddSpecials::kYes), ElementsAre("▁ab", "▁", "b", "a", "</s>"));
}

TEST(GgufVocab, EveryKnownNameCutsAndComesBack) {
  std::string names = KnownGgufPres() + ", ";
  constexpr std::string_view kText = "It's 1234 Wörter,  naïve\r\n\n 你好、カナ 가나다 ?! <x>_y\t- e\u0301  ";
  for (size_t end = names.find(", "); end != std::string::npos; end = names.find(", ")) {
    const std::string name = names.substr(0, end);
    names.erase(0, end + 2);
    SCOPED_TRACE(name);
    Builder builder("gpt2", name);
    if (FindGgufPre(name)->pipeline == GgufPipeline::kByteLevel) {
      builder.AllBytes().Token("It").Merge("I t");
    } else {
      builder.Token("<unk>", kUnknown).ByteTokens().Token("I").Token("t").Token("It").Token("▁").Merge("I t");
    }
    builder.vocab.add_bos = false;
    const auto tokenizer = builder.Load();
    ASSERT_NE(tokenizer, nullptr);
    const auto ids = tokenizer->Encode(kText, AddSpecials::kYes);
    ASSERT_TRUE(ids.ok()) << ids.status().message();
    EXPECT_EQ(tokenizer->TokenText(ids->front()), "It");
    const std::string composed = "It's 1234 Wörter,  naïve\r\n\n 你好、カナ 가나다 ?! <x>_y\t- é  ";
    const std::string back = tokenizer->Decode(*ids, SkipSpecials::kNo);
    EXPECT_TRUE(back == kText || back == composed) << back;
  }
}

TEST(GgufVocab, TheWrittenTokenizerJsonIsTheSameTokenizer) {
  Builder builder = SmallLlama();
  builder.Token("<|x|>", kControl).Token("\"q\\", kUserDefined);
  const Result<std::string> json = GgufTokenizerJson(builder.vocab, "test.gguf");
  ASSERT_TRUE(json.ok());
  const auto again = testing::LoadJsonText(*json);
  ASSERT_TRUE(again.ok()) << again.status().message();
  const auto tokenizer = builder.Load();
  for (const std::string_view text : {"", "ab ab", "a<|x|> b\"q\\", "\xFFä</s>"}) {
    EXPECT_EQ(*(*again)->Encode(text, AddSpecials::kYes), *tokenizer->Encode(text, AddSpecials::kYes)) << text;
  }
}

TEST(GgufVocab, ConfigHoldsSpecialTokensAndTemplates) {
  Builder builder = SmallLlama();
  builder.vocab.bos_id = 1;
  builder.vocab.padding_id = -1;
  builder.vocab.chat_templates = {{"default", "{{ messages }}"}};
  EXPECT_EQ(WriteJson(GgufTokenizerConfig(builder.vocab)), R"({"bos_token":"<s>","chat_template":"{{ messages }}"})");
  builder.vocab.chat_templates.push_back({"tool_use", "{{ tools }}"});
  EXPECT_EQ(WriteJson(*GgufTokenizerConfig(builder.vocab).Find("chat_template")),
            R"([{"name":"default","template":"{{ messages }}"},{"name":"tool_use","template":"{{ tools }}"}])");
}

TEST(GgufVocab, WhatIsNotKnownIsRefusedByName) {
  Builder builder("gpt2", "no-such-model");
  builder.AllBytes().Merge("a b");
  EXPECT_THAT(builder.Error(), HasSubstr("not known for 'no-such-model'; known are: llama-bpe, "));
  builder.vocab.pre = "";
  EXPECT_THAT(builder.Error(), HasSubstr("not known for ''"));
  builder.vocab.pre = "smollm starcoder";  // two names of one row are no name
  EXPECT_THAT(builder.Error(), HasSubstr("not known for 'smollm starcoder'"));
  builder.vocab.model = "bert";
  EXPECT_THAT(builder.Error(), HasSubstr("knows gpt2, llama, t5 and gemma4, not 'bert'"));
}

TEST(GgufVocab, VocabulariesThatContradictThemselvesAreRefused) {
  EXPECT_THAT(Builder("gpt2", "qwen2").Error(), HasSubstr("tokenizer.ggml.tokens: expected 1 to"));
  Builder twice = SmallLlama();
  EXPECT_THAT(twice.Token("ab").Error(), HasSubstr("expected a new text, found that of token 262"));
  Builder bytes = SmallLlama();
  EXPECT_THAT(bytes.Token("\xFF").Error(), HasSubstr("expected UTF-8 of at most 4096 bytes, found other bytes"));
  Builder types = SmallLlama();
  types.vocab.token_types.pop_back();
  EXPECT_THAT(types.Error(), HasSubstr("tokenizer.ggml.token_type: expected one for each of 265 tokens, found 264"));
  Builder scores = SmallLlama();
  scores.vocab.scores.clear();
  EXPECT_THAT(scores.Error(), HasSubstr("tokenizer.ggml.scores: expected one for each of 265 tokens, found 0"));
  Builder infinite = SmallLlama();
  infinite.vocab.scores[7] = std::numeric_limits<float>::infinity();
  EXPECT_THAT(infinite.Error(), HasSubstr("tokenizer.ggml.scores[7]: expected a finite number"));
  Builder merge("gpt2", "qwen2");
  EXPECT_THAT(merge.AllBytes().Error(), HasSubstr("tokenizer.ggml.merges: expected merges, found none"));
  EXPECT_THAT(merge.Merge("ab").Error(), HasSubstr("tokenizer.ggml.merges[0]: expected two tokens with a space"));
  Builder product("gpt2", "qwen2");
  EXPECT_THAT(product.AllBytes().Merge("a b").Error(), HasSubstr("expected its product in the vocabulary"));
}

}  // namespace
}  // namespace nunspark::text
