#include "pack/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/rng.h"
#include "formats/checksums.h"
#include "formats/content_hash.h"
#include "formats/manifest.h"
#include "pack/test_model.h"

namespace nunspark {
namespace {

using testing::HasSubstr;

// A pack with every kind of file, and its bytes.
class VerifyTest : public testing::Test {
 protected:
  void SetUp() override {
    TestModel model = MakeTestModel({.layers = 2, .experts = 4, .bits = 4});
    model.side_files["tokenizer.json"] = R"({"model": {"vocab": {"a": 0}}})";
    model.side_files["chat_template.jinja"] = "{{ messages }}";
    model.WriteTo(work_ / "model");
    const Result<PackReport> report = PackFolder(work_ / "model", {.out_folder = pack_, .split_bytes = 30000});
    ASSERT_TRUE(report.ok()) << report.status().message();
    content_ = FolderContent(pack_);
  }

  std::string Path(const std::string& name) const { return JoinPath(pack_, name); }

  void Write(const std::string& name, std::string_view content) const {
    std::ofstream(Path(name), std::ios::binary | std::ios::trunc) << content;
  }
  void Restore(const std::string& name) const { Write(name, content_.at(name)); }

  void Flip(const std::string& name, size_t at, uint8_t mask) const {
    std::fstream file(Path(name), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(content_.at(name)[at] ^ mask));
  }

  std::vector<std::string> Problems() const {
    const Result<VerifyReport> report = Verify(pack_);
    if (!report.ok()) return {"error: " + report.status().message()};
    EXPECT_EQ(report->ok(), report->problems.empty());
    std::vector<std::string> texts;
    for (const VerifyProblem& problem : report->problems) texts.push_back(ProblemText(problem));
    return texts;
  }

