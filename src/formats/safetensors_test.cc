#include "formats/safetensors.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/safetensors_testing.h"
#include "io/file.h"
#include "io/test_folder.h"

namespace nunspark {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string LengthBytes(uint64_t length) {
  std::string bytes(8, '\0');
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(length >> (8 * i) & 0xFF);
  return bytes;
}

std::string FileOf(std::string_view header, std::string_view data) {
  return LengthBytes(header.size()) + std::string(header) + std::string(data);
}

// The whole file has the header and `data_bytes` of data.
Result<std::vector<TensorInfo>> Parse(std::string_view header, int64_t data_bytes) {
  return ParseSafetensorsHeader(header, 8 + static_cast<int64_t>(header.size()) + data_bytes, "model.safetensors");
}

constexpr std::string_view kTwo =
    R"({"b":{"dtype":"F32","shape":[2,3],"data_offsets":[8,32]},"a":{"dtype":"BF16","shape":[4],"data_offsets":[0,8]}})";

TEST(Safetensors, ReadsTensorsInTheOrderOfTheirData) {
  const auto tensors = Parse(kTwo, 32);
  ASSERT_TRUE(tensors.ok()) << tensors.status().message();
  ASSERT_EQ(tensors->size(), 2U);
  const int64_t start = 8 + static_cast<int64_t>(kTwo.size());
  EXPECT_EQ((*tensors)[0].name, "a");
  EXPECT_EQ((*tensors)[0].dtype, DType::kBF16);
  EXPECT_THAT((*tensors)[0].shape, ElementsAre(4));
  EXPECT_EQ((*tensors)[0].offset, start);
  EXPECT_EQ((*tensors)[0].bytes, 8);
  EXPECT_EQ((*tensors)[1].name, "b");
  EXPECT_EQ((*tensors)[1].offset, start + 8);
  EXPECT_EQ((*tensors)[1].bytes, 24);
}

TEST(Safetensors, KnowsEveryElementTypeBySize) {
  const std::pair<const char*, int64_t> kTypes[] = {
      {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"U8", 1},  {"U32", 4}, {"I32", 4},     {"I64", 8},     {"BOOL", 1},
      {"I8", 1},  {"U16", 2}, {"I16", 2},  {"U64", 8}, {"F64", 8}, {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1}};
  for (const auto& [name, bytes] : kTypes) {
    const auto tensors =
        Parse(fmt::format(R"({{"t":{{"dtype":"{}","shape":[3],"data_offsets":[0,{}]}}}})", name, 3 * bytes), 3 * bytes);
    ASSERT_TRUE(tensors.ok()) << tensors.status().message();
    EXPECT_EQ(DTypeName((*tensors)[0].dtype), name);
    EXPECT_EQ(DTypeBytes((*tensors)[0].dtype), bytes);
  }
}

TEST(Safetensors, ReadsScalarsEmptyTensorsAndEmptyFiles) {
  const auto tensors = Parse(R"({"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]},
                                 "e":{"dtype":"F32","shape":[0,7],"data_offsets":[4,4]},
                                 "z":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
                             4);
  ASSERT_TRUE(tensors.ok()) << tensors.status().message();
  EXPECT_EQ(tensors->size(), 3U);
  ASSERT_TRUE(Parse("{}", 0).ok());
  EXPECT_TRUE(Parse("{}", 0)->empty());
}

TEST(Safetensors, AllowsMetadataAndPadding) {
  EXPECT_TRUE(
      Parse(R"({"__metadata__":{"format":"pt","x":""},"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}    )", 1)
          .ok());
  EXPECT_TRUE(Parse("{\"__metadata__\":{}}\n\t ", 0).ok());
  EXPECT_TRUE(Parse(R"({"__metadata__":null,"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1).ok());
}

TEST(Safetensors, ReadsEscapedNames) {
  const auto tensors = Parse(R"({"a\"\u00e4\n":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1);
  ASSERT_TRUE(tensors.ok()) << tensors.status().message();
  EXPECT_EQ((*tensors)[0].name, "a\"\xC3\xA4\n");
}

struct Bad {
  const char* header;
  int64_t data_bytes;
  const char* message;
};

