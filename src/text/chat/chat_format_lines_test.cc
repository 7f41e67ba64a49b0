#include "text/chat/chat_format_lines.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace nunspark::text {
namespace {

constexpr CivilTime kNow{2026, 7, 4, 15, 9, 26};

// A folder of its own for each test, removed with it.
class ChatFolderTest : public testing::Test {
 protected:
  ChatFolderTest() {
    folder_ = testing::TempDir() + "chat_folder_" + std::to_string(getpid()) + "_" +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~ChatFolderTest() override { std::filesystem::remove_all(folder_); }
  void Write(const std::string& name, std::string_view text) {
    std::filesystem::create_directories(std::filesystem::path(folder_ + "/" + name).parent_path());
    std::ofstream(folder_ + "/" + name, std::ios::binary) << text;
  }
  std::string Answer(std::string_view line) {
    auto lines = ChatFormatLines::Open(folder_, kNow);
    EXPECT_TRUE(lines.ok()) << lines.status().message();
    return lines.ok() ? (*lines)->Answer(line) : "";
  }
  std::string folder_;
};

using ChatFormatLinesTest = ChatFolderTest;
using ChatModelFiles = ChatFolderTest;

TEST_F(ChatFormatLinesTest, UsesTheFoldersTemplateAndTokens) {
  Write(
      "tokenizer_config.json",
      R"({"chat_template": "{{ bos_token }}{{ m }}{{ eos_token }}", "bos_token": "<b>", "eos_token": {"content": "<e>"}})");
  EXPECT_EQ(Answer(R"({"context": {"m": "hi"}})"), R"({"output": "<b>hi<e>"})");
  EXPECT_EQ(Answer(R"({"context": {"m": "hi", "bos_token": "mine"}})"), R"({"output": "minehi<e>"})");
  EXPECT_EQ(Answer(R"({"context": {"m": 1}, "template": "{{ m }}{{ bos_token }}\n"})"), R"({"output": "1<b>"})");
}

TEST_F(ChatFormatLinesTest, ToolsChooseTheTemplateOfThatName) {
  Write("chat_template.jinja", "plain");
  Write("additional_chat_templates/tool_use.jinja", "{{ tools }}");
  EXPECT_EQ(Answer(R"({"context": {"tools": null}})"), R"({"output": "plain"})");
  EXPECT_EQ(Answer(R"({"context": {"tools": [1]}})"), R"({"output": "[1]"})");
}

TEST_F(ChatFormatLinesTest, AnswersErrorsAndGoesOn) {
  auto lines = ChatFormatLines::Open("", kNow);
  ASSERT_TRUE(lines.ok());
  EXPECT_EQ((*lines)->Answer(R"({"context": {}, "template": "{{ raise_exception('no \"x\"') }}"})"),
            R"({"error": {"type": "TemplateError", "message": "no \"x\""}})");
  EXPECT_EQ((*lines)->Answer(R"({"context": {}, "template": "{{ a.b }}"})"),
            R"({"error": {"type": "UndefinedError", "message": "'a' is undefined"}})");
  EXPECT_NE((*lines)->Answer("not json").find(R"("type": "JSONDecodeError")"), std::string::npos);
  EXPECT_NE((*lines)->Answer("[]").find(R"("type": "InvalidRequest")"), std::string::npos);
  EXPECT_NE((*lines)->Answer(R"({"context": {}})").find("needs a \\\"template\\\""), std::string::npos);
  EXPECT_NE((*lines)->Answer(R"({"context": {}, "template": 5})").find("InvalidRequest"), std::string::npos);
  EXPECT_NE((*lines)->Answer(R"({"context": {}, "template": "{% if %}"})").find("TemplateSyntaxError"),
            std::string::npos);
  EXPECT_EQ((*lines)->Answer(R"({"context": {"b": 12345678901234567890}, "template": "{{ b }}"})"),
            R"({"output": "12345678901234567890"})");
  EXPECT_EQ((*lines)->Answer(R"({"context": {}, "template": "{{ strftime_now('%d %b %Y') }}"})"),
            R"({"output": "04 Jul 2026"})");
}

