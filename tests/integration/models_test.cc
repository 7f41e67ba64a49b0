// The trained models: greedy text and perplexity against exact float32 references.

#include <cmath>

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

// Prompt text to ids, greedy tokens to text, all as golden.json has them.
void CheckGreedyCases(const std::string& folder, int max_new) {
  SCOPED_TRACE(folder);
  const Json golden = ReadJson(folder + "/golden.json");
  Runner runner = Runner::Open(folder, {.context = 2048, .kv = KvType::kF32});
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
    const Result<GenerateResult> result =
        runner.session->Generate(prompt, {.max_tokens = max_new, .sampling = {}, .ignore_eos = false}, [&](int32_t token) {
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

// Mean NLL over whole windows of 512, as the `perplexity` verb prints it.
void CheckPerplexity(const std::string& folder) {
  SCOPED_TRACE(folder);
  const double want = ReadJson(folder + "/golden.json").Find("perplexity")->Find("windows_of_512")->Find("mean_nll")->as_double();
  std::string out, err;
  ASSERT_EQ(RunShell(std::string(NUNSPARK_BINARY) + " perplexity " + folder + " --file " + folder +
                         "/perplexity.txt --window 512 --kv f32 --json",
                     &out, &err),
            0)
      << err;
  const Result<Json> json = ParseJson(out, "output");
  ASSERT_TRUE(json.ok());
  EXPECT_NEAR(std::exp(json->Find("mean_nll")->as_double()) / std::exp(want), 1, 1e-3);
}

TEST(DemoModel, GreedyTextEqualsTheReference) { CheckGreedyCases(ModelPath("demo-moe-4bit"), 96); }

TEST(DemoModel, PerplexityEqualsTheReference) { CheckPerplexity(ModelPath("demo-moe-4bit")); }

TEST(SmolLm2, GreedyTextEqualsTheReference) {
  if (SharedPath("").empty()) GTEST_SKIP() << "full reference set not present";
  CheckGreedyCases(SharedPath("models/smollm2-135m-instruct-4bit"), 64);
}

TEST(SmolLm2, PerplexityEqualsTheReference) {
  if (SharedPath("").empty()) GTEST_SKIP() << "full reference set not present";
  CheckPerplexity(SharedPath("models/smollm2-135m-instruct-4bit"));
}

}  // namespace
}  // namespace nunspark::test