TEST(Safetensors, RefusesHostileHeaders) {
  const Bad kBad[] = {
      {R"([])", 0, "expected a JSON object that begins with '{'"},
      {R"()", 0, "expected a JSON object that begins with '{'"},
      {R"( {})", 0, "expected a JSON object that begins with '{'"},
      {R"({} x)", 0, "header"},
      {R"({}{})", 0, "header"},
      {R"({"t":1})", 1, "tensor \"t\": expected an object {dtype, shape, data_offsets}"},
      {R"({"t":[]})", 1, "tensor \"t\": expected an object"},
      {R"({"t":null})", 1, "tensor \"t\": expected an object"},
      {R"({"t":{}})", 0, "tensor \"t\": \"dtype\" is missing"},
      {R"({"t":{"dtype":"U8","data_offsets":[0,1]}})", 1, "\"shape\" is missing"},
      {R"({"t":{"dtype":"U8","shape":[1]}})", 1, "\"data_offsets\" is missing"},
      {R"({"t":{"dtype":7,"shape":[1],"data_offsets":[0,1]}})", 1, "\"dtype\": expected a string"},
      {R"({"t":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1, "\"dtype\" occurs twice"},
      {R"({"t":{"dtype":"U8","shape":[1],"shape":[1],"data_offsets":[0,1]}})", 1, "\"shape\" occurs twice"},
      {R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"data_offsets":[0,1]}})", 1,
       "\"data_offsets\" occurs twice"},
      {R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"extra":{}}})", 1, "unknown field \"extra\""},
      {R"({"t":{"dtype":"U8","shape":1,"data_offsets":[0,1]}})", 1, "\"shape\": expected a list of integers"},
      {R"({"t":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})", 1, "\"shape\": expected integers from 0"},
      {R"({"t":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", 1, "\"shape\": expected integers from 0"},
      {R"({"t":{"dtype":"U8","shape":["1"],"data_offsets":[0,1]}})", 1, "\"shape\": expected integers from 0"},
      {R"({"t":{"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,1]}})", 1, "\"shape\": expected integers"},
      {R"({"t":{"dtype":"U8","shape":[1e3],"data_offsets":[0,1]}})", 1, "\"shape\": expected integers"},
      {R"({"t":{"dtype":"U8","shape":[01],"data_offsets":[0,1]}})", 1, "\"shape\": expected integers"},
      {R"({"t":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})", 1,
       "more than 16 items"},
      {R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", 1, "\"data_offsets\": expected [begin, end]"},
      {R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}})", 1, "\"data_offsets\": more than 2 items"},
      {R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[-1,0]}})", 1, "\"data_offsets\": expected integers from 0"},
      {R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}})", 1, "end before they begin"},
      {R"({"t":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8, "expected 12 bytes for F32 [3], found 8"},
      {R"({"t":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0,
       "more bytes than a file can"},
      {R"({"t":{"dtype":"F32","shape":[0,4294967296,4294967296],"data_offsets":[0,0]}})", 0,
       "more bytes than a file can"},
      {R"({"t":{"dtype":"F64","shape":[1152921504606846976],"data_offsets":[0,0]}})", 0, "more bytes than a file can"},
      {R"({"t":{"dtype":"U8","shape":[9223372036854775807],"data_offsets":[0,9223372036854775807]}})", 0,
       "beyond 2^63"},
      {R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", 2,
       "expected its data at offset 0, found 1: there is a hole"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"t":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
       3, "tensor \"t\": expected its data at offset 1, found 2: there is a hole before it"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"t":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
       3, "tensor \"t\": expected its data at offset 2, found 1: it overlaps the tensor before it"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"t":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
       2, "it overlaps the tensor before it"},
      {R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"t":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
       2, "tensor \"t\": the name occurs twice"},
      {R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"\u0074":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
       2, "tensor \"t\": the name occurs twice"},
      {R"({"__metadata__":{},"__metadata__":{}})", 0, "\"__metadata__\" occurs twice"},
      {R"({"__metadata__":null,"__metadata__":null})", 0, "\"__metadata__\" occurs twice"},
      {R"({"__metadata__":7})", 0, "\"__metadata__\": expected an object"},
      {R"({"__metadata__":[]})", 0, "\"__metadata__\": expected an object"},
      {R"({"__metadata__":{"a":1}})", 0, "\"__metadata__\": expected an object of strings"},
      {"{\"\xFF\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "header"},
  };
  for (const Bad& bad : kBad) {
    const Status status = Parse(bad.header, bad.data_bytes).status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << bad.header;
    EXPECT_THAT(status.message(), AllOf(HasSubstr("model.safetensors"), HasSubstr(bad.message))) << bad.header;
  }
}

TEST(Safetensors, UnknownElementTypeIsUnsupported) {
  const Status status = Parse(R"({"t":{"dtype":"F4","shape":[1],"data_offsets":[0,1]}})", 1).status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("tensor \"t\""), HasSubstr("element type \"F4\"")));
}

TEST(Safetensors, SaysHowMuchOfATruncatedFileIsThere) {
  const Status status = Parse(kTwo, 31).status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_EQ(status.message(), fmt::format("model.safetensors is truncated: expected {} bytes by its header, found {}",
                                          8 + kTwo.size() + 32, 8 + kTwo.size() + 31));
  EXPECT_THAT(Parse(kTwo, 40).status().message(), HasSubstr("8 bytes belong to no tensor"));
}