TEST_F(ChatFormatLinesTest, AMissingFolderIsAnErrorAMissingTemplateOnlyWhenNeeded) {
  auto missing = ChatFormatLines::Open(folder_ + "/none", kNow);
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.status().code(), StatusCode::kNotFound);
  EXPECT_NE(Answer(R"({"context": {}})").find("no chat template"), std::string::npos);
  EXPECT_EQ(Answer(R"({"context": {}, "template": "x"})"), R"({"output": "x"})");
}

TEST_F(ChatModelFiles, TheJinjaFileComesFirst) {
  Write("tokenizer_config.json", R"({"chat_template": "config"})");
  EXPECT_EQ(*LoadChatTemplateSource(folder_), "config");
  Write("chat_template.json", R"({"chat_template": "json"})");
  EXPECT_EQ(*LoadChatTemplateSource(folder_), "json");
  Write("chat_template.jinja", "jinja\n");
  EXPECT_EQ(*LoadChatTemplateSource(folder_), "jinja\n");
}

TEST_F(ChatModelFiles, ATemplateIsChosenByName) {
  Write("tokenizer_config.json",
        R"({"chat_template": [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]})");
  EXPECT_EQ(*LoadChatTemplateSource(folder_), "d");
  EXPECT_EQ(*LoadChatTemplateSource(folder_, "default"), "d");
  EXPECT_EQ(*LoadChatTemplateSource(folder_, "tool_use"), "t");
  const auto unknown = LoadChatTemplateSource(folder_, "rag");
  EXPECT_EQ(unknown.status().code(), StatusCode::kNotFound);
  EXPECT_NE(unknown.status().message().find("there are: default, tool_use"), std::string::npos);
  Write("additional_chat_templates/rag.jinja", "r");
  EXPECT_EQ(*LoadChatTemplateSource(folder_, "rag"), "r");
  EXPECT_EQ(LoadChatTemplateSource(folder_, "../x").status().code(), StatusCode::kInvalidArgument);
}

TEST_F(ChatModelFiles, MalformedFilesAreDataLoss) {
  EXPECT_EQ(LoadChatTemplateSource(folder_).status().code(), StatusCode::kNotFound);
  for (const char* text : {"{", "[]", R"({"chat_template": 5})", R"({"chat_template": [{"name": "default"}]})"}) {
    Write("tokenizer_config.json", text);
    EXPECT_EQ(LoadChatTemplateSource(folder_).status().code(), StatusCode::kDataLoss) << text;
  }
}

TEST_F(ChatModelFiles, SpecialTokensAreStringsOrObjects) {
  Write("special_tokens_map.json",
        R"({"bos_token": "<old>", "pad_token": {"content": "<p>"}, "additional_special_tokens": ["a"]})");
  Write(
      "tokenizer_config.json",
      R"({"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false}, "unk_token": null, "add_bos_token": true})");
  const auto tokens = LoadSpecialTokens(folder_);
  ASSERT_TRUE(tokens.ok());
  EXPECT_EQ(WriteJson(*tokens), R"({"bos_token":"<s>","pad_token":"<p>","eos_token":"</s>"})");
  EXPECT_EQ(WriteJson(*LoadSpecialTokens(folder_ + "/none")), "{}");
}

TEST(ChatTime, ReadsDatesWithAndWithoutTime) {
  const auto time = ParseCivilTime("2026-07-04 15:09:26");
  ASSERT_TRUE(time.ok());
  EXPECT_EQ(time->hour, 15);
  EXPECT_EQ(time->second, 26);
  EXPECT_EQ(ParseCivilTime("2024-02-29T00:00:00")->day, 29);
  EXPECT_EQ(ParseCivilTime("2026-07-04")->minute, 0);
  for (const char* text : {"", "now", "2026-13-01", "2023-02-29", "2026-07-04 25:00:00", "2026-07-04 1", "2026-07-04x",
                           "2026-07-04 15:09:26 "}) {
    EXPECT_EQ(ParseCivilTime(text).status().code(), StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace nunspark::text
