// Every tokenizer of the reference sets against the ids and texts that the reference library gives.
//
// The own set (synthetic vocabularies) is in tests/data/tokenizers; the full set is used where it lies beside the
// project.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/json.h"
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

void CheckFamily(const fs::path& root, const std::string& name, const Json& family) {
  SCOPED_TRACE(name);
  std::string path = (root / name / "tokenizer.json").string();
  if (!FileExists(path)) path += ".gz";
  const Result<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Load(path);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  int count = 0;
  int wrong = 0;
  for (const char* file : {"cases.jsonl", "chat_e2e.jsonl"}) {
    std::istringstream lines(ReadOrEmpty(root / name / file));
    for (std::string text; std::getline(lines, text);) {
      const Json line = std::move(ParseJson(text, file)).value();
      ++count;
      const std::string problem = CheckCase(**tokenizer, line, family);
      if (problem.empty()) continue;
      if (++wrong <= 5) ADD_FAILURE() << file << " " << text.substr(0, 300) << "\n" << problem;
    }
  }
  EXPECT_GT(count, 100);
  EXPECT_EQ(wrong, 0) << "of " << count;
}

void CheckAll(const fs::path& root) {
  const Json manifest = std::move(ParseJson(ReadOrEmpty(root / "manifest.json"), "manifest.json")).value();
  for (const auto& [name, family] : manifest.as_object()) CheckFamily(root, name, family);
}

TEST(TokenizerGolden, OwnSetIsReproducedExactly) { CheckAll(fs::path(NUNSPARK_SOURCE_DIR) / "tests/data/tokenizers"); }

TEST(TokenizerGolden, FullSetIsReproducedExactly) {
  const fs::path root = fs::path(NUNSPARK_SOURCE_DIR) / "../shared/tokenizers";
  if (!fs::exists(root)) GTEST_SKIP() << "full reference set not present";
  CheckAll(root);
}

}  // namespace
}  // namespace nunspark::text
