// Every model type against reference logits and greedy tokens.

#include <cmath>
#include <filesystem>

#include "integration/support.h"

namespace nunspark::test {
namespace {

// One golden folder: config.json, model.safetensors, golden.safetensors (prompt, logits, greedy, margin).
void CheckGolden(const std::string& folder, double absolute_tolerance = 0) {
  SCOPED_TRACE(folder);
  const std::string golden = folder + "/golden.safetensors";
  const std::vector<int32_t> prompt = ReadI32(golden, "prompt");
  const std::vector<float> want = ReadF32(golden, "logits");
  const std::vector<int32_t> want_greedy = ReadI32(golden, "greedy");
  const int steps = static_cast<int>(want_greedy.size());

  Runner runner = Runner::Open(folder, {.context = static_cast<int64_t>(prompt.size()) + steps, .kv = KvType::kF32});
  ASSERT_TRUE(runner.session != nullptr);
  const std::vector<float> found = runner.Logits(prompt);
  ASSERT_EQ(found.size(), want.size());
  double largest = 0, worst = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    largest = std::max(largest, std::abs(double{want[i]}));
    worst = std::max(worst, std::abs(double{want[i]} - double{found[i]}));
  }
  const double tolerance = absolute_tolerance > 0 ? absolute_tolerance : 2e-4 * largest;
  EXPECT_LE(worst, tolerance);
  testing::Test::RecordProperty(std::filesystem::path(folder).filename().string() + "_max_error",
                                std::to_string(worst));

  std::vector<int32_t> greedy;
  const size_t vocab = static_cast<size_t>(runner.files->vocab_size());
  runner.Greedy({found.end() - static_cast<ptrdiff_t>(vocab), found.end()}, steps, &greedy, nullptr);
  EXPECT_EQ(greedy, want_greedy);
}

TEST(Golden, EveryTypeOfTheCompactSet) {
  int cases = 0;
  for (const auto& entry : std::filesystem::directory_iterator(DataPath("goldens"))) {
    CheckGolden(entry.path().string());
    ++cases;
  }
  EXPECT_EQ(cases, 6);
}

TEST(Golden, FullFloatSet) {
  if (SharedPath("").empty()) GTEST_SKIP() << "full reference set not present";
  for (const char* name :
       {"llama", "llama_hd32", "llama_linear", "llama_llama3rope", "llama_yarn", "qwen2", "qwen2_tied", "qwen3",
        "qwen3_tied", "qwen3_moe", "qwen3_moe_dense0", "qwen3_moe_mixed", "qwen3_moe_stacked"}) {
    CheckGolden(SharedPath("goldens/float/") + name);
  }
  CheckGolden(SharedPath("goldens/float/llama_tied_bias"), 1e-3);
}

TEST(Golden, FullQuantisedSet) {
  if (SharedPath("").empty()) GTEST_SKIP() << "full reference set not present";
  for (const char* name :
       {"llama_4bit_bias", "llama_4bit_f16", "llama_4bit_f32", "llama_4bit_g32", "llama_4bit_g64", "llama_4bit_tied",
        "llama_8bit_g64", "llama_mixed_noentry", "qwen3_moe_4bit_g64", "qwen3_moe_8bit_g32"}) {
    CheckGolden(SharedPath("goldens/quant/") + name);
  }
}

}  // namespace
}  // namespace nunspark::test
