// A model gives the same logits from a GGUF file, whatever the converter did to its weights, as from the checkpoint
// that the file was made from.

#include <cmath>
#include <filesystem>

#include "base/json.h"
#include "formats/hf_to_gguf_testing.h"
#include "integration/support.h"
#include "io/file.h"

namespace nunspark::test {
namespace {

struct Case {
  const char* golden;  // name of the reference case
  // What no GGUF file can say, as members to replace in config.json; "" = nothing.
  const char* patch = "";
  bool fuse_qkv = false;
};

void WriteText(const std::string& path, const std::string& text) { ASSERT_TRUE(WriteFileAtomically(path, text).ok()); }

Json ReadConfig(const std::string& path) {
  const Result<std::string> text = ReadRegularFile(path, {});
  return ParseJson(text.value(), path).value();
}

// The checkpoint with its config patched.
std::string Patched(const Case& entry, const std::string& from, const TempFolder& folder) {
  Json config = ReadConfig(from + "/config.json");
  if (*entry.patch != '\0') {
    const Json patch = ParseJson(entry.patch, "patch").value();
    for (const auto& [key, value] : patch.as_object()) config.Set(key, value);
  }
  WriteText(folder.path() + "/config.json", WriteJson(config));
  std::filesystem::copy_file(from + "/model.safetensors", folder.path() + "/model.safetensors");
  return folder.path();
}

void CheckCase(const Case& entry, const std::string& set) {
  SCOPED_TRACE(entry.golden);
  const std::string from = set + "/" + entry.golden;
  const TempFolder checkpoint;
  const TempFolder gguf;
  const std::string folder = Patched(entry, from, checkpoint);
  const std::string file = gguf.path() + "/model.gguf";
  WriteText(file, GgufOfHf(folder, {.fuse_qkv = entry.fuse_qkv}).Bytes());
  const std::vector<int32_t> prompt = ReadI32(from + "/golden.safetensors", "prompt");
  const EngineOptions options{
      .context = static_cast<int64_t>(prompt.size()) + 8, .kv = KvType::kF32, .numerics = Numerics::kF32};
  Runner want_runner = Runner::Open(folder, options);
  Runner found_runner = Runner::Open(file, options);
  ASSERT_TRUE(want_runner.session != nullptr && found_runner.session != nullptr);
  const std::vector<float> want = want_runner.Logits(prompt);
  const std::vector<float> found = found_runner.Logits(prompt);
  ASSERT_EQ(found.size(), want.size());
  double largest = 0, worst = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    largest = std::max(largest, std::abs(double{want[i]}));
    worst = std::max(worst, std::abs(double{want[i]} - double{found[i]}));
  }
  // Products are summed in another order where rows were moved, and scalings went through single precision.
  EXPECT_LE(worst, 2e-5 * largest) << "largest " << largest;
  testing::Test::RecordProperty(std::string(entry.golden) + "_max_error", std::to_string(worst));
}

TEST(GgufModels, GiveTheLogitsOfTheCheckpointTheyAreMadeFrom) {
  for (const Case& entry : {
           Case{"llama"},
           Case{"qwen2"},
           Case{"qwen3"},
           Case{"qwen3_moe"},
           Case{"gemma3_text", R"({"query_pre_attn_scalar":16,"layer_types":null,"sliding_window_pattern":6})"},
           Case{"gemma4_text"},
           Case{"gemma4_text_moe"},
           Case{"gpt_oss"},
           Case{"olmo2"},
           Case{"phi3_longrope"},
           Case{"glm"},
           Case{"glm4"},
           Case{"ernie4_5"},
           Case{"hunyuan_v1_dense"},
           Case{"seed_oss"},
           Case{"internlm3_bias_linear"},
           Case{"apertus"},
           Case{"youtu_llm"},
       }) {
    CheckCase(entry, DataPath("goldens"));
  }
}

TEST(GgufModels, MayHaveQueryKeyAndValueInOneMatrix) {
  for (const Case& entry : {Case{"llama", "", true}, Case{"qwen2", "", true}, Case{"qwen3_moe", "", true}}) {
    CheckCase(entry, DataPath("goldens"));
  }
}

TEST(GgufModels, VariantsOfTheFullSet) {
  if (SharedPath("").empty()) GTEST_SKIP() << "full reference set not present";
  for (const Case& entry : {Case{"llama_hd32"}, Case{"llama_linear"}, Case{"llama_llama3rope"}, Case{"llama_tied_bias"},
                            Case{"llama_yarn"}, Case{"mistral"}, Case{"phi3"}, Case{"phi3_longrope_long"},
                            Case{"qwen2_tied"}, Case{"qwen3_tied"}, Case{"ernie4_5_bias"}, Case{"gpt_oss_norope"}}) {
    CheckCase(entry, SharedPath("goldens/float"));
  }
}

}  // namespace
}  // namespace nunspark::test
