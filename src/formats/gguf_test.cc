#include "formats/gguf.h"

#include <malloc.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/sanitized_testing.h"
#include "formats/gguf_testing.h"
#include "io/test_folder.h"

namespace nunspark {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<GgufFile> Parse(std::string_view bytes) {
  return ParseGguf(bytes, static_cast<int64_t>(bytes.size()), "model.gguf");
}
Status Parsed(std::string_view bytes) { return Parse(bytes).status(); }
Status Parsed(const GgufBuilder& builder) { return Parsed(builder.Bytes()); }

// One of everything.
GgufBuilder Small() {
  GgufBuilder builder;
  builder.Text("general.architecture", "llama")
      .U32("general.alignment", 32)
      .F32("eps", 1e-6F)
      .Flag("flag", true)
      .Numbers<int32_t>("numbers", {-1, 2, 3})
      .Texts("words", {"a", "", "longer"})
      .Floats("norm", {3}, {1, 2, 3})
      .Zeros("blocks", "Q4_0", {2, 64})
      .Zeros("cube", "F16", {2, 3, 5});
  return builder;
}

TEST(Gguf, ReadsKeysAndTensors) {
  const std::string bytes = Small().Bytes();
  const Result<GgufFile> file = Parse(bytes);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->source.path, "model.gguf");
  EXPECT_EQ(file->source.bytes, static_cast<int64_t>(bytes.size()));
  EXPECT_EQ(file->keys.size(), 6U);
  EXPECT_EQ(file->Find("general.architecture")->Text(), "llama");
  EXPECT_EQ(file->Find("flag")->Bool(), true);
  EXPECT_EQ(file->Find("missing"), nullptr);
  const GgufValue& numbers = *file->Find("numbers");
  EXPECT_TRUE(numbers.is_array());
  EXPECT_EQ(numbers.size(), 3U);
  EXPECT_EQ(numbers.Int(0), -1);
  EXPECT_EQ(numbers.Int(2), 3);
  EXPECT_EQ(numbers.Text(0), std::nullopt);
  EXPECT_EQ(numbers.TypeName(), "array of i32");
  const GgufValue& words = *file->Find("words");
  EXPECT_EQ(words.Text(0), "a");
  EXPECT_EQ(words.Text(1), "");
  EXPECT_EQ(words.Text(2), "longer");
  ASSERT_EQ(file->tensors.size(), 3U);
  EXPECT_EQ(file->tensors[0].name, "norm");
  EXPECT_EQ(file->tensors[0].offset, file->data_offset);
  EXPECT_EQ(file->tensors[0].bytes, 12);
  EXPECT_EQ(file->tensors[1].type->name, "Q4_0");
  EXPECT_THAT(file->tensors[1].shape, ElementsAre(2, 64));
  EXPECT_EQ(file->tensors[1].bytes, 2 * 2 * 18);
  EXPECT_EQ(file->tensors[1].offset, file->data_offset + 32);
  EXPECT_THAT(file->tensors[2].shape, ElementsAre(2, 3, 5));
  EXPECT_EQ(file->data_offset % 32, 0);
  EXPECT_EQ(bytes.substr(static_cast<size_t>(file->data_offset), 12),
            std::string("\0\0\x80\x3f\0\0\0\x40\0\0\x40\x40", 12));
}

TEST(Gguf, ReadsEveryTypeOfValue) {
  GgufBuilder builder;
  builder.Number<uint8_t>("u8", 200).Number<int8_t>("i8", -100).Number<uint16_t>("u16", 60000);
  builder.Number<int16_t>("i16", -30000).Number<uint32_t>("u32", 4000000000U).Number<int32_t>("i32", -5);
  builder.Number<uint64_t>("u64", 1ULL << 63).Number<int64_t>("i64", -(1LL << 62)).Number<double>("f64", 0.1);
  builder.Number<float>("f32", 0.1F).Flags("flags", {true, false}).Texts("none", {});
  const Result<GgufFile> file = Parse(builder.Bytes());
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->Find("u8")->Int(), 200);
  EXPECT_EQ(file->Find("i8")->Int(), -100);
  EXPECT_EQ(file->Find("u16")->Int(), 60000);
  EXPECT_EQ(file->Find("i16")->Int(), -30000);
  EXPECT_EQ(file->Find("u32")->Int(), 4000000000);
  EXPECT_EQ(file->Find("i32")->Number(), -5);
  EXPECT_EQ(file->Find("u64")->Int(), std::nullopt);  // does not fit
  EXPECT_EQ(file->Find("u64")->Number(), std::nullopt);
  EXPECT_EQ(file->Find("i64")->Int(), -(1LL << 62));
  EXPECT_EQ(file->Find("f64")->Number(), 0.1);
  EXPECT_EQ(file->Find("f32")->Number(), 0.1);  // not 0.10000000149
  EXPECT_EQ(file->Find("f32")->Int(), std::nullopt);
  EXPECT_EQ(file->Find("flags")->Bool(1), false);
  EXPECT_EQ(file->Find("none")->size(), 0U);
}

