// How packing behaves: what it refuses, reuses, resumes and reports.
#include "pack/packer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <fstream>
#include <utility>

#include "pack/journal.h"
#include "pack/pack_plan.h"
#include "pack/test_model.h"
#include "pack/verify.h"

namespace nunspark {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TestModel SmallModel() { return MakeTestModel({.layers = 3}); }

// Packs with a callback that cancels at call number `stop`.
Status CancelAt(const std::string& source, PackOptions options, int stop) {
  int calls = 0;
  options.progress = [&](int64_t, int64_t) { return ++calls < stop; };
  return PackFolder(source, options).status();
}

TEST(Packer, ReusesACompletePackOfTheSameSource) {
  const TempFolder work;
  SmallModel().WriteTo(work / "model");
  const Result<PackReport> first = PackTo(work / "model", work / "pack");
  ASSERT_TRUE(first.ok()) << first.status().message();
  EXPECT_FALSE(first->reused);
  const auto content = FolderContent(work / "pack");
  const Result<PackReport> second = PackTo(work / "model", work / "pack/");
  ASSERT_TRUE(second.ok()) << second.status().message();
  EXPECT_TRUE(second->reused);
  EXPECT_EQ(second->bytes, first->bytes);
  EXPECT_EQ(second->pieces, first->pieces);
  EXPECT_TRUE(FolderContent(work / "pack") == content);
}

TEST(Packer, NeverWritesIntoAFolderThatHoldsSomethingElse) {
  const TempFolder work;
  TestModel model = SmallModel();
  model.WriteTo(work / "model");
  const auto refused = [&](std::string_view reason, const PackOptions& options) {
    const auto before = FolderContent(work / "pack");
    const Result<PackReport> report = PackFolder(work / "model", options);
    EXPECT_EQ(report.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(report.status().message(), HasSubstr(reason));
    EXPECT_TRUE(FolderContent(work / "pack") == before);
    EXPECT_FALSE(FolderExists(work / "pack.partial"));
  };
  const PackOptions options{.out_folder = work / "pack"};
  std::filesystem::create_directory(work / "pack");
  ASSERT_TRUE(WriteFileAtomically(work / "pack/letter.txt", "dear").ok());
  refused("is not a pack", options);
  ASSERT_TRUE(WriteFileAtomically(work / "pack/manifest.json", "{}").ok());
  refused("not one that can be used", options);

  std::filesystem::remove_all(work / "pack");
  ASSERT_TRUE(PackFolder(work / "model", options).ok());
  refused("other options", {.out_folder = work / "pack", .alignment = 16384});
  ASSERT_TRUE(WriteFileAtomically(work / "model/vocab.json", "{}").ok());
  refused("another vocab.json", options);
  std::filesystem::remove(work / "model/vocab.json");
  model.config.Set("max_position_embeddings", 512);
  model.WriteTo(work / "model");
  refused("another config.json", options);
  MakeTestModel({.layers = 2}).WriteTo(work / "model");
  refused("other weights", options);
}

TEST(Packer, DamagedPackIsNotReused) {
  const TempFolder work;
  SmallModel().WriteTo(work / "model");
  for (const char* name : {"model-core.safetensors", "checksums.json"}) {
    std::filesystem::remove_all(work / "pack");
    ASSERT_TRUE(PackTo(work / "model", work / "pack").ok());
    std::filesystem::resize_file(work / (std::string("pack/") + name), 100);
    const Result<PackReport> report = PackTo(work / "model", work / "pack");
    EXPECT_EQ(report.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(report.status().message(), HasSubstr("damaged"));
  }
}

TEST(Packer, EmptyFolderAndMissingParentsAreFine) {
  const TempFolder work;
  SmallModel().WriteTo(work / "model");
  std::filesystem::create_directory(work / "empty");
  EXPECT_TRUE(PackTo(work / "model", work / "empty").ok());
  EXPECT_TRUE(FileExists(work / "empty/manifest.json"));
  EXPECT_TRUE(PackTo(work / "model", work / "a/b/c///").ok());
  EXPECT_TRUE(FileExists(work / "a/b/c/manifest.json"));
  std::filesystem::create_directory(work / "target");
  std::filesystem::create_directory_symlink(work / "target", work / "link");
  EXPECT_TRUE(PackTo(work / "model", work / "link").ok());
  EXPECT_TRUE(FileExists(work / "target/manifest.json"));
  std::filesystem::create_directory_symlink(work / "nowhere", work / "dangling");
  EXPECT_THAT(PackTo(work / "model", work / "dangling").status().message(), HasSubstr("symbolic link"));
}

TEST(Packer, SourceAsOutputIsRefused) {
  const TempFolder work;
  SmallModel().WriteTo(work / "model");
  std::filesystem::create_directory_symlink(work / "model", work / "other_name");
  for (const char* out : {"model", "model/", "other_name", "model/../model"}) {
    const Result<PackReport> report = PackTo(work / "model", work / out);
    EXPECT_EQ(report.status().code(), StatusCode::kInvalidArgument) << out;
    EXPECT_THAT(report.status().message(), HasSubstr("is the model itself")) << out;
  }
  EXPECT_THAT(Names(FolderContent(work / "model")), ElementsAre("config.json", "model.safetensors"));
}

TEST(Packer, PackOfAPackIsRefused) {
  const TempFolder work;
  SmallModel().WriteTo(work / "model");
  ASSERT_TRUE(PackTo(work / "model", work / "pack").ok());
  const Result<PackReport> report = PackTo(work / "pack", work / "again");
  EXPECT_EQ(report.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(report.status().message(), HasSubstr("already a pack"));
}

TEST(Packer, BadOptionsAreRefused) {
  const TempFolder work;
  SmallModel().WriteTo(work / "model");
  for (const int64_t alignment : {0, 512, 5000, 12288, 2 << 20}) {
    EXPECT_EQ(PackFolder(work / "model", {.out_folder = work / "pack", .alignment = alignment}).status().code(),
              StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(PackFolder(work / "model", {.out_folder = work / "pack", .split_bytes = 0}).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(PackFolder(work / "model", {.out_folder = ""}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(PackFolder(work / "model", {.out_folder = "/"}).status().code(), StatusCode::kInvalidArgument);
}

TEST(Packer, TensorsThatWouldBeLostAreAnError) {
  const TempFolder work;
  TestModel model = SmallModel();
  model.Add("model.layers.0.self_attn.sinks", DType::kBF16, {4});
  model.WriteTo(work / "model");
  const Result<PackReport> report = PackTo(work / "model", work / "pack");
  EXPECT_EQ(report.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(report.status().message(), HasSubstr("model.layers.0.self_attn.sinks"));
}

TEST(Packer, SuperfluousTensorsAreDroppedAndReported) {
  const TempFolder work;
  TestModel model = MakeTestModel({.layers = 2, .tied = true});
  model.Add("model.layers.0.self_attn.rotary_emb.inv_freq", DType::kF32, {8});
  model.Add("model.layers.2.input_layernorm.weight", DType::kBF16, {64});
  model.Add("lm_head.weight", DType::kBF16, {97, 64});
  model.WriteTo(work / "model");
  const Result<PackReport> report = PackTo(work / "model", work / "pack");
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_THAT(report->dropped, ElementsAre("lm_head.weight", "model.layers.0.self_attn.rotary_emb.inv_freq",
                                           "model.layers.2.input_layernorm.weight"));
}

TEST(Packer, WrapperPrefixIsRemovedAndOtherModalitiesAreDropped) {
  const TempFolder work;
  TestModel model = SmallModel();
  for (TestTensor& tensor : model.tensors) tensor.name = "language_model." + tensor.name;
  model.Add("vision_tower.patch.weight", DType::kBF16, {4, 4});
  model.WriteTo(work / "model");
  const Result<PackReport> report = PackTo(work / "model", work / "pack");
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_THAT(report->dropped, ElementsAre("vision_tower.patch.weight"));
  const Checkpoint pack = OpenCheckpoint(work / "pack").value();
  EXPECT_NE(pack.tensors.Find("model.layers.2.mlp.up_proj.weight"), nullptr);
  EXPECT_NE(pack.tensors.Find("lm_head.weight"), nullptr);
  EXPECT_TRUE(ResolveModel(pack).ok());
}

TEST(Packer, LfsPointerAmongTheSideFilesIsNotCopied) {
  const TempFolder work;
  TestModel model = SmallModel();
  model.side_files["tokenizer.json"] = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n";
  model.WriteTo(work / "model");
  const Result<PackReport> report = PackTo(work / "model", work / "pack");
  EXPECT_EQ(report.status().code(), StatusCode::kDataLoss);
  EXPECT_THAT(report.status().message(), HasSubstr("tokenizer.json is a Git LFS pointer"));
}

TEST(Packer, ProgressRisesToTheTotal) {
  const TempFolder work;
  TestModel model = MakeTestModel({.layers = 3, .vocab = 70001});  // an embedding of more than one buffer
  model.side_files["tokenizer.json"] = "{}";
  model.WriteTo(work / "model");
  int64_t last = 0;
  int64_t total = 0;
  int calls = 0;
  const Result<PackReport> report =
      PackFolder(work / "model", {.out_folder = work / "pack", .progress = [&](int64_t done, int64_t all) {
                                    EXPECT_GE(done, last);
                                    EXPECT_TRUE(total == 0 || total == all);
                                    last = done;
                                    total = all;
                                    ++calls;
                                    return true;
                                  }});
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(last, total);
  EXPECT_GT(calls, 7);
}

TEST(Packer, CancelledAnywhereItResumesToTheSamePack) {
  const TempFolder work(FolderPlace::kMemory);
  TestModel model = MakeTestModel({.layers = 2, .experts = 6});
  model.side_files["tokenizer.json"] = "{\"a\": 1}";
  model.WriteTo(work / "model");
  PackOptions options{.out_folder = work / "reference", .split_bytes = 30000};
  ASSERT_TRUE(PackFolder(work / "model", options).ok());
  const auto reference = FolderContent(work / "reference");
  int resumed = 0;
  for (int stop = 1;; ++stop) {
    options.out_folder = work / fmt::format("pack{}", stop);
    const Status status = CancelAt(work / "model", options, stop);
    if (status.ok()) break;
    EXPECT_EQ(status.code(), StatusCode::kCancelled);
    EXPECT_FALSE(FolderExists(options.out_folder));
    const bool kept = FolderExists(options.out_folder + ".partial");
    EXPECT_EQ(status.message().find("the same command continues") != std::string::npos, kept);
    const Result<PackReport> report = PackFolder(work / "model", options);
    ASSERT_TRUE(report.ok()) << report.status().message();
    EXPECT_EQ(report->resumed, kept);
    resumed += report->resumed ? 1 : 0;
    EXPECT_TRUE(FolderContent(options.out_folder) == reference) << stop;
    EXPECT_FALSE(FolderExists(options.out_folder + ".partial"));
  }
  EXPECT_GT(resumed, 10);
}

TEST(Packer, ResumingDoesNotReadFinishedRecordsAgain) {
  const TempFolder work;
  MakeTestModel({.layers = 2, .experts = 6}).WriteTo(work / "model");
  const Checkpoint checkpoint = OpenCheckpoint(work / "model").value();
  const ModelLayout layout = ResolveModel(checkpoint).value();
  PackOptions options{.out_folder = work / "pack", .split_bytes = 30000};
  int64_t cancelled_at = 0;
  options.progress = [&](int64_t done, int64_t total) { return (cancelled_at = done) < total * 2 / 3; };
  EXPECT_EQ(Pack(checkpoint, layout, options).status().code(), StatusCode::kCancelled);
  // Destroy what lies under the finished records: only reading it again would notice.
  const auto time = std::filesystem::last_write_time(work / "model/model.safetensors");
  const std::string original = FolderContent(work / "model").at("model.safetensors");
  const PackPlan plan = MakePackPlan(checkpoint, layout, options).value();
  Result<Journal> journal = Journal::Open(work / "pack.partial/journal");
  ASSERT_TRUE(journal.ok()) << journal.status().message();
  ASSERT_EQ(journal->identity(), plan.identity);
  ASSERT_GT(journal->finished().size(), 6U);
  std::string damaged = original;
  for (const auto& [piece, checksum] : journal->finished()) {
    for (const TensorSlice& part : layout.pieces[static_cast<size_t>(piece)].parts) {
      std::fill_n(damaged.begin() + part.offset, part.bytes, 'x');
    }
  }
  journal = Result<Journal>(Journal());
  { std::ofstream(work / "model/model.safetensors", std::ios::in | std::ios::binary) << damaged; }
  std::filesystem::last_write_time(work / "model/model.safetensors", time);
  options.progress = nullptr;
  const Result<PackReport> report = Pack(checkpoint, layout, options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_TRUE(report->resumed);
  { std::ofstream(work / "model/model.safetensors", std::ios::in | std::ios::binary) << original; }
  options.out_folder = work / "reference";
  ASSERT_TRUE(Pack(checkpoint, layout, options).ok());
  EXPECT_TRUE(FolderContent(work / "pack") == FolderContent(work / "reference"));
}

TEST(Packer, AnotherSourceOrOtherOptionsStartAfresh) {
  const TempFolder work;
  const TestModel model = MakeTestModel({.layers = 2, .experts = 6});
  model.WriteTo(work / "model");
  PackOptions options{.out_folder = work / "pack", .split_bytes = 30000};
  ASSERT_FALSE(CancelAt(work / "model", options, 15).ok());
  ASSERT_TRUE(FolderExists(work / "pack.partial"));
  // Larger files, so fewer of them: what was written under the old plan must not stay.
  options.split_bytes = 100000;
  Result<PackReport> report = PackFolder(work / "model", options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_FALSE(report->resumed);
  options.out_folder = work / "reference";
  ASSERT_TRUE(PackFolder(work / "model", options).ok());
  EXPECT_TRUE(FolderContent(work / "pack") == FolderContent(work / "reference"));

  // The same names, sizes and headers, other weights.
  options.out_folder = work / "second";
  ASSERT_FALSE(CancelAt(work / "model", options, 10).ok());
  TestModel changed = model;
  for (TestTensor& tensor : changed.tensors) tensor.data[0] = static_cast<char>(tensor.data[0] ^ 1);
  changed.WriteTo(work / "model");
  report = PackFolder(work / "model", options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_FALSE(report->resumed);
  options.out_folder = work / "second_reference";
  ASSERT_TRUE(PackFolder(work / "model", options).ok());
  EXPECT_TRUE(FolderContent(work / "second") == FolderContent(work / "second_reference"));
}

TEST(Packer, JournalIsOnlyBelievedAboutFilesThatAreThere) {
  const TempFolder work;
  MakeTestModel({.layers = 2, .experts = 6}).WriteTo(work / "model");
  PackOptions options{.out_folder = work / "reference", .split_bytes = 30000};
  ASSERT_TRUE(PackFolder(work / "model", options).ok());
  options.out_folder = work / "pack";
  ASSERT_FALSE(CancelAt(work / "model", options, 20).ok());
  std::filesystem::remove(work / "pack.partial/pack/model-core.safetensors");
  std::filesystem::resize_file(work / "pack.partial/pack/model-experts-00001.safetensors", 5000);
  // A torn last line, as after a power cut.
  const auto journal_bytes = std::filesystem::file_size(work / "pack.partial/journal");
  std::filesystem::resize_file(work / "pack.partial/journal", journal_bytes - 10);
  const Result<PackReport> report = PackFolder(work / "model", options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_TRUE(FolderContent(work / "pack") == FolderContent(work / "reference"));
}

TEST(Packer, ForeignPartialFoldersAreLeftAlone) {
  const TempFolder work;
  SmallModel().WriteTo(work / "model");
  std::filesystem::create_directory(work / "pack.partial");
  ASSERT_TRUE(WriteFileAtomically(work / "pack.partial/notes", "mine").ok());
  Result<PackReport> report = PackTo(work / "model", work / "pack");
  EXPECT_EQ(report.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(report.status().message(), HasSubstr("holds something else"));
  ASSERT_TRUE(WriteFileAtomically(work / "pack.partial/journal", "dear diary\n").ok());
  report = PackTo(work / "model", work / "pack");
  EXPECT_EQ(report.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(report.status().message(), HasSubstr("not the journal of a pack"));
  EXPECT_EQ(FolderContent(work / "pack.partial").at("journal"), "dear diary\n");
}

TEST(Packer, TwoPackersExcludeEachOther) {
  const TempFolder work;
  SmallModel().WriteTo(work / "model");
  Status inner;
  PackOptions options{.out_folder = work / "pack"};
  options.progress = [&](int64_t, int64_t) {
    if (inner.ok()) inner = PackTo(work / "model", work / "pack").status();
    return true;
  };
  EXPECT_TRUE(PackFolder(work / "model", options).ok());
  EXPECT_EQ(inner.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(inner.message(), HasSubstr("another process is packing"));
  EXPECT_TRUE(Verify(work / "pack")->ok());
}

TEST(Packer, SourceThatShrinksIsReported) {
  const TempFolder work;
  SmallModel().WriteTo(work / "model");
  const Checkpoint checkpoint = OpenCheckpoint(work / "model").value();
  const ModelLayout layout = ResolveModel(checkpoint).value();
  PackOptions options{.out_folder = work / "pack"};
  bool first = true;
  options.progress = [&](int64_t, int64_t) {
    if (std::exchange(first, false)) std::filesystem::resize_file(work / "model/model.safetensors", 30000);
    return true;
  };
  const Result<PackReport> report = Pack(checkpoint, layout, options);
  EXPECT_EQ(report.status().code(), StatusCode::kDataLoss);
  EXPECT_THAT(report.status().message(), HasSubstr("the file ends at 30000"));
  EXPECT_FALSE(FolderExists(work / "pack"));
  // Before a byte is written, when it shrank earlier.
  EXPECT_THAT(Pack(checkpoint, layout, options).status().message(),
              HasSubstr("has changed since the model was opened"));
}

TEST(Packer, LeftoverOfAPublishedPackIsTidiedUp) {
  const TempFolder work;
  SmallModel().WriteTo(work / "model");
  ASSERT_TRUE(PackTo(work / "model", work / "pack").ok());
  // As after a kill between the rename and the removal of the journal.
  std::filesystem::create_directory(work / "pack.partial");
  ASSERT_TRUE(Journal::Open(work / "pack.partial/journal")->Start(std::string(32, '0')).ok());
  const Result<PackReport> report = PackTo(work / "model", work / "pack");
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_TRUE(report->reused);
  EXPECT_FALSE(FolderExists(work / "pack.partial"));
}

}  // namespace
}  // namespace nunspark
