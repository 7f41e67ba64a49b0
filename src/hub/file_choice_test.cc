#include "hub/file_choice.h"

#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nunspark {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

std::vector<NamedSize> Files(std::initializer_list<const char*> names) {
  std::vector<NamedSize> files;
  for (const char* name : names) files.push_back({.name = name, .bytes = 1000});
  return files;
}

std::vector<std::string> Chosen(const std::vector<NamedSize>& files, std::string_view wanted = "") {
  const Result<FileChoice> choice = ChooseFiles(files, wanted);
  EXPECT_TRUE(choice.ok()) << choice.status().message();
  std::vector<std::string> names;
  if (choice.ok()) {
    for (const size_t i : choice->files) names.push_back(files[i].name);
  }
  return names;
}

TEST(FileChoice, TakesWhatACheckpointNeedsAndNothingElse) {
  EXPECT_THAT(Chosen(Files({"README.md", ".gitattributes", "config.json", "model-00001-of-00002.safetensors",
                            "model-00002-of-00002.safetensors", "model.safetensors.index.json", "model.safetensors",
                            "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "pytorch_model.bin",
                            "onnx/model.onnx", "original/model-00001-of-00001.safetensors", "original/config.json",
                            "consolidated.safetensors", "qwen.tiktoken", "training_args.bin", "model-q4.gguf"})),
              UnorderedElementsAre("config.json", "model-00001-of-00002.safetensors",
                                   "model-00002-of-00002.safetensors", "model.safetensors.index.json", "tokenizer.json",
                                   "tokenizer_config.json", "chat_template.jinja", "qwen.tiktoken"));
}

TEST(FileChoice, TheSingleFileIsTheModelWhereNoIndexSaysOtherwise) {
  EXPECT_THAT(Chosen(Files({"config.json", "model.safetensors", "model-fp32.safetensors"})),
              ElementsAre("config.json", "model.safetensors"));
}

TEST(FileChoice, OneGgufModelIsTakenManyAreListed) {
  EXPECT_THAT(Chosen(Files({"README.md", "x-Q8_0.gguf", "mmproj-x.gguf", "x.imatrix.gguf"})),
              ElementsAre("x-Q8_0.gguf"));
  const std::vector<NamedSize> files = Files({"x-Q4_K_M.gguf", "x-Q4_K_S.gguf", "x-Q8_0.gguf"});
  const Status status = ChooseFiles(files, "").status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("x-Q4_K_M.gguf"), HasSubstr("x-Q8_0.gguf"), HasSubstr("1.0 KB")));
  EXPECT_THAT(Chosen(files, "q4_k_m"), ElementsAre("x-Q4_K_M.gguf"));
  EXPECT_THAT(Chosen(files, "x-Q8_0.gguf"), ElementsAre("x-Q8_0.gguf"));
  EXPECT_THAT(Chosen(files, "*Q8*"), ElementsAre("x-Q8_0.gguf"));
  EXPECT_EQ(ChooseFiles(files, "*Q4*").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ChooseFiles(files, "Q4_K").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(ChooseFiles(files, "Q2").status().code(), StatusCode::kNotFound);
}

TEST(FileChoice, ShardsOfOneGgufModelBelongTogether) {
  const std::vector<NamedSize> files =
      Files({"Q4/x-Q4-00002-of-00002.gguf", "Q4/x-Q4-00001-of-00002.gguf", "Q8/x-Q8-00001-of-00002.gguf"});
  EXPECT_THAT(Chosen(files, "Q4"), ElementsAre("Q4/x-Q4-00001-of-00002.gguf", "Q4/x-Q4-00002-of-00002.gguf"));
  EXPECT_THAT(Chosen(files, "Q4/x-Q4-00002-of-00002.gguf"),
              ElementsAre("Q4/x-Q4-00001-of-00002.gguf", "Q4/x-Q4-00002-of-00002.gguf"));
  EXPECT_EQ(files[static_cast<size_t>(ChooseFiles(files, "Q4")->model)].name, "Q4/x-Q4-00001-of-00002.gguf");
  EXPECT_THAT(ChooseFiles(files, "Q8").status().message(), HasSubstr("shards of Q8/x-Q8-00001-of-00002.gguf"));
}

TEST(FileChoice, SaysWhatARepositoryHasInsteadOfWeightsThatAreRead) {
  EXPECT_THAT(ChooseFiles(Files({"config.json", "pytorch_model.bin"}), "").status().message(), HasSubstr(".bin"));
  EXPECT_THAT(ChooseFiles(Files({"README.md"}), "").status().message(), HasSubstr("no weights at all"));
  EXPECT_FALSE(ChooseFiles({}, "").ok());
}

TEST(FileChoice, ACheckpointIsWholeWhenAllItsNumbersAreThere) {
  EXPECT_TRUE(IsWholeCheckpoint(Files({"config.json", "model.safetensors"})));
  EXPECT_FALSE(IsWholeCheckpoint(Files({"model.safetensors"})));
  EXPECT_FALSE(IsWholeCheckpoint(Files({"config.json", "tokenizer.json"})));
  EXPECT_FALSE(IsWholeCheckpoint(Files({"config.json", "model-00001-of-00002.safetensors"})));
  EXPECT_TRUE(IsWholeCheckpoint(
      Files({"config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"})));
}

}  // namespace
}  // namespace nunspark