TEST(Gguf, ReadsAFileAsItsBytes) {
  const TestFolder folder;
  // A value larger than the window, across its borders.
  std::vector<std::string> words;
  for (int i = 0; i < 30000; ++i) words.push_back(std::to_string(i));
  GgufBuilder builder = Small();
  builder.Texts("many", words);
  const std::string bytes = builder.Bytes();
  const std::string path = folder.Write("a.gguf", bytes);
  const Result<GgufFile> read = ReadGguf(path);
  ASSERT_TRUE(read.ok()) << read.status().message();
  const Result<GgufFile> parsed = Parse(bytes);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(read->source.path, path);
  EXPECT_EQ(read->source.header_hash, parsed->source.header_hash);
  EXPECT_EQ(read->data_offset, parsed->data_offset);
  for (size_t i = 0; i < words.size(); ++i) ASSERT_EQ(read->Find("many")->Text(i), words[i]);
}

#ifndef NUNSPARK_SANITIZED
TEST(Gguf, KeepsAboutAsMuchMemoryAsTheHeaderHas) {
  std::vector<std::string> words;
  for (int i = 0; i < 200000; ++i) words.push_back("token number " + std::to_string(i));
  const TestFolder folder;
  GgufBuilder builder;
  builder.Texts("words", words).Numbers("scores", std::vector<float>(words.size(), 1.0F));
  const std::string bytes = builder.Bytes();
  const std::string path = folder.Write("a.gguf", bytes);
  const auto held = [] {
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
  };
  const size_t before = held();
  const Result<GgufFile> file = ReadGguf(path);
  ASSERT_TRUE(file.ok());
  EXPECT_LE(held() - before, bytes.size() + (size_t{256} << 10));
}
#endif

TEST(Gguf, HashFollowsTheHeaderAndNotTheData) {
  const std::string bytes = Small().Bytes();
  std::string other_data = bytes;
  other_data.back() = 'x';
  std::string other_key = bytes;
  other_key.replace(other_key.find("llama"), 5, "llamb");
  EXPECT_EQ(Parse(bytes)->source.header_hash, Parse(other_data)->source.header_hash);
  EXPECT_NE(Parse(bytes)->source.header_hash, Parse(other_key)->source.header_hash);
}

TEST(Gguf, EveryTruncationIsRefused) {
  const std::string bytes = Small().Bytes();
  ASSERT_TRUE(Parsed(bytes).ok());
  const TestFolder folder;
  for (size_t length = 0; length < bytes.size(); ++length) {
    const std::string start = bytes.substr(0, length);
    const Status status = Parsed(start);
    ASSERT_EQ(status.code(), StatusCode::kDataLoss) << length;
    ASSERT_THAT(status.message(),
                AllOf(HasSubstr("model.gguf is truncated"), HasSubstr("expected"), HasSubstr("found")))
        << length;
    if (length % 16 != 0) continue;  // the same code over a file, which costs more
    ASSERT_EQ(ReadGguf(folder.Write("model.gguf", start)).status().code(), StatusCode::kDataLoss) << length;
  }
}

TEST(Gguf, DataMayEndWithoutPaddingAndGoOnAfterTheLastTensor) {
  GgufBuilder builder;
  builder.Floats("a", {1}, {1});
  EXPECT_TRUE(Parsed(builder.Bytes()).ok());
  EXPECT_TRUE(Parsed(builder.Bytes() + std::string(28, '\0')).ok());
}

