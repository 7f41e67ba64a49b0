#include "formats/gguf_vocab.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/gguf_testing.h"
#include "io/test_folder.h"

namespace nunspark {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

GgufBuilder Vocab() {
  GgufBuilder builder;
  builder.Text("general.name", "Test 1B").Text("tokenizer.ggml.model", "gpt2").Text("tokenizer.ggml.pre", "qwen2");
  builder.Texts("tokenizer.ggml.tokens", {"a", "b", "ab", "<s>"});
  builder.Numbers<int32_t>("tokenizer.ggml.token_type", {1, 1, 1, 3});
  builder.Numbers<float>("tokenizer.ggml.scores", {0, -0.1F, -2, -3});
  builder.Texts("tokenizer.ggml.merges", {"a b"});
  builder.U32("tokenizer.ggml.bos_token_id", 3).U32("tokenizer.ggml.eos_token_id", 2);
  builder.U32("tokenizer.ggml.padding_token_id", 0xFFFFFFFFU).Number<int32_t>("tokenizer.ggml.unknown_token_id", -1);
  builder.Flag("tokenizer.ggml.add_bos_token", true).Flag("tokenizer.ggml.add_eos_token", false);
  builder.Text("tokenizer.chat_template", "{{ x }}").Text("tokenizer.chat_template.tool_use", "{{ y }}");
  builder.Numbers<uint8_t>("tokenizer.ggml.precompiled_charsmap", {1, 0, 255});
  return builder;
}

Status VocabStatus(const GgufBuilder& builder) {
  const std::string bytes = builder.Bytes();
  const Result<GgufFile> file = ParseGguf(bytes, static_cast<int64_t>(bytes.size()), "v.gguf");
  return file.ok() ? GgufVocabOf(*file).status() : file.status();
}

TEST(GgufVocab, ReadsWhatTheFileSays) {
  const TestFolder folder;
  Result<GgufVocabFile> read = ReadGgufVocab(folder.Write("v.gguf", Vocab().Bytes()));
  ASSERT_TRUE(read.ok()) << read.status().message();
  const GgufVocabFile moved = std::move(read).value();  // texts stay valid
  const GgufVocab& vocab = moved.vocab;
  EXPECT_EQ(vocab.model, "gpt2");
  EXPECT_EQ(vocab.pre, "qwen2");
  EXPECT_EQ(vocab.model_name, "Test 1B");
  EXPECT_THAT(vocab.tokens, ElementsAre("a", "b", "ab", "<s>"));
  EXPECT_THAT(vocab.token_types, ElementsAre(1, 1, 1, 3));
  EXPECT_THAT(vocab.scores, ElementsAre(0, -0.1F, -2, -3));
  EXPECT_THAT(vocab.merges, ElementsAre("a b"));
  EXPECT_EQ(vocab.bos_id, 3);
  EXPECT_EQ(vocab.eos_id, 2);
  EXPECT_EQ(vocab.pad_id, std::nullopt);
  EXPECT_EQ(vocab.unk_id, std::nullopt);
  EXPECT_EQ(vocab.add_bos, true);
  EXPECT_EQ(vocab.add_eos, false);
  EXPECT_EQ(vocab.add_space_prefix, std::nullopt);
  EXPECT_EQ(vocab.chat_template, "{{ x }}");
  EXPECT_THAT(vocab.named_chat_templates, ElementsAre(Pair("tool_use", "{{ y }}")));
  EXPECT_EQ(vocab.precompiled_charsmap, std::string_view("\1\0\xff", 3));
}

TEST(GgufVocab, WrongKeysAreRefused) {
  GgufBuilder none;
  none.Text("tokenizer.ggml.model", "gpt2");
  EXPECT_EQ(VocabStatus(none).code(), StatusCode::kNotFound);
  const auto refused = [](auto add, const char* message) {
    GgufBuilder builder;
    builder.Texts("tokenizer.ggml.tokens", {"a", "b"});
    add(builder);
    const Status status = VocabStatus(builder);
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_THAT(status.message(), AllOf(HasSubstr("v.gguf: key \"tokenizer."), HasSubstr(message)));
  };
  refused([](auto& b) { b.template Numbers<float>("tokenizer.ggml.scores", {1}); },
          "scores\": expected 2 items, as many as in tokenizer.ggml.tokens, found 1");
  refused([](auto& b) { b.template Numbers<int32_t>("tokenizer.ggml.token_type", {1, 1, 1}); }, "expected 2 items");
  refused(
      [](auto& b) {
        b.template Numbers<uint32_t>("tokenizer.ggml.token_type", {1, 1});
      },
      "expected an array of i32, found array of u32");
  refused([](auto& b) { b.template Numbers<double>("tokenizer.ggml.scores", {1, 1}); }, "expected an array of f32");
  refused([](auto& b) { b.Text("tokenizer.ggml.merges", "a b"); }, "expected an array of strings, found string");
  refused([](auto& b) { b.U32("tokenizer.ggml.model", 1); }, "expected a string, found u32");
  refused([](auto& b) { b.U32("tokenizer.ggml.add_bos_token", 1); }, "expected a bool, found u32");
  refused([](auto& b) { b.F32("tokenizer.ggml.bos_token_id", 1); }, "expected a token id, found f32");
  refused([](auto& b) { b.Text("tokenizer.ggml.eos_token_id", "1"); }, "expected a token id, found string");
  refused([](auto& b) { b.Flag("tokenizer.chat_template.x", true); }, "expected a string, found bool");
  refused([](auto& b) { b.Texts("tokenizer.ggml.precompiled_charsmap", {"x"}); }, "expected an array of bytes");
  GgufBuilder wrong;
  wrong.Numbers<int32_t>("tokenizer.ggml.tokens", {1});
  EXPECT_THAT(VocabStatus(wrong).message(), HasSubstr("expected an array of strings, found array of i32"));
}

std::vector<int32_t> EndIds(const std::vector<std::string>& tokens, const std::vector<int32_t>& types = {},
                            std::initializer_list<std::pair<const char*, uint32_t>> ids = {}) {
  GgufBuilder builder;
  builder.Texts("tokenizer.ggml.tokens", tokens);
  if (!types.empty()) builder.Numbers("tokenizer.ggml.token_type", types);
  for (const auto& [name, id] : ids) builder.U32("tokenizer.ggml." + std::string(name) + "_token_id", id);
  const std::string bytes = builder.Bytes();
  return GgufEndIds(*ParseGguf(bytes, static_cast<int64_t>(bytes.size()), "v.gguf"));
}

TEST(GgufEndIds, AreThoseOfTheKeysAndKnownTexts) {
  EXPECT_THAT(EndIds({"a", "b", "c", "d"}), IsEmpty());
  EXPECT_THAT(EndIds({"a", "b", "c", "d"}, {}, {{"eos", 2}, {"eot", 1}, {"eom", 3}, {"bos", 0}}), ElementsAre(1, 2, 3));
  EXPECT_THAT(EndIds({"a", "<|im_end|>", "<|endoftext|>", "<|im_start|>"}, {}, {{"eos", 1}}), ElementsAre(1, 2));
  EXPECT_THAT(EndIds({"<eos>", "<end_of_turn>", "<|eot_id|>", "<|eom_id|>"}), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(EndIds({"a"}, {}, {{"eos", 1}, {"eot", 0xFFFFFFFFU}}), IsEmpty());  // outside the vocabulary
}

TEST(GgufEndIds, ASlashSInAngleBracketsIsAWordUnlessItIsAControlToken) {
  EXPECT_THAT(EndIds({"a", "</s>"}, {1, 3}), ElementsAre(1));
  EXPECT_THAT(EndIds({"a", "</s>"}, {1, 4}), IsEmpty());
  EXPECT_THAT(EndIds({"a", "</s>"}), IsEmpty());
  EXPECT_THAT(EndIds({"a", "</s>"}, {}, {{"eos", 1}}), ElementsAre(1));
}

TEST(GgufEndIds, MessagesInsideAnAnswerDoNotEndIt) {
  EXPECT_THAT(EndIds({"<|end|>", "<|return|>", "<|call|>"}), ElementsAre(1, 2));
  EXPECT_THAT(EndIds({"<|end|>", "<|flush|>", "<|calls|>"}), ElementsAre(1, 2));
  EXPECT_THAT(EndIds({"<|end|>", "<|return|>"}), ElementsAre(0, 1));
}

}  // namespace
}  // namespace nunspark
