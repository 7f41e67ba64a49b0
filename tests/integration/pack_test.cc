// Packs of whole models: of every type and encoding, quantised on the way, and those of the original Nunspark.

#include <cmath>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "formats/checkpoint.h"
#include "integration/support.h"
#include "models/model_layout.h"
#include "pack/packer.h"

namespace nunspark::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Fails the test when it cannot be packed.
PackReport PackModel(const std::string& model, const std::string& out, const std::vector<std::string>& rules = {}) {
  PackOptions options;
  options.out_folder = out;
  for (const std::string& rule : rules) options.quantize.push_back(ParseQuantizeRule(rule).value());
  const Result<Checkpoint> checkpoint = OpenCheckpoint(model);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  if (!checkpoint.ok()) return {};
  const Result<ModelLayout> layout = ResolveModel(*checkpoint);
  EXPECT_TRUE(layout.ok()) << layout.status().message();
  if (!layout.ok()) return {};
  const Result<PackReport> report = Pack(*checkpoint, *layout, options);
  EXPECT_TRUE(report.ok()) << report.status().message();
  return report.ok() ? *report : PackReport{};
}

std::vector<float> LogitsOf(const std::string& model, const std::vector<int32_t>& prompt, int64_t budget = 0) {
  EngineOptions options{
      .context = static_cast<int64_t>(prompt.size()) + 32, .kv = KvType::kF32, .numerics = Numerics::kF32};
  if (budget > 0) options.budget_bytes = budget;
  Runner runner = Runner::Open(model, options);
  return runner.session == nullptr ? std::vector<float>() : runner.Logits(prompt);
}

// Root of the mean square of the difference, as a share of that of `want`.
double RelativeError(const std::vector<float>& found, const std::vector<float>& want) {
  EXPECT_EQ(found.size(), want.size());
  double error = 0, norm = 0;
  for (size_t i = 0; i < std::min(found.size(), want.size()); ++i) {
    error += std::pow(double{found[i]} - double{want[i]}, 2);
    norm += std::pow(double{want[i]}, 2);
  }
  return std::sqrt(error / norm);
}

TEST(Packs, EveryTypeAndEncodingGivesTheSameBitsPacked) {
  for (const std::string& name : GoldenNames()) {
    SCOPED_TRACE(name);
    const std::string folder = FolderOf(name);
    const TempFolder work;
    PackModel(folder, work.path() + "/pack");
    const std::vector<int32_t> prompt = ReadI32(folder + "/golden.safetensors", "prompt");
    EXPECT_TRUE(LogitsOf(work.path() + "/pack", prompt) == LogitsOf(folder, prompt));
  }
}

TEST(Packs, EveryFloatTypeCanBeQuantised) {
  int quantised = 0;
  for (const std::string& name : GoldenNames()) {
    const std::string folder = FolderOf(name);
    const Result<Checkpoint> checkpoint = OpenCheckpoint(folder);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    if (checkpoint->quantization.present || checkpoint->quantization.foreign != ForeignMethod::kNone) continue;
    SCOPED_TRACE(folder);
    const TempFolder work;
    const PackReport report = PackModel(folder, work.path() + "/pack", {"affine:8:32"});
    EXPECT_GT(report.encoded, 0);
    EXPECT_LT(report.weight_bytes, report.source_weight_bytes);
    const std::vector<int32_t> prompt = ReadI32(folder + "/golden.safetensors", "prompt");
    const std::vector<float> want = LogitsOf(folder, prompt);
    const std::vector<float> found = LogitsOf(work.path() + "/pack", prompt);
    // Eight bits keep every weight within 0.4 % of its group's range; made-up models spread that more than real ones.
    EXPECT_LT(RelativeError(found, want), 0.2);
    EXPECT_GT(RelativeError(found, want), 0.0);
    ++quantised;
  }
  EXPECT_GE(quantised, 20);
}