TEST(Gguf, AFileWithoutTensorsIsRead) {
  GgufBuilder builder;
  builder.Text("general.architecture", "llama");
  EXPECT_TRUE(Parsed(builder.Header()).ok());
}

TEST(Gguf, RefusesOtherFiles) {
  EXPECT_THAT(Parsed("PK\3\4 this is a zip file, long enough").message(), HasSubstr("begin with \"GGUF\""));
  const TestFolder folder;
  EXPECT_THAT(
      ReadGguf(folder.Write("a.gguf", "version https://git-lfs.github.com/spec/v1\noid sha256:1\n")).status().message(),
      HasSubstr("Git LFS pointer"));
  EXPECT_EQ(ReadGguf(folder.Path("missing.gguf")).status().code(), StatusCode::kNotFound);
  EXPECT_FALSE(ReadGguf(folder.path()).ok());
}

TEST(Gguf, VersionsTwoAndThreeAreRead) {
  GgufBuilder builder = Small();
  builder.version = 2;
  EXPECT_TRUE(Parsed(builder).ok());
  for (const auto& [version, text] : std::vector<std::pair<uint32_t, std::string>>{{0, "version 0"},
                                                                                   {1, "version 1"},
                                                                                   {4, "version 4"},
                                                                                   {0x03000000, "big-endian"},
                                                                                   {0x02000000, "big-endian"}}) {
    builder.version = version;
    EXPECT_EQ(Parsed(builder).code(), StatusCode::kUnsupported);
    EXPECT_THAT(Parsed(builder).message(), HasSubstr(text));
  }
}

// A file whose counts are replaced.
std::string WithCounts(uint64_t tensors, uint64_t keys) {
  std::string bytes = Small().Bytes();
  bytes.replace(8, 8, std::string(reinterpret_cast<const char*>(&tensors), 8));
  bytes.replace(16, 8, std::string(reinterpret_cast<const char*>(&keys), 8));
  return bytes;
}

TEST(Gguf, CountsAreBounded) {
  EXPECT_TRUE(Parsed(WithCounts(3, 6)).ok());
  for (const uint64_t count : {uint64_t{1} << 17, uint64_t{1} << 62, std::numeric_limits<uint64_t>::max()}) {
    EXPECT_THAT(Parsed(WithCounts(3, count)).message(), HasSubstr("expected at most 65536 keys"));
  }
  for (const uint64_t count : {uint64_t{1} << 21, uint64_t{1} << 63, std::numeric_limits<uint64_t>::max()}) {
    EXPECT_THAT(Parsed(WithCounts(count, 6)).message(), HasSubstr("expected at most 1048576 tensors"));
  }
  EXPECT_THAT(Parsed(WithCounts(3, 60000)).message(), HasSubstr("truncated"));
  EXPECT_THAT(Parsed(WithCounts(1000000, 6)).message(), HasSubstr("truncated"));
  EXPECT_FALSE(Parsed(WithCounts(4, 6)).ok());
  EXPECT_FALSE(Parsed(WithCounts(3, 7)).ok());
  EXPECT_FALSE(Parsed(WithCounts(3, 5)).ok());
}

struct Case {
  std::string name;
  std::function<void(GgufBuilder&)> add;
  std::string message;
};

void ExpectRefused(const std::vector<Case>& cases, StatusCode code) {
  for (const Case& entry : cases) {
    GgufBuilder builder = Small();
    entry.add(builder);
    const Status status = Parsed(builder);
    EXPECT_EQ(status.code(), code) << entry.name;
    EXPECT_THAT(status.message(), AllOf(HasSubstr("model.gguf"), HasSubstr(entry.message))) << entry.name;
  }
}

