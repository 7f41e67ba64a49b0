#include "engine/model_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "formats/gguf_testing.h"
#include "io/test_folder.h"
#include "nunspark/engine.h"

namespace nunspark {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Bytes 0x21 to 0x7e stand for themselves in byte-level vocabularies; that is enough for these texts.
GgufBuilder SmallModel() {
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  for (char c = '!'; c <= '~'; ++c) tokens.emplace_back(1, c);
  tokens.insert(tokens.end(), {"ab", "<|end|>"});
  types.assign(tokens.size() - 1, 1);
  types.push_back(3);
  GgufBuilder builder;
  builder.Text("general.architecture", "llama");
  builder.Text("tokenizer.ggml.model", "gpt2").Text("tokenizer.ggml.pre", "gpt-2");
  builder.Texts("tokenizer.ggml.tokens", tokens).Numbers("tokenizer.ggml.token_type", types);
  builder.Texts("tokenizer.ggml.merges", {"a b"}).U32("tokenizer.ggml.eos_token_id", 95);
  builder.Text("tokenizer.chat_template", "{{ messages }}{{ eos_token }}");
  return builder;
}

std::vector<int32_t> Encode(const std::string& path, std::string_view text) {
  const auto tokenizer = OpenTokenizer(path);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return tokenizer.ok() ? *(*tokenizer)->Encode(text, text::AddSpecials::kNo) : std::vector<int32_t>();
}

TEST(ModelText, AGgufFileHasItsOwnTokenizerAndTemplate) {
  const TestFolder folder;
  const std::string path = folder.Write("m.gguf", SmallModel().Bytes());
  EXPECT_THAT(Encode(path, "abc<|end|>"), ElementsAre(94, 66, 95));
  const auto chat = OpenChatSource(path);
  ASSERT_TRUE(chat.ok());
  EXPECT_EQ(chat->standard, "{{ messages }}{{ eos_token }}");
  EXPECT_EQ(WriteJson(chat->special_tokens), R"({"eos_token":"<|end|>"})");
}

TEST(ModelText, AFolderWithoutTextFilesHasThoseOfItsGgufModel) {
  const TestFolder folder;
  folder.Write("m.gguf", SmallModel().Bytes());
  EXPECT_THAT(Encode(folder.path(), "ab"), ElementsAre(94));
  EXPECT_EQ(OpenChatSource(folder.path())->standard, "{{ messages }}{{ eos_token }}");
}

TEST(ModelText, AFoldersOwnFilesComeFirstButAFileSpeaksForItself) {
  const TestFolder folder;
  const std::string path = folder.Write("m.gguf", SmallModel().Bytes());
  folder.Write("tokenizer.json", R"({"model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":[]}})");
  folder.Write("chat_template.jinja", "own");
  EXPECT_THAT(Encode(folder.path(), "ab"), ElementsAre(0, 1));
  EXPECT_EQ(OpenChatSource(folder.path())->standard, "own");
  EXPECT_THAT(Encode(path, "ab"), ElementsAre(94));
  EXPECT_EQ(OpenChatSource(path)->standard, "{{ messages }}{{ eos_token }}");
}

TEST(ModelText, TheFilesOfAPackSayTheSame) {
  const TestFolder folder;
  const std::string path = folder.Write("m.gguf", SmallModel().Bytes());
  const auto files = ReadGgufTextFiles(path);
  ASSERT_TRUE(files.ok()) << files.status().message();
  const TestFolder pack;
  for (const auto& [name, content] : *files) pack.Write(name, content);
  for (const std::string_view text : {"ab", "xaabb<|end|>ab", ""})
    EXPECT_EQ(Encode(pack.path(), text), Encode(path, text));
  EXPECT_EQ(OpenChatSource(pack.path())->standard, OpenChatSource(path)->standard);
  EXPECT_EQ(OpenChatSource(pack.path())->special_tokens, OpenChatSource(path)->special_tokens);
}

TEST(ModelText, ContextsWithToolsHaveTheirOwnTemplate) {
  const TestFolder folder;
  const std::filesystem::path model = std::filesystem::path(NUNSPARK_SOURCE_DIR) / "tests/data/goldens/llama";
  std::filesystem::copy(model, folder.path(), std::filesystem::copy_options::recursive);
  folder.Write("tokenizer_config.json", R"({"chat_template": [{"name": "default", "template": "plain"},
      {"name": "tool_use", "template": "{{ tools|length }} tools"}]})");
  const auto files = ModelFiles::Open(folder.path());
  ASSERT_TRUE(files.ok()) << files.status().message();
  EXPECT_EQ(*(*files)->FormatChat("{}"), "plain");
  EXPECT_EQ(*(*files)->FormatChat(R"({"tools": null})"), "plain");
  EXPECT_EQ(*(*files)->FormatChat(R"({"tools": []})"), "0 tools");
  EXPECT_EQ(*(*files)->FormatChat(R"({"tools": [1]})"), "1 tools");
}

TEST(ModelText, IntegersOfAChatContextStayExact) {
  const TestFolder folder;
  const std::filesystem::path model = std::filesystem::path(NUNSPARK_SOURCE_DIR) / "tests/data/goldens/llama";
  std::filesystem::copy(model, folder.path(), std::filesystem::copy_options::recursive);
  folder.Write("chat_template.jinja", "{{ n + 1 }} {{ eos_token }}");
  folder.Write("tokenizer_config.json", R"({"eos_token": {"content": "<e>"}})");
  const auto files = ModelFiles::Open(folder.path());
  ASSERT_TRUE(files.ok()) << files.status().message();
  EXPECT_EQ(*(*files)->FormatChat(R"({"n": 98765432109876543210})"), "98765432109876543211 <e>");
  EXPECT_EQ((*files)->FormatChat("[]").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ((*files)->FormatChat("{").status().code(), StatusCode::kInvalidArgument);
}

TEST(ModelText, WhatIsMissingOrWrongIsSaid) {
  const TestFolder folder;
  EXPECT_EQ(OpenTokenizer(folder.path()).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(OpenChatSource(folder.path())->status.code(), StatusCode::kNotFound);
  EXPECT_EQ(OpenTokenizer(folder.Path("none.gguf")).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(OpenChatSource(folder.Path("none")).status().code(), StatusCode::kNotFound);
  const std::string path = folder.Write("m.gguf", GgufBuilder().Text("general.architecture", "llama").Bytes());
  EXPECT_EQ(OpenTokenizer(path).status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(ReadGgufTextFiles(path)->empty());
  folder.Write("m.gguf", SmallModel().Text("tokenizer.ggml.unused", "x").Bytes().substr(0, 40));
  EXPECT_EQ(OpenTokenizer(path).status().code(), StatusCode::kDataLoss);
}

}  // namespace
}  // namespace nunspark
