// Every tokenizer of the reference sets against the ids and texts that the reference library gives.
//
// The own set (synthetic vocabularies) is in tests/data/tokenizers; the full set is used where it lies beside the
// project.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/json.h"
#include "text/tokenizer/gguf_vocab.h"
#include "text/tokenizer/text_file.h"
#include "text/tokenizer/tokenizer.h"

namespace nunspark::text {
namespace {

namespace fs = std::filesystem;

std::vector<TokenId> IdsOf(const Json& array) {
  std::vector<TokenId> ids;
  for (const Json& id : array.as_array()) ids.push_back(static_cast<TokenId>(id.as_int()));
  return ids;
}

std::string BytesOf(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

std::string ReadOrEmpty(const fs::path& plain) {
  for (const std::string& path : {plain.string(), plain.string() + ".gz"}) {
    if (FileExists(path)) return std::move(ReadTextFile(path)).value();
  }
  return "";
}

// One line of cases.jsonl. What is wrong with the result, or nothing.
std::string CheckCase(const Tokenizer& tokenizer, const Json& line, const Json& family) {
  const Json* hex = line.Find("bytes_hex");
  const std::string text = hex != nullptr ? BytesOf(hex->as_string()) : line.Find("text")->as_string();
  const std::vector<TokenId> expected = IdsOf(*line.Find("ids"));
  const Result<std::vector<TokenId>> ids = tokenizer.Encode(text, AddSpecials::kNo);
  if (!ids.ok()) return ids.status().message();
  if (*ids != expected)
    return "ids differ: " + ::testing::PrintToString(*ids) + " expected " + ::testing::PrintToString(expected);

  std::vector<TokenId> expected_special = IdsOf(*family.Find("prefix"));
  expected_special.insert(expected_special.end(), expected.begin(), expected.end());
  for (const TokenId id : IdsOf(*family.Find("suffix"))) expected_special.push_back(id);
  if (const Json* given = line.Find("ids_special")) expected_special = IdsOf(*given);
  const Result<std::vector<TokenId>> special = tokenizer.Encode(text, AddSpecials::kYes);
  if (!special.ok()) return special.status().message();
  if (*special != expected_special) return "ids with specials differ";

  const Json* decoded = line.Find("decoded");
  if (decoded == nullptr || decoded->is_null()) return "";
  const std::string expected_text = decoded->is_bool() ? line.Find("text")->as_string() : decoded->as_string();
  const std::string found = tokenizer.Decode(expected, SkipSpecials::kNo);
  if (found != expected_text) return "decodes to " + JsonQuote(found) + " expected " + JsonQuote(expected_text);

  const Json* skip = line.Find("decoded_skip_special");
  const std::string expected_skip = skip != nullptr && skip->is_string() ? skip->as_string() : expected_text;
  const std::string found_skip = tokenizer.Decode(expected, SkipSpecials::kYes);
  if (found_skip != expected_skip)
    return "without specials " + JsonQuote(found_skip) + " expected " + JsonQuote(expected_skip);

  // Streaming gives the same text, and never a part of a character.
  StreamDecoder stream(tokenizer, SkipSpecials::kNo);
  std::string streamed;
  for (const TokenId id : expected) streamed += stream.Push(id);
  streamed += stream.Finish();
  return streamed == found ? "" : "streams " + JsonQuote(streamed);
}

void CheckCases(const fs::path& root, const std::string& name, const Json& family, const Tokenizer& tokenizer) {
  int count = 0;
  int wrong = 0;
  for (const char* file : {"cases.jsonl", "chat_e2e.jsonl"}) {
    std::istringstream lines(ReadOrEmpty(root / name / file));
    for (std::string text; std::getline(lines, text);) {
      const Json line = std::move(ParseJson(text, file)).value();
      ++count;
      const std::string problem = CheckCase(tokenizer, line, family);
      if (problem.empty()) continue;
      if (++wrong <= 5) ADD_FAILURE() << file << " " << text.substr(0, 300) << "\n" << problem;
    }
  }
  EXPECT_GT(count, 100);
  EXPECT_EQ(wrong, 0) << "of " << count;
}

void CheckFamily(const fs::path& root, const std::string& name, const Json& family) {
  SCOPED_TRACE(name);
  std::string path = (root / name / "tokenizer.json").string();
  if (!FileExists(path)) path += ".gz";
  const Result<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Load(path);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  CheckCases(root, name, family, **tokenizer);
}

Json ManifestOf(const fs::path& root) {
  return std::move(ParseJson(ReadOrEmpty(root / "manifest.json"), "manifest.json")).value();
}

void CheckAll(const fs::path& root) {
  const Json manifest = ManifestOf(root);
  for (const auto& [name, family] : manifest.as_object()) CheckFamily(root, name, family);
}

// --- The same vocabularies as a GGUF file would have them ---

struct GgufFamily {
  const char* name;  // of the reference set
  const char* model;
  const char* pre;
  const char* model_name;
};
constexpr GgufFamily kGgufFamilies[] = {
    {"syn_smollm2", "gpt2", "smollm", ""},  {"syn_qwen35", "gpt2", "qwen35", ""},
    {"syn_youtu", "gpt2", "youtu", ""},     {"syn_seed_oss", "gpt2", "seed-coder", ""},
    {"llama3_1", "gpt2", "llama-bpe", ""},  {"qwen3", "gpt2", "qwen2", ""},
    {"gptoss", "gpt2", "gpt-4o", ""},       {"deepseek_v3", "gpt2", "deepseek-v3", ""},
    {"mistral_nemo", "gpt2", "tekken", ""}, {"llama2", "llama", "default", ""},
    {"mistral_v1", "llama", "default", ""}, {"phi3", "llama", "default", "Phi-3 mini"},
};

// A GgufVocab and the texts it borrows.
struct OwnedVocab {
  GgufVocab vocab;
  std::vector<std::string> tokens;
  std::vector<std::string> merges;
};

void TakeTokens(const Json& json, OwnedVocab& owned) {
  std::vector<std::pair<std::string, TokenId>> texts;
  std::vector<std::pair<TokenId, int32_t>> added;
  for (const auto& [text, id] : json.Find("model")->Find("vocab")->as_object()) {
    texts.emplace_back(text, static_cast<TokenId>(id.as_int()));
  }
  for (const Json& token : json.Find("added_tokens")->as_array()) {
    const auto id = static_cast<TokenId>(token.Find("id")->as_int());
    const std::string& text = token.Find("content")->as_string();
    texts.emplace_back(text, id);
    added.emplace_back(id, text == "<unk>" ? 2 : token.Find("special")->as_bool() ? 3 : 4);
  }
  TokenId id_end = 0;
  for (const auto& [text, id] : texts) id_end = std::max(id_end, id + 1);
  for (TokenId id = 0; id < id_end; ++id) owned.tokens.push_back("[PAD" + std::to_string(id) + "]");
  owned.vocab.token_types.assign(owned.tokens.size(), 5);
  for (const auto& [text, id] : texts) {
    owned.tokens[static_cast<size_t>(id)] = text;
    owned.vocab.token_types[static_cast<size_t>(id)] = text.size() == 6 && text.starts_with("<0x") ? 6 : 1;
  }
  for (const auto& [id, type] : added) owned.vocab.token_types[static_cast<size_t>(id)] = type;
}

// Llama's scores fall with the id; its runs of spaces come last of all.
void TakeScores(OwnedVocab& owned) {
  for (size_t id = 0; id < owned.tokens.size(); ++id) {
    const std::string& text = owned.tokens[id];
    bool spaces = text.size() > 3 && text.size() % 3 == 0;
    for (size_t at = 0; at + 2 < text.size(); at += 3) spaces = spaces && text.substr(at, 3) == "▁";
    owned.vocab.scores.push_back(spaces ? -1e9f : id < 259 ? 0 : 259 - static_cast<float>(id));
  }
}

void TakeMerges(const Json& json, OwnedVocab& owned) {
  for (const Json& merge : json.Find("model")->Find("merges")->as_array()) {
    owned.merges.push_back(merge.is_string() ? merge.as_string()
                                             : merge.as_array()[0].as_string() + " " + merge.as_array()[1].as_string());
  }
}

void CheckAsGguf(const fs::path& root) {
  const Json manifest = ManifestOf(root);
  for (const GgufFamily& gguf : kGgufFamilies) {
    const Json* const family = manifest.Find(gguf.name);
    if (family == nullptr) continue;
    SCOPED_TRACE(gguf.name);
    const Json json = std::move(ParseJson(ReadOrEmpty(root / gguf.name / "tokenizer.json"), gguf.name)).value();
    OwnedVocab owned;
    owned.vocab.model = gguf.model;
    owned.vocab.pre = gguf.pre;
    owned.vocab.model_name = gguf.model_name;
    TakeTokens(json, owned);
    if (owned.vocab.model == "llama") {
      TakeScores(owned);
    } else {
      TakeMerges(json, owned);
    }
    owned.vocab.tokens.assign(owned.tokens.begin(), owned.tokens.end());
    owned.vocab.merges.assign(owned.merges.begin(), owned.merges.end());
    const std::vector<TokenId> before = IdsOf(*family->Find("prefix")), after = IdsOf(*family->Find("suffix"));
    owned.vocab.add_bos = !before.empty();
    owned.vocab.add_eos = !after.empty();
    if (!before.empty()) owned.vocab.bos_id = before.front();
    if (!after.empty()) owned.vocab.eos_id = after.front();
    const Result<std::unique_ptr<Tokenizer>> tokenizer = LoadGgufVocab(owned.vocab, gguf.name);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    CheckCases(root, gguf.name, *family, **tokenizer);
  }
}

TEST(TokenizerGolden, OwnSetIsReproducedFromGgufVocabularies) {
  CheckAsGguf(fs::path(NUNSPARK_SOURCE_DIR) / "tests/data/tokenizers");
}

TEST(TokenizerGolden, FullSetIsReproducedFromGgufVocabularies) {
  const fs::path root = fs::path(NUNSPARK_SOURCE_DIR) / "../shared/tokenizers";
  if (!fs::exists(root)) GTEST_SKIP() << "full reference set not present";
  CheckAsGguf(root);
}

TEST(TokenizerGolden, OwnSetIsReproducedExactly) { CheckAll(fs::path(NUNSPARK_SOURCE_DIR) / "tests/data/tokenizers"); }

TEST(TokenizerGolden, FullSetIsReproducedExactly) {
  const fs::path root = fs::path(NUNSPARK_SOURCE_DIR) / "../shared/tokenizers";
  if (!fs::exists(root)) GTEST_SKIP() << "full reference set not present";
  CheckAll(root);
}

}  // namespace
}  // namespace nunspark::text
