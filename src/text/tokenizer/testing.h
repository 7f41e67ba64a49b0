// Small tokenizers for tests, written out as files would have them.
#ifndef NUNSPARK_TEXT_TOKENIZER_TESTING_H_
#define NUNSPARK_TEXT_TOKENIZER_TESTING_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/tokenizer/load.h"

namespace nunspark::text::testing {

inline Result<std::unique_ptr<PipelineTokenizer>> LoadJsonText(std::string_view json) {
  std::string content;
  content.reserve(json.size() + kJsonPadding);
  content = json;
  return LoadTokenizerJson(content, "test.json");
}

// A tokenizer.json with the given parts ("null" for none) and a model.
struct Parts {
  std::string normalizer = "null";
  std::string pre_tokenizer = "null";
  std::string post_processor = "null";
  std::string decoder = "null";
  std::string added_tokens = "[]";
  std::string model;
};

inline std::string JsonOf(const Parts& parts) {
  return R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":)" + parts.added_tokens +
         R"(,"normalizer":)" + parts.normalizer + R"(,"pre_tokenizer":)" + parts.pre_tokenizer +
         R"(,"post_processor":)" + parts.post_processor + R"(,"decoder":)" + parts.decoder + R"(,"model":)" +
         parts.model + "}";
}

// A BPE model whose vocabulary is `tokens` with their index as id. `options` are further members, each after a comma.
inline std::string BpeModel(const std::vector<std::string>& tokens, const std::vector<std::string>& merges,
                            const std::string& options = "") {
  Json vocab(Json::Object{});
  for (size_t i = 0; i < tokens.size(); ++i) vocab.Set(tokens[i], static_cast<int64_t>(i));
  Json::Array list;
  for (const std::string& merge : merges) list.emplace_back(merge);
  return R"({"type":"BPE","vocab":)" + WriteJson(vocab) + R"(,"merges":)" + WriteJson(Json(list)) + options + "}";
}

inline std::vector<std::string> TokensOf(const Tokenizer& tokenizer, std::string_view text,
                                         AddSpecials add_specials = AddSpecials::kNo) {
  std::vector<std::string> tokens;
  const Result<std::vector<TokenId>> ids = tokenizer.Encode(text, add_specials);
  if (!ids.ok()) return {"error: " + ids.status().message()};
  for (const TokenId id : *ids) tokens.emplace_back(tokenizer.TokenText(id));
  return tokens;
}

}  // namespace nunspark::text::testing

#endif  // NUNSPARK_TEXT_TOKENIZER_TESTING_H_
