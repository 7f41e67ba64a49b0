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
  // Where the frequencies depend on the length, a run with a cache is judged by the answer of one.
  const bool cached = std::filesystem::path(folder).filename() == "internlm3_dynamic_long";
  const std::vector<int32_t> want_greedy = ReadI32(golden, cached ? "greedy_cached" : "greedy");
  const int steps = static_cast<int>(want_greedy.size());

  Runner runner = Runner::Open(
      folder, {.context = static_cast<int64_t>(prompt.size()) + steps, .kv = KvType::kF32, .numerics = Numerics::kF32});
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

  // With the defaults, which keep keys and values in half precision, tokens may differ only where two were close.
  const std::vector<float> margins = ReadF32(golden, "margin");
  Runner defaults = Runner::Open(folder, {.context = static_cast<int64_t>(prompt.size()) + steps});
  const std::vector<float> rounded = defaults.Logits(prompt);
  greedy.clear();
  defaults.Greedy({rounded.end() - static_cast<ptrdiff_t>(vocab), rounded.end()}, steps, &greedy, nullptr);
  const auto [found_at, want_at] = std::mismatch(greedy.begin(), greedy.end(), want_greedy.begin());
  if (want_at != want_greedy.end()) {
    EXPECT_LE(margins[static_cast<size_t>(want_at - want_greedy.begin())], 0.02 * largest) << "with the defaults";
  }
}

// Cases whose logits are large for their errors: judged by an absolute bound.
bool IsAbsolute(const std::string& name) { return name == "llama_tied_bias" || name == "llama_mxfp4_tied"; }

// Every folder of `set` that holds a case; returns how many.
int CheckEveryCase(const std::string& set) {
  int cases = 0;
  for (const auto& entry : std::filesystem::directory_iterator(set)) {
    if (!std::filesystem::exists(entry.path() / "golden.safetensors")) continue;
    CheckGolden(entry.path().string(), IsAbsolute(entry.path().filename().string()) ? 1e-3 : 0);
    ++cases;
  }
  return cases;
}

TEST(Golden, EveryTypeOfTheCompactSet) { EXPECT_EQ(CheckEveryCase(DataPath("goldens")), 35); }

TEST(Golden, FullFloatSet) {
  if (SharedPath("").empty()) GTEST_SKIP() << "full reference set not present";
  EXPECT_GE(CheckEveryCase(SharedPath("goldens/float")), 49);
}

TEST(Golden, FullQuantisedSet) {
  if (SharedPath("").empty()) GTEST_SKIP() << "full reference set not present";
  EXPECT_GE(CheckEveryCase(SharedPath("goldens/quant")), 36);
}

// Beyond the trained length a longrope model rotates with other frequencies: a sequence that decoding takes there is
// computed anew, and then equals a prompt of that length bit for bit.
TEST(Golden, DecodingBeyondTheTrainedLengthEqualsAPromptOfThatLength) {
  constexpr size_t kTrained = 64;  // original_max_position_embeddings of the case
  Runner runner = Runner::Open(DataPath("goldens/phi3_longrope"), {.context = 80});
  ASSERT_TRUE(runner.session != nullptr);
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 72; ++i) tokens.push_back((i * 37 + 11) % 320);
  const size_t vocab = static_cast<size_t>(runner.files->vocab_size());
  const auto last = [&](const std::vector<float>& logits) {
    return std::vector<float>(logits.end() - static_cast<ptrdiff_t>(vocab), logits.end());
  };
  const std::vector<float> short_factors = last(runner.Logits({tokens.begin(), tokens.begin() + kTrained}));
  std::vector<std::vector<float>> decoded;
  for (size_t i = kTrained; i < tokens.size(); ++i) {
    ASSERT_TRUE(runner.session
                    ->Append(tokens[i],
                             [&](int64_t, int64_t, const float* logits) {
                               decoded.emplace_back(logits, logits + vocab);
                               return Status();
                             })
                    .ok());
  }
  for (size_t length = kTrained + 1; length <= tokens.size(); ++length) {
    EXPECT_EQ(last(runner.Logits({tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(length)})),
              decoded[length - kTrained - 1])
        << length;
  }
  EXPECT_EQ(last(runner.Logits({tokens.begin(), tokens.begin() + kTrained})), short_factors);
}

}  // namespace
}  // namespace nunspark::test
