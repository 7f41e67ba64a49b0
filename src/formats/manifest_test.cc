#include "formats/manifest.h"

#include <unistd.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/content_hash.h"
#include "io/file.h"
#include "io/test_folder.h"

namespace nunspark {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Manifest Example() {
  Manifest manifest;
  manifest.model_type = "qwen3_moe";
  manifest.tie_word_embeddings = true;
  manifest.num_layers = 2;
  manifest.source_hash = "0123456789abcdef0123456789abcdef";
  manifest.config.Set("hidden_size", 64);
  manifest.config.Set("rope_theta", 1e6);
  manifest.files = {{.path = "model-core.safetensors", .bytes = 16384, .header_hash = 0xFEDCBA9876543210},
                    {.path = "model-experts-00001.safetensors", .bytes = 8192, .header_hash = 7}};
  const std::string checksum = "xxh3:ffffffffffffffffffffffffffffffff";
  manifest.pieces = {{.piece_id = "embed",
                      .file = 0,
                      .offset = 4096,
                      .bytes = 4096,
                      .checksum = checksum,
                      .tensors = {{.name = "model.embed_tokens.weight",
                                   .dtype = DType::kBF16,
                                   .shape = {16, 32},
                                   .offset = 0,
                                   .bytes = 1024}}},
                     {.piece_id = "layer_000_core",
                      .file = 0,
                      .offset = 8192,
                      .bytes = 8192,
                      .checksum = checksum,
                      .tensors = {{.name = "a", .dtype = DType::kU32, .shape = {10}, .offset = 64, .bytes = 40},
                                  {.name = "b", .dtype = DType::kF32, .shape = {}, .offset = 128, .bytes = 4}}},
                     {.piece_id = "layer_000_expert_0",
                      .file = 1,
                      .offset = 4096,
                      .bytes = 4096,
                      .checksum = checksum,
                      .tensors = {}}};
  return manifest;
}

TEST(Manifest, ReadsBackWhatItWrites) {
  const Manifest manifest = Example();
  const std::string text = WriteManifest(manifest);
  const Result<Manifest> again = ParseManifest(text, "manifest.json");
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(WriteManifest(*again), text);
  EXPECT_EQ(again->model_type, "qwen3_moe");
  EXPECT_TRUE(again->tie_word_embeddings);
  EXPECT_EQ(again->num_layers, 2);
  EXPECT_EQ(again->alignment, 4096);
  EXPECT_EQ(again->config, manifest.config);
  EXPECT_EQ(again->files[0].header_hash, 0xFEDCBA9876543210U);
  ASSERT_EQ(again->pieces.size(), 3U);
  EXPECT_EQ(again->pieces[1].tensors[1].dtype, DType::kF32);
  EXPECT_TRUE(again->pieces[1].tensors[1].shape.empty());
}

TEST(Manifest, BecomesAnIndexOfItsTensors) {
  const Result<PackIndex> index = ParsePackIndex(WriteManifest(Example()), "manifest.json");
  ASSERT_TRUE(index.ok()) << index.status().message();
  EXPECT_EQ(index->manifest.source_hash, Example().source_hash);
  EXPECT_EQ(index->manifest.files.size(), 2U);
  EXPECT_TRUE(index->manifest.pieces.empty());
  ASSERT_EQ(index->tensors.size(), 3U);
  EXPECT_EQ(index->tensors[0].name, "model.embed_tokens.weight");
  const TensorInfo& b = index->tensors[2];
  EXPECT_EQ(b.name, "b");
  EXPECT_EQ(b.dtype, DType::kF32);
  EXPECT_TRUE(b.shape.empty());
  EXPECT_EQ(b.file, 0);
  EXPECT_EQ(b.offset, 8192 + 128);
  EXPECT_EQ(b.bytes, 4);
}

// Members in any order, with white space and escapes anywhere; the text with and without room behind it.
TEST(Manifest, ReadsWhatOtherJsonWritersMakeOfIt) {
  const std::string text = WriteManifest(Example());
  const std::function<Json(const Json&)> reversed = [&](const Json& json) {
    Json copy = json;
    if (copy.is_array()) {
      for (Json& item : copy.as_array()) item = reversed(item);
    } else if (copy.is_object()) {
      for (auto& [name, value] : copy.as_object()) value = reversed(value);
      std::reverse(copy.as_object().begin(), copy.as_object().end());
    }
    return copy;
  };
  const Json root = reversed(*ParseJson(text, "text"));
  std::string escaped = WriteJson(root, 3);
  const std::pair<std::string_view, std::string_view> kEscapes[] = {{"\"embed\"", "\"e\\u006dbed\""},
                                                                    {"\"tensors\"", "\"t\\u0065nsors\""},
                                                                    {"\"shape\"", "\"sh\\u0061pe\""},
                                                                    {"\"BF16\"", "\"BF\\u00316\""},
                                                                    {"\"pieces\"", "\"p\\u0069eces\""}};
  for (const auto& [from, to] : kEscapes) {
    const size_t at = escaped.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    escaped.replace(at, from.size(), to);
  }
  for (std::string other : {WriteJson(root), WriteJson(root, 3), escaped, "\xEF\xBB\xBF" + text}) {
    other.shrink_to_fit();
    for (const size_t spare : {0, 1, 64, 1000}) {
      other.reserve(other.size() + spare);
      const Result<Manifest> manifest = ParseManifest(other, "manifest.json");
      ASSERT_TRUE(manifest.ok()) << manifest.status().message();
      Manifest same = *manifest;
      same.config = Example().config;  // that one was reversed too
      EXPECT_EQ(WriteManifest(same), text);
    }
  }
}

TEST(Manifest, RefusesRepeatedFields) {
  const auto twice = [](std::string_view before, std::string_view member) {
    std::string text = WriteManifest(Example());
    text.insert(text.find(before), fmt::format("{},", member));
    const Status status = ParseManifest(text, "m").status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    return status.message();
  };
  EXPECT_EQ(twice("\"files\"", "\"pieces\":[]"), "m: pieces: expected one such field, found a second one");
  EXPECT_EQ(twice("\"piece_id\"", "\"tensors\":[{\"name\":1}]"),
            "m: pieces[0].tensors: expected one such field, found a second one");
  EXPECT_EQ(twice("\"dtype\"", "\"na\\u006de\":\"a\""),
            "m: pieces[0].tensors[0].name: expected one such field, found a second one");
}

TEST(Manifest, SaysWhatItFoundWhereAnObjectOrNumberShouldBe) {
  const auto changed = [](std::string_view from, std::string_view to) {
    std::string text = WriteManifest(Example());
    text.replace(text.find(from), from.size(), to);
    return ParseManifest(text, "m").status().message();
  };
  EXPECT_EQ(changed("\"tensors\":[]", "\"tensors\":[[]]"), "m: pieces[2].tensors[0]: expected an object, found array");
  EXPECT_EQ(changed("\"tensors\":[]", "\"tensors\":[-1]"),
            "m: pieces[2].tensors[0]: expected an object, found integer");
  EXPECT_EQ(changed("\"pieces\": [", "\"pieces\": [null,"), "m: pieces[0]: expected an object, found null");
  EXPECT_EQ(changed("[16,32]", "[16,3.5]"), "m: pieces[0].tensors[0].shape: expected integers from 0, found number");
  EXPECT_EQ(changed("[16,32]", "[16,\"32\"]"), "m: pieces[0].tensors[0].shape: expected integers from 0, found string");
  EXPECT_EQ(changed("\"bytes\":1024", "\"bytes\":99999999999999999999"),
            "m: pieces[0].tensors[0].bytes: expected 1024, found number");
  EXPECT_EQ(changed("\"bytes\":1024", "\"bytes\":01024"), "m: pieces[0].tensors[0].bytes: expected 1024, found number");
  EXPECT_THAT(changed("[16,32]", "[16 32]"), HasSubstr("m: not valid JSON: "));
  EXPECT_THAT(changed("[16,32]", "[16,32}"), HasSubstr("m: not valid JSON: "));
  EXPECT_THAT(changed("[16,32]", "[16,maybe]"), HasSubstr("m: not valid JSON: "));
  EXPECT_THAT(changed("\"BF16\"", "\"BF\n16\""), HasSubstr("m: not valid JSON: "));
  EXPECT_THAT(changed("\"BF16\"", "\"BF\xFF\""), HasSubstr("m: not valid JSON: "));
  EXPECT_THAT(changed("\n]\n}", "\n]\n} {}"), HasSubstr("m: not valid JSON: "));
  EXPECT_EQ(ParseManifest("[1]", "m").status().message(), "m: expected an object, found array");
}

// Everything but the pieces becomes a tree, so there must not be much of it.
TEST(Manifest, RefusesAHugeHead) {
  std::string text = WriteManifest(Example());
  text.insert(text.find("\"hidden_size\""), fmt::format("\"padding\":\"{}\",", std::string(33 << 20, 'x')));
  EXPECT_THAT(ParseManifest(text, "m").status().message(), HasSubstr("m: expected at most 33554432 bytes beside the"));
}

TEST(Manifest, RefusesWhatContradictsItself) {
  const std::pair<std::function<void(Manifest&)>, const char*> kBad[] = {
      {[](Manifest& m) { m.model_type = ""; }, "model_type: expected a model type"},
      {[](Manifest& m) { m.num_layers = 0; }, "num_layers: expected an integer from 1 to 65536, found 0"},
      {[](Manifest& m) { m.alignment = 2048; }, "alignment: expected an integer from 4096 to 1048576, found 2048"},
      {[](Manifest& m) { m.alignment = 1 << 21; }, "found 2097152"},
      {[](Manifest& m) { m.alignment = 12288; }, "alignment: expected a power of two, found 12288"},
      {[](Manifest& m) { m.alignment = 8192; }, "pieces[0].offset: expected an integer from 8192"},
      {[](Manifest& m) { m.source_hash = "xyz"; }, "source_hash: expected 32 lower-case hex digits"},
      {[](Manifest& m) { m.source_hash[0] = 'A'; }, "source_hash: expected 32 lower-case hex digits"},
      {[](Manifest& m) { m.config = Json(); }, "config: expected an object, found null"},
      {[](Manifest& m) { m.files.clear(); }, "files: expected 1 to 65536 files, found 0"},
      {[](Manifest& m) { m.files[1].path = m.files[0].path; }, "files: expected every name once, found \"model-core"},
      {[](Manifest& m) { m.files[0].path = "../x.safetensors"; }, "files[0].name: expected a file name"},
      {[](Manifest& m) { m.files[0].path = "/etc/x.safetensors"; }, "files[0].name: expected a file name"},
      {[](Manifest& m) { m.files[0].path = "a\\x.safetensors"; }, "files[0].name: expected a file name"},
      {[](Manifest& m) { m.files[0].path = std::string("a\0.safetensors", 14); },
       "files[0].name: expected a file name"},
      {[](Manifest& m) { m.files[0].path = "model.bin"; }, "files[0].name: expected a file name"},
      {[](Manifest& m) { m.files[0].path = ""; }, "files[0].name: expected a file name"},
      {[](Manifest& m) { m.files[0].path = std::string(300, 'a') + ".safetensors"; },
       "files[0].name: expected a file name"},
      {[](Manifest& m) { m.files[0].bytes = 0; }, "files[0].bytes: expected an integer from 1"},
      {[](Manifest& m) { m.files[0].bytes = -5; }, "files[0].bytes: expected an integer from 1"},
      {[](Manifest& m) { m.files[0].bytes = 20480; },
       "expected records up to the end of model-core.safetensors at 20480, found"},
      {[](Manifest& m) { m.files.push_back({.path = "z.safetensors", .bytes = 8192}); },
       "files: z.safetensors holds no piece"},
      {[](Manifest& m) { m.pieces.clear(); }, "pieces: expected 1 to"},
      {[](Manifest& m) { m.pieces[0].piece_id = ""; }, "pieces[0].piece_id: expected 1 to 64 characters"},
      {[](Manifest& m) { m.pieces[0].piece_id = "Embed"; }, "pieces[0].piece_id: expected 1 to 64 characters"},
      {[](Manifest& m) { m.pieces[0].piece_id = std::string(65, 'a'); },
       "pieces[0].piece_id: expected 1 to 64 characters"},
      {[](Manifest& m) { m.pieces[0].piece_id = "layer_000_core"; },
       "expected every piece_id once, found \"layer_000_core\" twice"},
      {[](Manifest& m) { m.pieces[0].file = -1; }, "pieces[0].file: expected an integer from 0 to 1, found -1"},
      {[](Manifest& m) { m.pieces[0].file = 2; }, "pieces[0].file: expected an integer from 0 to 1, found 2"},
      {[](Manifest& m) { m.pieces[0].offset = 0; }, "pieces[0].offset: expected an integer from 4096"},
      {[](Manifest& m) { m.pieces[0].offset = 5000; },
       "pieces[0].offset: expected a multiple of the alignment 4096, found 5000"},
      {[](Manifest& m) { m.pieces[0].offset = int64_t{1} << 62; }, "pieces[0].offset: expected an integer from"},
      {[](Manifest& m) { m.pieces[0].bytes = 0; }, "pieces[0].bytes: expected an integer from 4096"},
      {[](Manifest& m) { m.pieces[0].bytes = 4097; },
       "pieces[0].bytes: expected a multiple of the alignment 4096, found 4097"},
      {[](Manifest& m) { m.pieces[0].bytes = int64_t{1} << 62; }, "pieces[0].bytes: expected an integer from"},
      {[](Manifest& m) { m.pieces[0].bytes = 8192; },
       "expected the record of layer_000_core at 12288, found 8192: it overlaps"},
      {[](Manifest& m) {
         m.pieces[1].offset = 12288;
         m.pieces[1].bytes = 4096;
       },
       "expected the record of layer_000_core at 8192, found 12288: there is a hole"},
      {[](Manifest& m) { m.pieces[1].bytes = 4096; },
       "expected records up to the end of model-core.safetensors at 16384, found the last one's end at 12288"},
      {[](Manifest& m) { m.pieces[0].checksum = "ffff"; }, "pieces[0].checksum: expected \"xxh3:\""},
      {[](Manifest& m) { m.pieces[0].checksum[10] = 'F'; }, "pieces[0].checksum: expected \"xxh3:\""},
      {[](Manifest& m) { m.pieces[1].tensors[0].name = ""; }, "pieces[1].tensors[0].name: expected a tensor's name"},
      {[](Manifest& m) { m.pieces[1].tensors[0].name = "__gap_000000"; },
       "pieces[1].tensors[0].name: expected a tensor's name"},
      {[](Manifest& m) { m.pieces[1].tensors[0].name = std::string(2000, 'a'); },
       "pieces[1].tensors[0].name: expected a tensor's name"},
      {[](Manifest& m) { m.pieces[1].tensors[0].name = "model.embed_tokens.weight"; },
       "expected every tensor once, found \"model.embed_tokens.weight\" twice"},
      {[](Manifest& m) { m.pieces[1].tensors[0].shape = {-1}; },
       "pieces[1].tensors[0].shape: expected integers from 0, found -1"},
      {[](Manifest& m) { m.pieces[1].tensors[0].shape = {11}; }, "pieces[1].tensors[0].bytes: expected 44, found 40"},
      {[](Manifest& m) { m.pieces[1].tensors[0].shape = std::vector<int64_t>(17, 1); },
       "shape: expected at most 16 dimensions, found 17"},
      {[](Manifest& m) {
         m.pieces[1].tensors[0].shape = {int64_t{1} << 40, int64_t{1} << 40};
       },
       "shape: expected fewer than 2^63 bytes"},
      {[](Manifest& m) { m.pieces[1].tensors[0].bytes = -40; }, "bytes: expected 40, found -40"},
      {[](Manifest& m) { m.pieces[1].tensors[0].offset = 32; }, "offset: expected a multiple of 64, found 32"},
      {[](Manifest& m) { m.pieces[1].tensors[0].offset = -64; }, "offset: expected an integer from 0"},
      {[](Manifest& m) { m.pieces[1].tensors[1].offset = 64; },
       "offset: expected at least 104, the end of the tensor before it, found 64"},
      {[](Manifest& m) { m.pieces[1].tensors[1].offset = 8192; },
       "bytes: expected at most 0, what the record has left, found 4"},
      {[](Manifest& m) { m.pieces[1].tensors[1].offset = 8256; },
       "offset: expected an integer from 0 to 8192, found 8256"},
  };
  for (const auto& [change, message] : kBad) {
    Manifest manifest = Example();
    change(manifest);
    const Status status = ParseManifest(WriteManifest(manifest), "manifest.json").status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << message;
    EXPECT_THAT(status.message(), AllOf(HasSubstr("manifest.json: "), HasSubstr(message)));
  }
}

Json& FirstOf(Json& object, std::string_view key) {
  for (auto& [name, value] : object.as_object()) {
    if (name == key) return value.as_array()[0];
  }
  ADD_FAILURE() << key;
  return object;
}

// Every member of every kind of object: missing, of each wrong type, and one too many.
TEST(Manifest, RefusesMissingWronglyTypedAndUnknownFields) {
  const Json good = *ParseJson(WriteManifest(Example()), "good");
  const auto root = [](Json& json) -> Json& { return json; };
  const auto file = [](Json& json) -> Json& { return FirstOf(json, "files"); };
  const auto piece = [](Json& json) -> Json& { return FirstOf(json, "pieces"); };
  const auto tensor = [](Json& json) -> Json& { return FirstOf(FirstOf(json, "pieces"), "tensors"); };
  int changes = 0;
  for (const std::function<Json&(Json&)>& place :
       {std::function<Json&(Json&)>(root), std::function<Json&(Json&)>(file), std::function<Json&(Json&)>(piece),
        std::function<Json&(Json&)>(tensor)}) {
    Json copy = good;
    const Json::Object members = place(copy).as_object();
    for (size_t i = 0; i < members.size(); ++i) {
      Json without = good;
      place(without).as_object().erase(place(without).as_object().begin() + static_cast<std::ptrdiff_t>(i));
      EXPECT_EQ(ParseManifest(WriteJson(without), "m").status().code(), StatusCode::kDataLoss) << members[i].first;
      for (const Json& wrong :
           {Json(), Json(true), Json(1.5), Json("text"), Json(Json::Array()), Json(Json::Object())}) {
        if (wrong.TypeName() == members[i].second.TypeName()) continue;
        Json changed = good;
        place(changed).Set(members[i].first, wrong);
        const Status status = ParseManifest(WriteJson(changed), "m").status();
        EXPECT_EQ(status.code(), StatusCode::kDataLoss) << members[i].first << " as " << wrong.TypeName();
        EXPECT_THAT(status.message(), HasSubstr(members[i].first));
        ++changes;
      }
    }
    Json more = good;
    place(more).Set("surprise", 1);
    EXPECT_THAT(ParseManifest(WriteJson(more), "m").status().message(),
                HasSubstr("\"surprise\": expected no such field"));
  }
  EXPECT_GT(changes, 100);
}

TEST(Manifest, RefusesEveryTruncation) {
  const std::string text = WriteManifest(Example());
  // The last characters are the closing brace and the end of its line.
  for (size_t size = 0; size + 1 < text.size(); ++size) {
    ASSERT_EQ(ParseManifest(text.substr(0, size), "m").status().code(), StatusCode::kDataLoss) << size;
  }
}

TEST(Manifest, MutatedTextNeverBreaksThePromises) {
  const std::string good = WriteManifest(Example());
  std::mt19937 random(1);
  for (int round = 0; round < 5000; ++round) {
    std::string text = good;
    for (int i = 0; i < 2; ++i) text[random() % text.size()] = "0123456789[]{}\",:-ex"[random() % 20];
    const Result<Manifest> manifest = ParseManifest(text, "m");
    if (!manifest.ok()) continue;
    const Result<Manifest> again = ParseManifest(WriteManifest(*manifest), "m");
    ASSERT_TRUE(again.ok()) << again.status().message();
  }
}

TEST(Manifest, OtherVersionsAreUnsupported) {
  for (const char* const text : {R"({"format_version":3})", R"({"format_version":1,"anything":true})"}) {
    const Status status = ParseManifest(text, "manifest.json").status();
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    EXPECT_THAT(status.message(), HasSubstr("this build reads version 2"));
  }
  EXPECT_EQ(ParseManifest(R"({"format_version":"2"})", "m").status().code(), StatusCode::kDataLoss);
}

TEST(Manifest, OriginalPacksAreRecognised) {
  const Status status = ParseManifest(R"({"model_type":"llama","config":{},"tie_word_embeddings":false,"num_layers":1,
      "pieces":[{"piece_id":"embed","file":"embed.safetensors","keys":["embed_tokens.weight"],"quant":null}]})",
                                      "manifest.json")
                            .status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_EQ(status.message(),
            "manifest.json: this is the manifest of a pack of the original Nunspark (one file for each piece), not of "
            "pack version 2");
}

class PackFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_.Write("model-core.safetensors", std::string(16384, 'x'));
    folder_.Write("model-experts-00001.safetensors", std::string(8192, 'x'));
  }
  TestFolder folder_;
  TensorIndex index_;
};

TEST_F(PackFolderTest, AddsFilesInTheirOrder) {
  index_.AddFile({.path = "other"});
  ASSERT_TRUE(AddPackFiles(Example(), folder_.path(), index_).ok());
  ASSERT_EQ(index_.files().size(), 3U);
  EXPECT_EQ(index_.files()[1].path, folder_.Path("model-core.safetensors"));
  EXPECT_EQ(index_.files()[2].bytes, 8192);
}

TEST_F(PackFolderTest, NamesMissingAndWronglySizedFiles) {
  const std::string path = folder_.Path("model-experts-00001.safetensors");
  ASSERT_EQ(::truncate(path.c_str(), 8191), 0);
  EXPECT_EQ(AddPackFiles(Example(), folder_.path(), index_).message(),
            path + " is truncated: expected 8192 bytes by the pack's manifest, found 8191");
  ASSERT_EQ(::truncate(path.c_str(), 8193), 0);
  EXPECT_THAT(AddPackFiles(Example(), folder_.path(), index_).message(), HasSubstr("is too long: expected 8192"));
  ASSERT_EQ(::unlink(path.c_str()), 0);
  const Status status = AddPackFiles(Example(), folder_.path(), index_);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_EQ(status.message(), path + " is missing: the pack's manifest lists it with 8192 bytes");
}