TEST(Safetensors, RefusesEveryTruncationOfAHeader) {
  for (size_t size = 0; size < kTwo.size(); ++size) {
    const auto tensors = Parse(kTwo.substr(0, size), 32);
    ASSERT_FALSE(tensors.ok()) << size;
    ASSERT_EQ(tensors.status().code(), StatusCode::kDataLoss) << size;
  }
}

TEST(Safetensors, RefusesEveryTruncationOfAFile) {
  const TestFolder folder;
  const std::string content = FileOf(kTwo, std::string(32, 'x'));
  for (size_t size = 0; size <= content.size(); ++size) {
    TensorIndex index;
    const std::string path = folder.Write("model.safetensors", content.substr(0, size));
    const Status status = AddSafetensorsFile(path, index);
    ASSERT_EQ(status.ok(), size == content.size()) << size;
    if (status.ok()) continue;
    ASSERT_EQ(status.code(), StatusCode::kDataLoss) << size;
    ASSERT_THAT(status.message(),
                AllOf(HasSubstr(path + " is truncated: expected "), HasSubstr(fmt::format("found {}", size))));
    ASSERT_TRUE(index.tensors().empty());
  }
}

// Whatever survives a mutation keeps the promises that readers rely on.
TEST(Safetensors, MutatedHeadersAreRefusedOrConsistent) {
  std::mt19937 random(1);
  int accepted = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string header(kTwo);
    const int changes = 1 + static_cast<int>(random() % 3);
    for (int i = 0; i < changes; ++i) {
      const size_t at = random() % header.size();
      switch (random() % 3) {
        case 0: header[at] = static_cast<char>(random() & 0xFF); break;
        case 1: header.erase(at, 1); break;
        default: header.insert(at, 1, "0123456789[]{}\",:-e"[random() % 19]);
      }
      if (header.empty()) header = "{";
    }
    const int64_t file_bytes = 8 + static_cast<int64_t>(header.size()) + 32;
    const auto tensors = ParseSafetensorsHeader(header, file_bytes, "m");
    if (!tensors.ok()) continue;
    ++accepted;
    int64_t at = 8 + static_cast<int64_t>(header.size());
    for (const TensorInfo& tensor : *tensors) {
      ASSERT_EQ(tensor.offset, at);
      ASSERT_EQ(TensorBytes(tensor.shape, tensor.dtype), tensor.bytes);
      at += tensor.bytes;
    }
    ASSERT_EQ(at, file_bytes);
  }
  EXPECT_GT(accepted, 0) << "changes of names leave the header valid";
}

TEST(Safetensors, RefusesHeaderLengthsThatCannotBe) {
  const TestFolder folder;
  const auto open = [&](std::string_view content) {
    TensorIndex index;
    return AddSafetensorsFile(folder.Write("m", content), index);
  };
  EXPECT_THAT(open(LengthBytes(3) + "{}").message(),
              HasSubstr("truncated: expected at least 11 bytes for its header, found 10"));
  EXPECT_THAT(open(LengthBytes(100'000'001) + "{}").message(),
              HasSubstr("no safetensors file: its header would have 100000001"));
  EXPECT_THAT(open(LengthBytes(~uint64_t{0}) + "{}").message(), HasSubstr("18446744073709551615 bytes"));
  EXPECT_THAT(open("<!DOCTYPE html><html>").message(), HasSubstr("no safetensors file"));
  EXPECT_THAT(open(LengthBytes(0)).message(), HasSubstr("expected a JSON object"));
  EXPECT_TRUE(open(LengthBytes(2) + "{}").ok());
}

