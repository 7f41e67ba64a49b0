// Files that llama.cpp's own package wrote, read as its own reader reads them (tests/oracles/gguf_oracle.py).
#include <filesystem>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "base/read_file.h"
#include "formats/gguf_model.h"

namespace nunspark {
namespace {

const std::string kFolder = NUNSPARK_SOURCE_DIR "/tests/data/gguf/";

std::string Hex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<uint8_t>(byte));
  return text;
}

// Whether element `i` is what the oracle wrote as text.
bool Same(const GgufValue& value, size_t i, const std::string& text) {
  if (const auto bytes = value.Text(i); bytes.has_value()) return Hex(*bytes) == text;
  if (const auto flag = value.Bool(i); flag.has_value()) return text == (*flag ? "true" : "false");
  if (const auto number = value.Int(i); number.has_value()) return text == fmt::format("{}", *number);
  // Python prints a float as the double it is.
  const double exact = std::stod(text);
  return value.type() == GgufType::kF32 ? static_cast<float>(*value.Number(i)) == static_cast<float>(exact)
                                        : *value.Number(i) == exact;
}

void CompareKeys(const GgufFile& file, const Json& expected) {
  ASSERT_EQ(file.keys.size(), expected.as_array().size());
  for (size_t k = 0; k < file.keys.size(); ++k) {
    const Json& key = expected.as_array()[k];
    const Json::Array& values = key.Find("values")->as_array();
    EXPECT_EQ(file.keys[k].name, key.Find("name")->as_string());
    EXPECT_EQ(file.keys[k].value.TypeName(), key.Find("type")->as_string()) << file.keys[k].name;
    ASSERT_EQ(file.keys[k].value.size(), values.size()) << file.keys[k].name;
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_TRUE(Same(file.keys[k].value, i, values[i].as_string())) << file.keys[k].name << " " << i;
    }
  }
}

void CompareTensors(const GgufFile& file, const Json& expected) {
  ASSERT_EQ(file.tensors.size(), expected.as_array().size());
  for (size_t i = 0; i < file.tensors.size(); ++i) {
    const GgufTensor& tensor = file.tensors[i];
    const Json& want = expected.as_array()[i];
    EXPECT_EQ(tensor.name, want.Find("name")->as_string());
    EXPECT_EQ(tensor.type->name, want.Find("type")->as_string());
    EXPECT_EQ(tensor.offset, want.Find("offset")->as_int()) << tensor.name;
    EXPECT_EQ(tensor.bytes, want.Find("bytes")->as_int()) << tensor.name;
    Json::Array shape(tensor.shape.begin(), tensor.shape.end());
    EXPECT_EQ(Json(shape), *want.Find("shape")) << tensor.name;
  }
}

TEST(GgufOracle, FilesOfLlamaCppReadAsItsOwnReaderReadsThem) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    if (entry.path().extension() != ".json") continue;
    SCOPED_TRACE(entry.path().string());
    const std::string path = std::filesystem::path(entry.path()).replace_extension(".gguf").string();
    const Result<std::string> text = ReadRegularFile(entry.path().string(), {});
    ASSERT_TRUE(text.ok());
    const Json expected = ParseJson(*text, path).value();
    const Result<GgufFile> file = ReadGguf(path);
    ASSERT_TRUE(file.ok()) << file.status().message();
    CompareKeys(*file, *expected.Find("keys"));
    CompareTensors(*file, *expected.Find("tensors"));
    ++files;
  }
  EXPECT_EQ(files, 5);
}

TEST(GgufOracle, SplitFilesOfLlamaCppAreOneModel) {
  const Result<GgufModel> whole = OpenGgufModel(kFolder + "plain.gguf");
  const Result<GgufModel> split = OpenGgufModel(kFolder + "split-00002-of-00003.gguf");
  ASSERT_TRUE(whole.ok() && split.ok()) << whole.status().message() << split.status().message();
  EXPECT_EQ(split->paths.size(), 3U);
  ASSERT_EQ(split->tensors.tensors().size(), whole->tensors.tensors().size());
  for (const TensorInfo& tensor : whole->tensors.tensors()) {
    const TensorInfo* const other = split->tensors.Find(tensor.name);
    ASSERT_NE(other, nullptr) << tensor.name;
    EXPECT_EQ(other->shape, tensor.shape);
    EXPECT_EQ(other->dtype, tensor.dtype);
  }
}

TEST(GgufOracle, BigEndianFilesAreRefusedByName) {
  const Status status = ReadGguf(kFolder + "big_endian.gguf").status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), ::testing::HasSubstr("big-endian"));
}

}  // namespace
}  // namespace nunspark