TEST(ContentHash, MatchesThePublishedAlgorithm) {
  // XXH3-128 of nothing and of one letter, as xxhsum -H2 prints them.
  EXPECT_EQ(ContentHash().Hex(), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(ChecksumOf(std::string_view("a")), "xxh3:a96faf705af16834e6c632b61e964e1f");
}

TEST(ContentHash, PartsDoNotMatter) {
  const std::string bytes = RandomBytes(3'000'000, 1);
  ContentHash hash;
  for (size_t at = 0; at < bytes.size(); at += 4097) hash.Update(std::string_view(bytes).substr(at, 4097));
  EXPECT_EQ(hash.Checksum(), ChecksumOf(bytes));
  const TestFolder folder;
  EXPECT_EQ(*ChecksumOfFile(folder.Write("a", bytes), 3'000'000), ChecksumOf(bytes));
  EXPECT_EQ(*ChecksumOfFile(folder.Path("a"), 5), ChecksumOf(bytes.substr(0, 5)));
  EXPECT_EQ(ChecksumOfFile(folder.Path("a"), 3'000'001).status().code(), StatusCode::kDataLoss);
  EXPECT_TRUE(IsChecksum(hash.Checksum()));
  EXPECT_FALSE(IsChecksum(hash.Hex()));
}

}  // namespace
}  // namespace nunspark