template <typename T>
std::string Scalar(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

TEST(Gguf, WrongValuesAreRefused) {
  ExpectRefused(
      {
          {"type 13", [](GgufBuilder& b) { b.Raw("k", static_cast<GgufType>(13), "x"); },
           "key \"k\": expected a value type from 0 to 12, found 13"},
          {"element type", [](GgufBuilder& b) { b.RawArray("k", static_cast<GgufType>(99), 1, "x"); }, "found 99"},
          {"bool 2", [](GgufBuilder& b) { b.Raw("k", GgufType::kBool, "\2"); }, "expected 0 or 1 for a bool, found 2"},
          {"bools", [](GgufBuilder& b) { b.RawArray("k", GgufType::kBool, 2, std::string("\1\xff", 2)); }, "found 255"},
          {"empty key", [](GgufBuilder& b) { b.U32("", 1); }, "expected a name of 1 to 1024 bytes, found 0"},
          {"long key", [](GgufBuilder& b) { b.U32(std::string(1025, 'k'), 1); }, "found 1025"},
          {"twice", [](GgufBuilder& b) { b.U32("flag", 1); }, "key \"flag\": the name occurs twice"},
          {"string length", [](GgufBuilder& b) { b.Raw("k", GgufType::kString, Scalar(~uint64_t{0})); }, "truncated"},
          {"array length", [](GgufBuilder& b) { b.RawArray("k", GgufType::kU32, ~uint64_t{0}, "x"); },
           "key \"k\": an array of"},
          {"array length 2", [](GgufBuilder& b) { b.RawArray("k", GgufType::kU8, uint64_t{1} << 40, "x"); },
           "truncated"},
          {"strings", [](GgufBuilder& b) { b.RawArray("k", GgufType::kString, uint64_t{1} << 61, "x"); },
           "an array of 2305843009213693952 strings"},
          {"strings 2", [](GgufBuilder& b) { b.RawArray("k", GgufType::kString, uint64_t{1} << 50, "x"); },
           "truncated"},
      },
      StatusCode::kDataLoss);
  ExpectRefused({{"array of arrays", [](GgufBuilder& b) { b.RawArray("k", GgufType::kArray, 1, "x"); },
                  "key \"k\": an array of arrays"}},
                StatusCode::kUnsupported);
}

TEST(Gguf, AlignmentMustBeAPowerOfTwo) {
  const auto with = [](const std::function<void(GgufBuilder&)>& add, uint64_t alignment) {
    GgufBuilder builder;
    builder.alignment = alignment;
    add(builder);
    builder.Floats("a", {1}, {1}).Floats("b", {1}, {2});
    return Parsed(builder);
  };
  for (const uint32_t good : {1U, 8U, 32U, 64U, 4096U}) {
    EXPECT_TRUE(with([&](GgufBuilder& b) { b.U32("general.alignment", good); }, good).ok()) << good;
  }
  for (const uint32_t bad : {0U, 3U, 24U, 48U, 1U << 31}) {
    EXPECT_THAT(with([&](GgufBuilder& b) { b.U32("general.alignment", bad); }, 32).message(),
                HasSubstr("key \"general.alignment\": expected a power of two"));
  }
  EXPECT_FALSE(with([](GgufBuilder& b) { b.Text("general.alignment", "32"); }, 32).ok());
  EXPECT_FALSE(with([](GgufBuilder& b) { b.Numbers<uint32_t>("general.alignment", {32}); }, 32).ok());
  EXPECT_FALSE(with([](GgufBuilder& b) { b.F32("general.alignment", 32); }, 32).ok());
}

TEST(Gguf, WrongTensorsAreRefused) {
  const uint64_t huge = uint64_t{1} << 63;
  const auto raw = [](std::vector<uint64_t> dimensions, uint32_t type, uint64_t offset) {
    return [=](GgufBuilder& b) { b.RawTensor("t", dimensions, type, offset); };
  };
  ExpectRefused(
      {
          {"five dimensions", raw({1, 1, 1, 1, 1}, 0, 256), "tensor \"t\": expected at most 4 dimensions, found 5"},
          {"zero", raw({0}, 0, 256), "tensor \"t\": dimension 0: expected 1 to 2^63 - 1 elements, found 0"},
          {"zero 2", raw({4, 0}, 0, 256), "dimension 1: expected 1 to 2^63 - 1"},
          {"2^63", raw({huge}, 0, 256), "found 9223372036854775808"},
          {"2^64 - 1", raw({~uint64_t{0}, 1}, 0, 256), "dimension 0"},
          {"product", raw({uint64_t{1} << 31, uint64_t{1} << 31, 4}, 0, 256), "has more bytes than a file can"},
          {"product 2", raw({huge - 1, huge - 1, huge - 1, huge - 1}, 24, 256), "has more bytes than a file can"},
          {"bytes", raw({uint64_t{1} << 62}, 28, 256), "has more bytes than a file can"},
          {"block", raw({33}, 2, 256), "expected rows of a multiple of 32 elements for Q4_0, found 33"},
          {"block of a number", raw({}, 12, 256), "multiple of 256 elements for Q4_K, found 1"},
          {"offset 8", raw({1}, 0, 8), "expected its data at a multiple of 32 (general.alignment), found offset 8"},
          {"offset 2^63", raw({1}, 0, huge), "ends beyond 2^63"},
          {"offset 2^63 - 32", raw({64}, 0, huge - 32), "ends beyond 2^63"},
          {"offset far", raw({1}, 0, uint64_t{1} << 40), "truncated"},
          {"header", raw({uint64_t{1} << 60}, 24, huge - 32 - (uint64_t{1} << 60)), "ends beyond 2^63"},
          {"overlap", raw({2}, 0, 0), "overlaps the tensor before it"},
          {"overlap 2", raw({100}, 0, 32), "overlaps the tensor before it"},
          {"same name", [](GgufBuilder& b) { b.Zeros("norm", "F32", {1}); }, "tensor \"norm\": the name occurs twice"},
          {"empty name", [](GgufBuilder& b) { b.Zeros("", "F32", {1}); }, "expected a name of 1 to 1024 bytes"},
      },
      StatusCode::kDataLoss);
  for (const uint32_t removed : {4U, 5U, 31U, 36U, 43U, 1000U, ~0U}) {
    ExpectRefused({{"type", raw({32}, removed, 256), "tensor \"t\": no known tensor type has the number"}},
                  StatusCode::kUnsupported);
  }
}

TEST(Gguf, TensorsMayLieInAnyOrderWithSpaceBetween) {
  GgufBuilder builder;
  builder.RawTensor("late", {2}, 0, 64).RawTensor("early", {2}, 0, 0);
  const Result<GgufFile> file = Parse(builder.Bytes() + std::string(72, '\0'));
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->tensors[0].name, "early");
  EXPECT_EQ(file->tensors[1].offset, file->tensors[0].offset + 64);
}

