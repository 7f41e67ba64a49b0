// The vocabularies of real GGUF files against what their families' own tokenizers give. Each test skips when its file
// is not there (tools/real_models fetches them).
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/model_text.h"
#include "integration/support.h"

namespace nunspark::test {
namespace {

struct Case {
  std::string text;
  std::vector<int32_t> ids;
  std::string decoded;
  bool has_decoded = false;
};

// Cases of a reference set whose ids are all below `id_end`: later tokens belong to other members of the family.
std::vector<Case> Cases(const std::string& path, int64_t id_end) {
  std::vector<Case> cases;
  std::ifstream file(path, std::ios::binary);
  for (std::string line; std::getline(file, line);) {
    const Json json = ParseJson(line, path).value();
    if (json.Find("bytes_hex") != nullptr) continue;
    Case one{json.Find("text")->as_string(), {}, {}, false};
    for (const Json& id : json.Find("ids")->as_array()) one.ids.push_back(static_cast<int32_t>(id.as_int()));
    if (!std::all_of(one.ids.begin(), one.ids.end(), [&](int32_t id) { return id < id_end; })) continue;
    const Json* const decoded = json.Find("decoded");
    one.has_decoded = decoded != nullptr && !decoded->is_null();
    if (one.has_decoded) one.decoded = decoded->is_string() ? decoded->as_string() : one.text;
    cases.push_back(std::move(one));
  }
  return cases;
}

void CheckAgainst(const std::string& file, const std::string& cases_path, int64_t id_end, size_t cases_min) {
  const std::string path = RealModelPath(file);
  if (SharedPath("").empty()) GTEST_SKIP() << "full reference set not present";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "the GGUF file is not there; tools/real_models fetches it";
  const auto tokenizer = OpenTokenizer(path);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  const std::vector<Case> cases = Cases(SharedPath(cases_path), id_end);
  EXPECT_GE(cases.size(), cases_min);
  for (const Case& one : cases) {
    EXPECT_EQ(*(*tokenizer)->Encode(one.text, text::AddSpecials::kNo), one.ids) << one.text;
    if (one.has_decoded) {
      EXPECT_EQ((*tokenizer)->Decode(one.ids, text::SkipSpecials::kNo), one.decoded);
    }
  }
}

TEST(GgufText, SmolLm2EqualsItsTokenizerJson) {
  CheckAgainst("smollm2-135m-instruct-q4_1.gguf", "models/smollm2-135m-instruct-4bit/tokenizer_cases.jsonl", 49152,
               129);
}

TEST(GgufText, GemmaThreeEqualsItsTokenizerJson) {
  // The small model lacks <image_soft_token>.
  CheckAgainst("gemma-3-270m-q4_k_m.gguf", "tokenizers/gemma3/cases.jsonl", 262144, 700);
}

TEST(GgufText, QwenCoderEqualsQwenThree) {
  // Qwen 3 added <tool_response>, <think> and their ends.
  CheckAgainst("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", "tokenizers/qwen3/cases.jsonl", 151665, 690);
}

}  // namespace
}  // namespace nunspark::test