// What is streamed is what is resident.
TEST(Packs, QuantisedPacksDoNotDependOnTheBudget) {
  const std::string folder = DataPath("goldens/qwen3_moe");
  const std::vector<int32_t> prompt = ReadI32(folder + "/golden.safetensors", "prompt");
  for (const std::vector<std::string>& rules :
       {std::vector<std::string>{"affine:4:64", "*.down_proj=affine:6:32", "lm_head=affine:8:64"},
        std::vector<std::string>{"mxfp4", "*.self_attn.*=affine:3:32"}, std::vector<std::string>{"affine:5:32"},
        std::vector<std::string>{"affine:2:32", "*.mlp.gate=none"}}) {
    const TempFolder work;
    PackModel(folder, work.path() + "/pack", rules);
    const std::vector<float> resident = LogitsOf(work.path() + "/pack", prompt);
    EXPECT_FALSE(resident.empty());
    EXPECT_TRUE(LogitsOf(work.path() + "/pack", prompt, 400'000) == resident) << rules[0];
  }
}

TEST(Packs, TheCommandSaysWhatItDid) {
  const TempFolder work;
  const std::string nunspark = NUNSPARK_BINARY;
  const std::string model = DataPath("goldens/qwen3_moe");
  std::string out, err;
  const std::string pack = work.path() + "/pack";
  ASSERT_EQ(RunShell(fmt::format("{} pack --quantize affine:4:64 --quantize 'lm_head=affine:8:32' {} {}", nunspark,
                                 model, pack),
                     &out, &err),
            0)
      << err;
  EXPECT_EQ(out, "");
  EXPECT_THAT(err, HasSubstr("weights 823.6 KB -> "));
  EXPECT_TRUE(err.ends_with(fmt::format("\npacked 3 layers into {}\n", pack))) << err;
  EXPECT_EQ(RunShell(fmt::format("{} verify {}", nunspark, pack), &out, &err), 0) << err;
  EXPECT_EQ(RunShell(fmt::format("{} pack {} {} --quantize affine:4:63", nunspark, model, pack), &out, &err), 1);
  EXPECT_EQ(err, "Error: --quantize: group size: expected 32, 64 or 128, found \"affine:4:63\"\n");
  EXPECT_EQ(RunShell(fmt::format("{} pack {} {} --quantize affine:8:64", nunspark, model, pack), &out, &err), 1);
  EXPECT_THAT(err, AllOf(HasSubstr("Error: "), HasSubstr("quantised otherwise")));
  EXPECT_EQ(RunShell(fmt::format("{} pack --help", nunspark), &out, &err), 0);
  EXPECT_THAT(out, HasSubstr("Routers become affine:8:64"));
}

TEST(Packs, OfTheOriginalGiveTheirGoldenTokens) {
  if (SharedPath("").empty()) GTEST_SKIP() << "full reference set not present";
  for (const std::string name : {"llama", "qwen3_moe_4bit", "gpt_oss_mxfp4_q8", "gemma3_mm"}) {
    SCOPED_TRACE(name);
    const std::string folder = SharedPath("packs/" + name);
    const std::string golden = folder + "/golden.safetensors";
    const TempFolder work;
    PackModel(folder, work.path() + "/pack");
    const std::vector<int32_t> prompt = ReadI32(golden, "prompt");
    const std::vector<float> want = ReadF32(golden, "logits");
    const std::vector<int32_t> want_greedy = ReadI32(golden, "greedy");
    std::vector<float> before;
    for (const std::string& model : {folder, work.path() + "/pack"}) {
      Runner runner = Runner::Open(model, {.context = 64, .kv = KvType::kF32, .numerics = Numerics::kF32});
      ASSERT_TRUE(runner.session != nullptr);
      const std::vector<float> found = runner.Logits(prompt);
      ASSERT_EQ(found.size(), want.size());
      EXPECT_LE(RelativeError(found, want), 1e-4);
      EXPECT_TRUE(before.empty() || found == before);
      before = found;
      std::vector<int32_t> greedy;
      const auto vocab = static_cast<ptrdiff_t>(runner.files->vocab_size());
      runner.Greedy({found.end() - vocab, found.end()}, static_cast<int>(want_greedy.size()), &greedy, nullptr);
      EXPECT_EQ(greedy, want_greedy) << model;
    }
  }
}

}  // namespace
}  // namespace nunspark::test