TEST(Safetensors, RecognisesAnLfsPointer) {
  const TestFolder folder;
  TensorIndex index;
  const Status status = AddSafetensorsFile(
      folder.Write("m", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 123456789\n"), index);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr(folder.Path("m")), HasSubstr("Git LFS pointer"), HasSubstr("git lfs pull")));
}

TEST(Safetensors, MissingFileIsNotFound) {
  TensorIndex index;
  EXPECT_EQ(AddSafetensorsFile("/nonexistent/model.safetensors", index).code(), StatusCode::kNotFound);
}

TEST(Safetensors, ReadsManyTensorsAndNestingNeverRecurses) {
  constexpr int kCount = 150'000;
  std::string header = "{";
  for (int i = 0; i < kCount; ++i) {
    header +=
        fmt::format(R"({}"model.layers.{}.mlp.experts.{}.w":{{"dtype":"U8","shape":[1,2],"data_offsets":[{},{}]}})",
                    i == 0 ? "" : ",", i % 64, i, i * 2, i * 2 + 2);
  }
  header += "}";
  const auto tensors = Parse(header, kCount * 2);
  ASSERT_TRUE(tensors.ok()) << tensors.status().message();
  EXPECT_EQ(tensors->size(), static_cast<size_t>(kCount));
  EXPECT_FALSE(Parse("{\"t\":" + std::string(1'000'000, '['), 0).ok());
  EXPECT_FALSE(Parse("{\"t\":{\"x\":" + std::string(1'000'000, '{'), 0).ok());
}

TEST(Safetensors, NamesMayNotRepeatAcrossFiles) {
  const TestFolder folder;
  TensorIndex index;
  const std::string first = folder.Write("1.safetensors", FileOf(kTwo, std::string(32, 'x')));
  const std::string second = folder.Write("2.safetensors", FileOf(kTwo, std::string(32, 'x')));
  ASSERT_TRUE(AddSafetensorsFile(first, index).ok());
  const Status status = AddSafetensorsFile(second, index);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_EQ(status.message(), "tensor \"a\" is in " + first + " and again in " + second + "; expected once");
  EXPECT_EQ(index.Find("a")->file, 0);
  EXPECT_EQ(index.Find("none"), nullptr);
}

TEST(Safetensors, ReadsBackWhatItWrites) {
  const TestFolder folder;
  const std::string path = folder.Path("out.safetensors");
  const std::string bytes = RandomBytes(24, 1);
  const std::vector<TensorToWrite> written = {
      {.name = "odd", .dtype = DType::kU8, .shape = {3}, .data = std::string_view(bytes).substr(0, 3)},
      {.name = "wide \"quoted\"", .dtype = DType::kI64, .shape = {2, 1}, .data = std::string_view(bytes).substr(3, 16)},
      {.name = "empty", .dtype = DType::kF32, .shape = {0}, .data = ""},
      {.name = "half", .dtype = DType::kF16, .shape = {}, .data = std::string_view(bytes).substr(19, 2)}};
  ASSERT_TRUE(WriteSafetensorsFile(path, written).ok());
  EXPECT_THAT(*ListFolder(folder.path()), ElementsAre("out.safetensors"));

  const Result<SafetensorsFile> file = ReadSafetensorsFile(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->tensors.front().offset % 8, 0);
  EXPECT_EQ(file->tensors.size(), 4U);
  const std::string content = *ReadWholeFile(path);
  for (const TensorToWrite& tensor : written) {
    const auto found = std::find_if(file->tensors.begin(), file->tensors.end(),
                                    [&](const TensorInfo& info) { return info.name == tensor.name; });
    ASSERT_NE(found, file->tensors.end()) << tensor.name;
    EXPECT_EQ(found->dtype, tensor.dtype);
    EXPECT_EQ(found->shape, tensor.shape);
    EXPECT_EQ(content.substr(static_cast<size_t>(found->offset), static_cast<size_t>(found->bytes)), tensor.data);
  }
}

TEST(Safetensors, HeaderIsPaddedToTheAlignment) {
  for (const int64_t alignment : {8, 64, 4096, 16384}) {
    const std::vector<TensorInfo> tensors = {{.name = "a", .dtype = DType::kF32, .shape = {5}, .bytes = 20},
                                             {.name = "__gap_000000", .dtype = DType::kU8, .shape = {44}, .bytes = 44}};
    const std::string header = WriteSafetensorsHeader(tensors, alignment);
    EXPECT_EQ(static_cast<int64_t>(header.size()) % alignment, 0);
    const auto parsed = Parse(std::string_view(header).substr(8), 64);
    ASSERT_TRUE(parsed.ok()) << parsed.status().message();
    EXPECT_EQ((*parsed)[1].offset, static_cast<int64_t>(header.size()) + 20);
  }
}

TEST(Safetensors, HeaderHashFollowsTheHeader) {
  const TestFolder folder;
  const auto hash = [&](std::string_view header, std::string_view data) {
    return ReadSafetensorsFile(folder.Write("m", FileOf(header, data)))->source.header_hash;
  };
  const std::string x(32, 'x');
  EXPECT_EQ(hash(kTwo, x), hash(kTwo, std::string(32, 'y')));
  EXPECT_NE(hash(kTwo, x), hash(std::string(kTwo) + " ", x));
}

TEST(TensorIndex, QuotesNamesForMessages) {
  EXPECT_EQ(QuoteName("a\nb"), "\"a\\nb\"");
  EXPECT_THAT(QuoteName(std::string(5000, 'x')), HasSubstr("(5000 bytes long)"));
  EXPECT_LT(QuoteName(std::string(5000, 'x')).size(), 300U);
}

}  // namespace
}  // namespace nunspark
