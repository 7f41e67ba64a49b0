// The trained models: greedy text and perplexity against exact float32 references.

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/json.h"
#include "integration/support.h"
#include "io/file.h"

namespace nunspark::test {
namespace {

Json ReadJson(const std::string& path) {
  const Result<std::string> text = ReadWholeFile(path);
  EXPECT_TRUE(text.ok()) << text.status().message();
  Result<Json> json = ParseJson(*text, path);
  EXPECT_TRUE(json.ok()) << json.status().message();
  return *json;
}

std::vector<int32_t> Ids(const Json& array) {
  std::vector<int32_t> ids;
  for (const Json& id : array.as_array()) ids.push_back(static_cast<int32_t>(id.as_int()));
  return ids;
}

// Prompt text to ids, greedy tokens to text, all as golden.json of the folder `reference` has them.
void CheckGreedyCases(const std::string& model, const std::string& reference, int max_new) {
  SCOPED_TRACE(model);
  const Json golden = ReadJson(reference + "/golden.json");
  Runner runner = Runner::Open(model, {.context = 2048, .kv = KvType::kF32, .numerics = Numerics::kF32});
  ASSERT_TRUE(runner.session != nullptr);
  for (const Json& entry : golden.Find("cases")->as_array()) {
    SCOPED_TRACE(entry.Find("id")->as_string());
    const std::vector<int32_t> prompt = Ids(*entry.Find("prompt_ids"));
    const std::vector<int32_t> want = Ids(*entry.Find("greedy_ids"));

    if (const Json* const messages = entry.Find("messages"); messages != nullptr && !messages->is_null()) {
      const Json context(Json::Object{{"messages", *messages}, {"add_generation_prompt", true}});
      const Result<std::string> text = runner.files->FormatChat(WriteJson(context));
      ASSERT_TRUE(text.ok()) << text.status().message();
      EXPECT_EQ(*text, entry.Find("prompt")->as_string());
    }
    const Result<std::vector<int32_t>> encoded = runner.files->Encode(entry.Find("prompt")->as_string());
    ASSERT_TRUE(encoded.ok());
    EXPECT_EQ(*encoded, prompt);

    std::string streamed;
    const std::unique_ptr<ModelFiles::TextStream> stream = runner.files->NewTextStream().value();
    const Result<GenerateResult> result = runner.session->Generate(
        prompt, {.max_tokens = max_new, .sampling = {}, .ignore_eos = false}, [&](int32_t token) {
          streamed += stream->Push(token);
          return true;
        });
    ASSERT_TRUE(result.ok()) << result.status().message();
    streamed += stream->Finish();
    // All margins of these references are above 1e-3, so every token must be equal.
    EXPECT_EQ(result->ids, want);
    EXPECT_EQ(streamed, runner.files->Decode(result->ids, true).value());
    if (const Json* const finish = entry.Find("finish")) {
      EXPECT_EQ(result->finish_reason == FinishReason::kStop ? "stop" : "length", finish->as_string());
    }
  }
}

// Sum of -log p over windows of `window` tokens, each a sequence of its own, in double precision.
struct Nll {
  double sum = 0;
  int64_t count = 0;
  double mean() const { return sum / static_cast<double>(count); }
};

enum class LastWindow { kDropIncomplete, kKeep };

Nll NllOf(Runner& runner, const std::string& text, size_t window, LastWindow last) {
  const std::vector<int32_t> ids = runner.files->Encode(text).value();
  const size_t vocab = static_cast<size_t>(runner.files->vocab_size());
  Nll nll;
  for (size_t begin = 0; begin < ids.size(); begin += window) {
    const std::vector<int32_t> part(ids.begin() + static_cast<ptrdiff_t>(begin),
                                    ids.begin() + static_cast<ptrdiff_t>(std::min(ids.size(), begin + window)));
    if (part.size() < window && last == LastWindow::kDropIncomplete) break;
    const std::vector<float> logits = runner.Logits(part);
    for (size_t i = 0; i + 1 < part.size(); ++i) {
      const float* const row = logits.data() + i * vocab;
      const double best = *std::max_element(row, row + vocab);
      double total = 0;
      for (size_t v = 0; v < vocab; ++v) total += std::exp(row[v] - best);
      nll.sum += best + std::log(total) - row[part[i + 1]];
      ++nll.count;
    }
  }
  return nll;
}

// The reference's perplexity, and that the verb prints what its definition says (whole windows only).
void CheckPerplexity(const std::string& model, const std::string& folder, LastWindow reference_window) {
  SCOPED_TRACE(model);
  const Json want = *ReadJson(folder + "/golden.json").Find("perplexity")->Find("windows_of_512");
  const std::string text = ReadWholeFile(folder + "/perplexity.txt").value();
  Runner runner = Runner::Open(model, {.context = 512, .kv = KvType::kF32, .numerics = Numerics::kF32});
  ASSERT_TRUE(runner.session != nullptr);
  const Nll reference = NllOf(runner, text, 512, reference_window);
  EXPECT_EQ(reference.count, want.Find("predicted")->as_int());
  EXPECT_NEAR(std::exp(reference.mean() - want.Find("mean_nll")->as_double()), 1, 1e-3);

  std::string out, err;
  ASSERT_EQ(RunShell(std::string(NUNSPARK_BINARY) + " perplexity " + model + " --file " + folder +
                         "/perplexity.txt --window 512 --kv f32 --numerics f32 --json",
                     &out, &err),
            0)
      << err;
  const Json json = ParseJson(out, "output").value();
  const Nll whole =
      reference_window == LastWindow::kKeep ? NllOf(runner, text, 512, LastWindow::kDropIncomplete) : reference;
  EXPECT_EQ(json.Find("predicted")->as_int(), whole.count);
  EXPECT_NEAR(json.Find("mean_nll")->as_double(), whole.mean(), 1e-6);
}

TEST(DemoModel, GreedyTextEqualsTheReference) {
  CheckGreedyCases(ModelPath("demo-moe-4bit"), ModelPath("demo-moe-4bit"), 96);
}

TEST(DemoModel, PerplexityEqualsTheReference) {
  // Its reference counts the incomplete last window too.
  CheckPerplexity(ModelPath("demo-moe-4bit"), ModelPath("demo-moe-4bit"), LastWindow::kKeep);
}

constexpr const char* kSmolLm2 = "models/smollm2-135m-instruct-4bit";

TEST(SmolLm2, GreedyTextEqualsTheReference) {
  if (SharedPath("").empty()) GTEST_SKIP() << "full reference set not present";
  CheckGreedyCases(SharedPath(kSmolLm2), SharedPath(kSmolLm2), 64);
}

TEST(SmolLm2, PerplexityEqualsTheReference) {
  if (SharedPath("").empty()) GTEST_SKIP() << "full reference set not present";
  CheckPerplexity(SharedPath(kSmolLm2), SharedPath(kSmolLm2), LastWindow::kDropIncomplete);
}

// The GGUF file that the checkpoint above was laid out from: its blocks hold the same numbers.
std::string SmolLm2Gguf() {
  const std::string path = RealModelPath("smollm2-135m-instruct-q4_1.gguf");
  return SharedPath("").empty() || !std::filesystem::exists(path) ? "" : path;
}

TEST(SmolLm2, GgufGreedyTextEqualsTheReference) {
  if (SmolLm2Gguf().empty()) GTEST_SKIP() << "the GGUF file is not there; tools/real_models fetches it";
  CheckGreedyCases(SmolLm2Gguf(), SharedPath(kSmolLm2), 64);
}

TEST(SmolLm2, GgufPerplexityEqualsTheReference) {
  if (SmolLm2Gguf().empty()) GTEST_SKIP() << "the GGUF file is not there; tools/real_models fetches it";
  CheckPerplexity(SmolLm2Gguf(), SharedPath(kSmolLm2), LastWindow::kDropIncomplete);
}

}  // namespace
}  // namespace nunspark::test