TEST(Gguf, TypesHaveTheSizesOfTheirBlocks) {
  // Block sizes in bits per element, as ggml's documentation of quantisation lists them.
  for (const auto& [name, bits] : std::vector<std::pair<std::string, double>>{{"Q4_0", 4.5},
                                                                              {"Q4_1", 5.0},
                                                                              {"Q5_0", 5.5},
                                                                              {"Q5_1", 6.0},
                                                                              {"Q8_0", 8.5},
                                                                              {"Q2_K", 2.625},
                                                                              {"Q3_K", 3.4375},
                                                                              {"Q4_K", 4.5},
                                                                              {"Q5_K", 5.5},
                                                                              {"Q6_K", 6.5625},
                                                                              {"IQ4_NL", 4.5},
                                                                              {"IQ4_XS", 4.25},
                                                                              {"MXFP4", 4.25},
                                                                              {"BF16", 16}}) {
    const GgufTensorType* const type = FindGgufTensorType(name);
    ASSERT_NE(type, nullptr) << name;
    EXPECT_EQ(8.0 * static_cast<double>(type->block_bytes) / static_cast<double>(type->block_elements), bits) << name;
    EXPECT_EQ(FindGgufTensorType(type->id), type);
  }
  EXPECT_THAT(SupportedGgufTypes(), AllOf(HasSubstr("Q4_K"), HasSubstr("MXFP4"), ::testing::Not(HasSubstr("IQ2"))));
}

TEST(Gguf, MessagesEscapeNames) {
  GgufBuilder builder;
  builder.Raw("a\n\x1b[31m\xff", GgufType::kBool, "\7");
  EXPECT_THAT(Parsed(builder).message(), AllOf(HasSubstr("\\n\\u001b[31m"), ::testing::Not(HasSubstr("\n"))));
}

}  // namespace
}  // namespace nunspark