  TempFolder work_{FolderPlace::kMemory};
  std::string pack_ = work_ / "pack";
  std::map<std::string, std::string> content_;
};

TEST_F(VerifyTest, FindsNothingInAnIntactPack) {
  int64_t last = 0;
  int64_t total = 0;
  const Result<VerifyReport> report = Verify(pack_, [&](int64_t done, int64_t all) {
    EXPECT_GE(done, last);
    last = done;
    total = all;
    return true;
  });
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_TRUE(report->ok()) << ProblemText(report->problems.at(0));
  int64_t bytes = 0;
  for (const auto& [name, text] : content_) bytes += static_cast<int64_t>(text.size());
  // Every byte was read and compared, none of them twice.
  EXPECT_EQ(report->bytes, bytes);
  EXPECT_EQ(last, total);
  EXPECT_EQ(report->files, static_cast<int64_t>(content_.size()));
  EXPECT_EQ(report->pieces, 2 + 2 * 5);
}

TEST_F(VerifyTest, FindsEveryOneOf200RandomFlips) {
  std::vector<std::pair<std::string, size_t>> ends;
  size_t bytes = 0;
  for (const auto& [name, text] : content_) ends.emplace_back(name, bytes += text.size());
  for (uint32_t i = 0; i < 200; ++i) {
    const auto draw = Philox({i, 0, 0, 0}, {20, 26});
    size_t at = draw[0] % bytes;
    std::string name;
    size_t begin = 0;
    for (const auto& [file, end] : ends) {
      if (at < end) {
        name = file;
        break;
      }
      begin = end;
    }
    at -= begin;
    Flip(name, at, static_cast<uint8_t>(1U << (draw[1] % 8)));
    EXPECT_FALSE(Problems().empty()) << name << " at " << at;
    Restore(name);
  }
  EXPECT_TRUE(Problems().empty());
}

TEST_F(VerifyTest, FindsFlipsInEveryFileHeadersAndPaddingIncluded) {
  for (const auto& [name, text] : content_) {
    // Small files byte by byte or nearly so; of the others the header, where the padding is, and some of the records.
    const size_t step = std::max<size_t>(1, text.size() / 150);
    for (size_t at = 0; at < text.size(); at += step) {
      Flip(name, at, 0x10);
      EXPECT_FALSE(Problems().empty()) << name << " at " << at;
      Flip(name, at, 0);
    }
  }
  EXPECT_TRUE(Problems().empty());
}

TEST_F(VerifyTest, SaysWhichRecordIsDamaged) {
  const Manifest manifest = ParseManifest(content_.at("manifest.json"), "manifest.json").value();
  const ManifestPiece* const piece = FindPiece(manifest, "layer_001_expert_2");
  const std::string name = manifest.files[static_cast<size_t>(piece->file)].path;
  Flip(name, static_cast<size_t>(piece->offset + piece->bytes) - 1, 1);
  const std::vector<std::string> problems = Problems();
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_THAT(problems[0], HasSubstr(name + ": record of layer_001_expert_2 at "));
  EXPECT_THAT(problems[0], HasSubstr("expected checksum " + piece->checksum));
}

TEST_F(VerifyTest, ListsAllProblemsNotOnlyTheFirst) {
  Flip("model-core.safetensors", content_.at("model-core.safetensors").size() - 1, 1);
  Flip("model-core.safetensors", 20, 1);
  Flip("tokenizer.json", 0, 1);
  std::filesystem::remove(Path("chat_template.jinja"));
  Write("extra.txt", "x");
  const std::vector<std::string> problems = Problems();
  EXPECT_EQ(problems.size(), 5U);
  EXPECT_THAT(problems, testing::UnorderedElementsAre(
                            HasSubstr("model-core.safetensors: record of norm_head"),
                            HasSubstr("model-core.safetensors: header"), HasSubstr("tokenizer.json: content"),
                            HasSubstr("chat_template.jinja: file: expected present, found missing"),
                            HasSubstr("extra.txt: file: expected only files of the pack")));
}

TEST_F(VerifyTest, FindsCutExtendedAndMissingFiles) {
  for (const auto& [name, text] : content_) {
    SCOPED_TRACE(name);
    for (const size_t keep : {size_t{0}, size_t{1}, text.size() / 2, text.size() - 1}) {
      Write(name, text.substr(0, keep));
      EXPECT_FALSE(Problems().empty()) << "cut to " << keep;
    }
    Write(name, text + '\0');
    EXPECT_FALSE(Problems().empty()) << "one byte more";
    Write(name, text + " ");
    EXPECT_FALSE(Problems().empty()) << "one space more";
    std::filesystem::remove(Path(name));
    EXPECT_THAT(Problems(), testing::Contains(name + ": file: expected present, found missing"));
    std::filesystem::create_directory(Path(name));
    EXPECT_FALSE(Problems().empty()) << "a folder instead";
    std::filesystem::remove(Path(name));
    Restore(name);
  }
  EXPECT_TRUE(Problems().empty());
}

TEST_F(VerifyTest, FindsSwappedFiles) {
  const auto swap = [&](const std::string& a, const std::string& b) {
    std::filesystem::rename(Path(a), Path("temporary"));
    std::filesystem::rename(Path(b), Path(a));
    std::filesystem::rename(Path("temporary"), Path(b));
  };
  for (const auto& [a, text_a] : content_) {
    for (const auto& [b, text_b] : content_) {
      if (a >= b) continue;
      swap(a, b);
      EXPECT_FALSE(Problems().empty()) << a << " and " << b;
      swap(a, b);
    }
  }
  EXPECT_TRUE(Problems().empty());
}

TEST_F(VerifyTest, FindsExtraFilesFoldersAndLinks) {
  std::filesystem::create_directory(Path("folder"));
  EXPECT_THAT(Problems(), testing::ElementsAre(HasSubstr("folder: file")));
  std::filesystem::remove(Path("folder"));
  Write("model-experts-00099.safetensors", "x");
  EXPECT_THAT(Problems(), testing::ElementsAre(HasSubstr("model-experts-00099.safetensors: file")));
  std::filesystem::remove(Path("model-experts-00099.safetensors"));
  std::filesystem::create_symlink("tokenizer.json", Path(".link"));
  EXPECT_THAT(Problems(), testing::ElementsAre(HasSubstr(".link: file")));
}

// Changed and given fitting checksums, as a careless tool would: header and manifest still contradict each other.
TEST_F(VerifyTest, FindsAHeaderThatContradictsTheManifest) {
  Manifest manifest = ParseManifest(content_.at("manifest.json"), "manifest.json").value();
  manifest.pieces[0].tensors[0].name = "model.another_name.weight";
  const std::string text = WriteManifest(manifest);
  std::vector<FileChecksum> checksums = ParseChecksums(content_.at("checksums.json"), "checksums.json").value();
  for (FileChecksum& file : checksums) {
    if (file.name == "manifest.json") {
      file = {.name = file.name, .bytes = static_cast<int64_t>(text.size()), .checksum = ChecksumOf(text)};
    }
  }
  Write("manifest.json", text);
  Write("checksums.json", WriteChecksums(checksums));
  EXPECT_THAT(Problems(), testing::ElementsAre(HasSubstr("model-core.safetensors: header: expected tensor "
                                                         "model.another_name.weight")));
  // And a checksum file that leaves a file or a part of a header out.
  Write("manifest.json", content_.at("manifest.json"));
  checksums = ParseChecksums(content_.at("checksums.json"), "checksums.json").value();
  std::erase_if(checksums, [](const FileChecksum& file) { return file.name == "model-core.safetensors"; });
  Write("checksums.json", WriteChecksums(checksums));
  EXPECT_THAT(Problems(), testing::ElementsAre(HasSubstr("entry of model-core.safetensors: expected present")));
  const std::string& core = content_.at("model-core.safetensors");
  checksums.push_back({.name = "model-core.safetensors", .bytes = 8, .checksum = ChecksumOf(core.substr(0, 8))});
  Write("checksums.json", WriteChecksums(checksums));
  EXPECT_THAT(Problems(), testing::ElementsAre(HasSubstr("entry of model-core.safetensors: expected")));
}

TEST_F(VerifyTest, FolderThatIsNoPackIsAnError) {
  EXPECT_EQ(Verify(work_ / "model").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(Verify(work_ / "nothing").status().code(), StatusCode::kNotFound);
}

TEST_F(VerifyTest, CanBeCancelled) {
  EXPECT_EQ(Verify(pack_, [](int64_t, int64_t) { return false; }).status().code(), StatusCode::kCancelled);
}

}  // namespace
}  // namespace nunspark
