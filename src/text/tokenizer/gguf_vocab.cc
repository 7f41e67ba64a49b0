#include "text/tokenizer/gguf_vocab.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include <fmt/format.h>

#include "base/ascii.h"
#include "base/utf8.h"
#include "text/tokenizer/base64.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/gguf_pre.h"
#include "text/tokenizer/load.h"
#include "text/tokenizer/sentencepiece.h"
#include "text/tokenizer/valid_utf8.h"
#include "text/tokenizer/vocabulary.h"

namespace nunspark::text {
namespace {

using Type = GgufVocab::TokenType;

// No real token comes near.
constexpr size_t kTokenBytesMax = 4096;

enum class Model { kByteLevel, kSentencePiece, kUnigram, kWholeWords };

// "<s>" and the like as "tokenizer.ggml.<name>_token_id" says.
std::optional<TokenId> IdOf(const std::optional<int64_t>& id, const GgufVocab& vocab) {
  if (!id.has_value() || *id < 0 || static_cast<size_t>(*id) >= vocab.tokens.size()) return std::nullopt;
  return static_cast<TokenId>(*id);
}

std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  size_t at = 0;
  for (size_t found = text.find(from); found != std::string_view::npos; found = text.find(from, at)) {
    out.append(text.substr(at, found - at)).append(to);
    at = found + from.size();
  }
  return out.append(text.substr(at));
}

class Writer {
 public:
  Writer(const GgufVocab& vocab, std::string_view what) : vocab_(vocab), what_(what) {}

  Result<std::string> Write() {
    RETURN_IF_ERROR(ChooseModel());
    RETURN_IF_ERROR(CheckTokens());
    RETURN_IF_ERROR(TakeTexts());
    out_ = R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[)";
    AppendAddedTokens();
    out_ += R"(],"normalizer":)" + NormalizerJson() + R"(,"pre_tokenizer":)" + PreTokenizerJson();
    ASSIGN_OR_RETURN(const std::string post_processor, PostProcessorJson());
    out_ += R"(,"post_processor":)" + post_processor + R"(,"decoder":)" + DecoderJson() + R"(,"model":)";
    if (model_ == Model::kUnigram) {
      AppendUnigram();
    } else {
      RETURN_IF_ERROR(AppendBpe());
    }
    out_ += "}\n";
    return std::move(out_);
  }

 private:
  Status Malformed(std::string_view reason) const { return DataLossError(fmt::format("{}: {}", what_, reason)); }

  Status ChooseModel() {
    if (vocab_.model == "llama") {
      model_ = Model::kSentencePiece;
      const std::string name = AsciiLower(vocab_.model_name);
      is_phi3_ = name.find("phi-3") != std::string::npos || name.find("phi3") != std::string::npos;
      return Status();
    }
    if (vocab_.model == "t5") {
      model_ = Model::kUnigram;
      return Status();
    }
    if (vocab_.model != "gpt2" && vocab_.model != "gemma4") {
      return UnsupportedError(fmt::format(
          "{}: tokenizer.ggml.model: this build knows gpt2, llama, t5 and gemma4, not '{}'", what_, vocab_.model));
    }
    const std::string_view name = vocab_.model == "gemma4" ? "gemma4" : vocab_.pre;
    std::optional<GgufPre> pre = FindGgufPre(name);
    if (!pre.has_value()) {
      return UnsupportedError(
          fmt::format("{}: tokenizer.ggml.pre: how texts are cut is not known for '{}'; known are: {}", what_, name,
                      KnownGgufPres()));
    }
    pre_ = *std::move(pre);
    model_ = pre_.pipeline == GgufPipeline::kByteLevel ? Model::kByteLevel : Model::kWholeWords;
    return Status();
  }

  Status CheckTokens() const {
    const size_t count = vocab_.tokens.size();
    if (count == 0 || count > static_cast<size_t>(kVocabIdMax)) {
      return Malformed(fmt::format("tokenizer.ggml.tokens: expected 1 to {} tokens, found {}", kVocabIdMax, count));
    }
    if (!vocab_.token_types.empty() && vocab_.token_types.size() != count) {
      return Malformed(fmt::format("tokenizer.ggml.token_type: expected one for each of {} tokens, found {}", count,
                                   vocab_.token_types.size()));
    }
    const bool needs_scores = model_ == Model::kUnigram || (model_ == Model::kSentencePiece && vocab_.merges.empty());
    if (needs_scores ? vocab_.scores.size() != count : !vocab_.scores.empty() && vocab_.scores.size() != count) {
      return Malformed(fmt::format("tokenizer.ggml.scores: expected one for each of {} tokens, found {}", count,
                                   vocab_.scores.size()));
    }
    for (size_t i = 0; i < vocab_.scores.size(); ++i) {
      if (!std::isfinite(vocab_.scores[i])) {
        return Malformed(fmt::format("tokenizer.ggml.scores[{}]: expected a finite number", i));
      }
    }
    if (vocab_.merges.size() > kMergesMax) {
      return Malformed(
          fmt::format("tokenizer.ggml.merges: expected at most {}, found {}", kMergesMax, vocab_.merges.size()));
    }
    return Status();
  }

  Type TypeOf(size_t id) const {
    return vocab_.token_types.empty() ? Type::kNormal : static_cast<Type>(vocab_.token_types[id]);
  }

  // Ids that only fill the table up to the size of the embedding. No text has them.
  bool IsFiller(size_t id) const {
    return vocab_.tokens[id].empty() ||
           (TypeOf(id) == Type::kUnused && vocab_.tokens[id] == fmt::format("[PAD{}]", id));
  }

  bool IsAdded(size_t id) const {
    const Type type = TypeOf(id);
    return !IsFiller(id) && (type == Type::kControl || type == Type::kUserDefined || type == Type::kUnknown);
  }

  // Runs of spaces are what SentencePiece vocabularies declare as user-defined symbols. The format has them as spaces,
  // but the tokenizer sees them after its normalizer.
  static bool IsSpaces(std::string_view text) { return text.find_first_not_of(' ') == std::string_view::npos; }
  bool SpacesAreEscaped() const { return model_ != Model::kByteLevel; }

  Status TakeTexts() {
    texts_.resize(vocab_.tokens.size());
    ids_.Reserve(vocab_.tokens.size(), vocab_.tokens.size() * 8);
    for (size_t id = 0; id < texts_.size(); ++id) {
      const std::string_view token = vocab_.tokens[id];
      if (token.size() > kTokenBytesMax || !IsValidUtf8(token)) {
        return Malformed(fmt::format("tokenizer.ggml.tokens[{}]: expected UTF-8 of at most {} bytes, found {}", id,
                                     kTokenBytesMax, token.size() > kTokenBytesMax ? "more" : "other bytes"));
      }
      if (IsFiller(id)) {
        if (model_ == Model::kUnigram) texts_[id] = fmt::format("[PAD{}]", id);
        continue;
      }
      const bool escaped = SpacesAreEscaped() && TypeOf(id) == Type::kUserDefined && IsSpaces(token);
      texts_[id] = escaped ? ReplaceAll(token, " ", kSpmSpace) : std::string(token);
      const TokenId earlier = ids_.Find(texts_[id]);
      if (earlier != kNoToken) {
        return Malformed(
            fmt::format("tokenizer.ggml.tokens[{}]: expected a new text, found that of token {}", id, earlier));
      }
      ids_.Insert(texts_[id], static_cast<TokenId>(id));
    }
    return Status();
  }

  // Phi-3's tokens swallow white space behind them, all but these. Only the model's name tells, as for llama.cpp.
  bool StripsRight(size_t id) const {
    return is_phi3_ && texts_[id] != "<unk>" && texts_[id] != "<s>" && texts_[id] != "<|endoftext|>";
  }

  void AppendAddedTokens() {
    bool first = true;
    for (size_t id = 0; id < texts_.size(); ++id) {
      if (!IsAdded(id)) continue;
      fmt::format_to(std::back_inserter(out_),
                     R"({}{{"id":{},"content":{},"single_word":false,"lstrip":false,"rstrip":{},"normalized":false,)"
                     R"("special":{}}})",
                     first ? "\n" : ",\n", id, JsonQuote(texts_[id]), StripsRight(id),
                     TypeOf(id) != Type::kUserDefined);
      first = false;
    }
  }

  bool AddsSpacePrefix() const { return vocab_.add_space_prefix.value_or(true); }

  std::string NormalizerJson() const {
    const std::string escape =
        fmt::format(R"({{"type":"Replace","pattern":{{"String":" "}},"content":{}}})", JsonQuote(kSpmSpace));
    switch (model_) {
      case Model::kByteLevel: return pre_.nfc ? R"({"type":"NFC"})" : "null";
      case Model::kWholeWords: return escape;
      case Model::kSentencePiece:
        if (!AddsSpacePrefix()) return escape;
        return fmt::format(R"({{"type":"Sequence","normalizers":[{{"type":"Prepend","prepend":{}}},{}]}})",
                           JsonQuote(kSpmSpace), escape);
      case Model::kUnigram: break;
    }
    std::string steps;
    if (!vocab_.charsmap.empty()) {
      steps = fmt::format(R"({{"type":"Precompiled","precompiled_charsmap":"{}"}},)", EncodeBase64(vocab_.charsmap));
    }
    if (vocab_.remove_extra_whitespaces.value_or(true)) {
      steps += R"({"type":"Strip","strip_left":false,"strip_right":true},)";
      steps +=
          fmt::format(R"({{"type":"Replace","pattern":{{"Regex":" {{2,}}"}},"content":{}}},)", JsonQuote(kSpmSpace));
    }
    if (steps.empty()) return "null";
    steps.pop_back();
    return fmt::format(R"({{"type":"Sequence","normalizers":[{}]}})", steps);
  }

  std::string MetaspaceJson() const {
    return fmt::format(R"({{"type":"Metaspace","replacement":{},"prepend_scheme":"{}","split":true}})",
                       JsonQuote(kSpmSpace), AddsSpacePrefix() ? "always" : "never");
  }

  std::string PreTokenizerJson() const {
    switch (model_) {
      case Model::kByteLevel: return fmt::format(R"({{"type":"Sequence","pretokenizers":[{}]}})", pre_.steps);
      case Model::kUnigram: return MetaspaceJson();
      case Model::kSentencePiece:
      case Model::kWholeWords: break;
    }
    return "null";
  }

  std::string DecoderJson() const {
    if (model_ == Model::kByteLevel) {
      return R"({"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true})";
    }
    if (model_ == Model::kUnigram) return MetaspaceJson();
    const bool strips = model_ == Model::kSentencePiece && AddsSpacePrefix();
    return fmt::format(
        R"({{"type":"Sequence","decoders":[{{"type":"Replace","pattern":{{"String":{}}},"content":" "}},)"
        R"({{"type":"ByteFallback"}},{{"type":"Fuse"}}{}]}})",
        JsonQuote(kSpmSpace), strips ? R"(,{"type":"Strip","content":" ","start":1,"stop":0})" : "");
  }

  Result<std::string> PostProcessorJson() const {
    const bool spm = model_ == Model::kSentencePiece;
    const bool add_bos = vocab_.add_bos.value_or(spm || (model_ == Model::kByteLevel && pre_.adds_bos));
    const bool add_eos = vocab_.add_eos.value_or(model_ == Model::kUnigram);
    std::string declared;
    // A reference to the token, after it has been declared; nothing when there is none to add.
    const auto use = [&](bool wanted, const std::optional<int64_t>& id, std::string_view name) -> Result<std::string> {
      if (!wanted) return std::string();
      const std::optional<TokenId> token = IdOf(id, vocab_);
      if (!token.has_value()) {
        return Malformed(
            fmt::format("tokenizer.ggml.add_{}_token: expected a token in tokenizer.ggml.{}_token_id, found {}", name,
                        name, id.has_value() ? fmt::format("id {}", *id) : "none"));
      }
      const std::string quoted = JsonQuote(texts_[static_cast<size_t>(*token)]);
      const std::string entry =
          fmt::format(R"({}:{{"id":{},"ids":[{}],"tokens":[{}]}})", quoted, quoted, *token, quoted);
      if (declared != entry) declared += (declared.empty() ? "" : ",") + entry;
      return fmt::format(R"({{"SpecialToken":{{"id":{},"type_id":0}}}})", quoted);
    };
    ASSIGN_OR_RETURN(std::string before, use(add_bos, BosId(), "bos"));
    ASSIGN_OR_RETURN(std::string after, use(add_eos, EosId(), "eos"));
    if (before.empty() && after.empty()) return std::string("null");
    if (!before.empty()) before += ",";
    if (!after.empty()) after = "," + after;
    const auto around = [&](char letter) {
      return fmt::format(R"({}{{"Sequence":{{"id":"{}","type_id":0}}}}{})", before, letter, after);
    };
    return fmt::format(R"({{"type":"TemplateProcessing","single":[{}],"pair":[{},{}],"special_tokens":{{{}}}}})",
                       around('A'), around('A'), around('B'), declared);
  }

  // What llama.cpp takes where the file says nothing.
  std::optional<int64_t> BosId() const {
    return vocab_.bos_id.has_value() || model_ != Model::kSentencePiece ? vocab_.bos_id : 1;
  }
  std::optional<int64_t> EosId() const {
    if (vocab_.eos_id.has_value()) return vocab_.eos_id;
    if (model_ == Model::kSentencePiece) return 2;
    return model_ == Model::kUnigram ? std::optional<int64_t>(1) : std::nullopt;
  }

  // The unknown token: the one of that type, else the one that is named.
  std::optional<TokenId> UnknownId() const {
    const std::optional<TokenId> named = IdOf(vocab_.unknown_id, vocab_);
    if (named.has_value() || model_ == Model::kByteLevel) return named;
    for (size_t id = 0; id < texts_.size(); ++id) {
      if (TypeOf(id) == Type::kUnknown) return static_cast<TokenId>(id);
    }
    return std::nullopt;
  }

  bool HasByteTokens() const {
    for (int byte = 0; byte < 256; ++byte) {
      if (ids_.Find(fmt::format("<0x{:02X}>", byte)) == kNoToken) return false;
    }
    return true;
  }

  Status AppendBpe() {
    const bool bytes = model_ != Model::kByteLevel && HasByteTokens();
    const std::optional<TokenId> unknown = model_ == Model::kByteLevel ? std::nullopt : UnknownId();
    fmt::format_to(std::back_inserter(out_),
                   R"({{"type":"BPE","dropout":null,"unk_token":{},"continuing_subword_prefix":null,)"
                   R"("end_of_word_suffix":null,"fuse_unk":{},"byte_fallback":{},"ignore_merges":{},"vocab":{{)",
                   unknown.has_value() ? JsonQuote(texts_[static_cast<size_t>(*unknown)]) : "null",
                   model_ != Model::kByteLevel, bytes, model_ == Model::kByteLevel && pre_.ignore_merges);
    bool first = true;
    for (size_t id = 0; id < texts_.size(); ++id) {
      if (IsFiller(id)) continue;
      fmt::format_to(std::back_inserter(out_), "{}{}:{}", first ? "\n" : ",\n", JsonQuote(texts_[id]), id);
      first = false;
    }
    out_ += "},\"merges\":[";
    if (model_ == Model::kSentencePiece && vocab_.merges.empty()) {
      RETURN_IF_ERROR(AppendMergesOfScores());
    } else {
      RETURN_IF_ERROR(AppendMerges());
    }
    out_ += "]}";
    return Status();
  }

  void AppendMerge(std::string_view left, std::string_view right, bool first) {
    fmt::format_to(std::back_inserter(out_), "{}[{},{}]", first ? "\n" : ",\n", JsonQuote(left), JsonQuote(right));
  }

  Status AppendMerges() {
    if (vocab_.merges.empty()) return Malformed("tokenizer.ggml.merges: expected merges, found none");
    for (size_t i = 0; i < vocab_.merges.size(); ++i) {
      const std::string_view merge = vocab_.merges[i];
      const size_t space = merge.find(' ', 1);
      if (space == std::string_view::npos || !IsValidUtf8(merge)) {
        return Malformed(fmt::format("tokenizer.ggml.merges[{}]: expected two tokens with a space between", i));
      }
      AppendMerge(merge.substr(0, space), merge.substr(space + 1), i == 0);
    }
    return Status();
  }

  struct Merge {
    float score;
    uint16_t left_characters;
    uint16_t right_characters;
    uint16_t left_bytes;
    TokenId left;
    TokenId right;
    TokenId result;
  };

  // Every way to make a token of two others, the best score first: so the published tokenizer.json files have been
  // made of SentencePiece models. Among the ways to make one token the older of them go by the ids of the parts, the
  // newer ones (Gemma 2 and later, the ones with runs of spaces as symbols) put the longer left part first.
  Status AppendMergesOfScores() {
    std::vector<Merge> merges;
    bool newer = false;
    std::vector<Merge> local;
    size_t cut_bytes = 0;
    for (size_t id = 0; id < texts_.size(); ++id) {
      if (IsFiller(id)) continue;
      cut_bytes += texts_[id].size() * texts_[id].size();
      if (cut_bytes > kCutBytesMax) {
        return Malformed(fmt::format(
            "tokenizer.ggml.tokens[{}]: expected tokens whose lengths squared add up to {} at most, found more", id,
            kCutBytesMax));
      }
      newer = newer || (TypeOf(id) == Type::kUserDefined && texts_[id].starts_with(kSpmSpace));
      local.clear();
      FindMerges(static_cast<TokenId>(id), local);
      std::sort(local.begin(), local.end(),
                [](const Merge& a, const Merge& b) { return a.left != b.left ? a.left < b.left : a.right < b.right; });
      merges.insert(merges.end(), local.begin(), local.end());
      if (merges.size() > kMergesMax) {
        return Malformed(
            fmt::format("tokenizer.ggml.tokens: expected at most {} ways to join them, found more", kMergesMax));
      }
    }
    std::stable_sort(merges.begin(), merges.end(), [newer](const Merge& a, const Merge& b) {
      if (a.score != b.score || !newer) return a.score > b.score;
      if (a.left_characters != b.left_characters) return a.left_characters > b.left_characters;
      return a.right_characters > b.right_characters;
    });
    bool first = true;
    for (const Merge& merge : merges) {
      const std::string_view result = texts_[static_cast<size_t>(merge.result)];
      AppendMerge(result.substr(0, merge.left_bytes), result.substr(merge.left_bytes), first);
      first = false;
    }
    return Status();
  }

  void FindMerges(TokenId id, std::vector<Merge>& merges) const {
    const std::string_view text = texts_[static_cast<size_t>(id)];
    // SentencePiece gives symbols of its user and controls the score 0; the format writes -1000 instead.
    const Type type = TypeOf(static_cast<size_t>(id));
    const bool symbol = type == Type::kUserDefined || type == Type::kControl;
    const float score = symbol ? 0.0f : vocab_.scores[static_cast<size_t>(id)];
    size_t characters = 0;
    for (size_t at = 0; at < text.size(); at += ValidUtf8Length(text[at])) ++characters;
    size_t left_characters = 0;
    for (size_t cut = ValidUtf8Length(text[0]); cut < text.size(); cut += ValidUtf8Length(text[cut])) {
      ++left_characters;
      const TokenId left = ids_.Find(text.substr(0, cut));
      if (left == kNoToken) continue;
      const TokenId right = ids_.Find(text.substr(cut));
      if (right == kNoToken) continue;
      merges.push_back({score, static_cast<uint16_t>(left_characters),
                        static_cast<uint16_t>(characters - left_characters), static_cast<uint16_t>(cut), left, right,
                        id});
    }
  }

  void AppendUnigram() {
    const std::optional<TokenId> unknown = UnknownId();
    fmt::format_to(std::back_inserter(out_), R"({{"type":"Unigram","unk_id":{},"byte_fallback":{},"vocab":[)",
                   unknown.has_value() ? std::to_string(*unknown) : "null", HasByteTokens());
    for (size_t id = 0; id < texts_.size(); ++id) {
      fmt::format_to(std::back_inserter(out_), "{}[{},{}]", id == 0 ? "\n" : ",\n", JsonQuote(texts_[id]),
                     static_cast<double>(vocab_.scores[id]));
    }
    out_ += "]}";
  }

  const GgufVocab& vocab_;
  const std::string_view what_;
  Model model_ = Model::kByteLevel;
  GgufPre pre_{};
  std::vector<std::string> texts_;  // by id; empty for fillers
  Vocabulary ids_;                  // the other way round
  bool is_phi3_ = false;
  std::string out_;
};

}  // namespace

Result<std::string> GgufTokenizerJson(const GgufVocab& vocab, std::string_view what) {
  return Writer(vocab, what).Write();
}

Result<std::unique_ptr<Tokenizer>> LoadGgufVocab(const GgufVocab& vocab, std::string_view what) {
  ASSIGN_OR_RETURN(std::string json, GgufTokenizerJson(vocab, what));
  json.reserve(json.size() + kJsonPadding);
  ASSIGN_OR_RETURN(std::unique_ptr<PipelineTokenizer> tokenizer, LoadTokenizerJson(json, what));
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

Json GgufTokenizerConfig(const GgufVocab& vocab) {
  Json config(Json::Object{});
  const auto set = [&](std::string_view key, const std::optional<int64_t>& id) {
    const std::optional<TokenId> token = IdOf(id, vocab);
    if (token.has_value()) config.Set(key, RepairUtf8(vocab.tokens[static_cast<size_t>(*token)]));
  };
  set("bos_token", vocab.bos_id);
  set("eos_token", vocab.eos_id);
  set("unk_token", vocab.unknown_id);
  set("pad_token", vocab.padding_id);
  if (vocab.chat_templates.size() == 1 && vocab.chat_templates[0].name == "default") {
    config.Set("chat_template", RepairUtf8(vocab.chat_templates[0].source));
  } else if (!vocab.chat_templates.empty()) {
    Json::Array list;
    for (const GgufVocab::NamedTemplate& entry : vocab.chat_templates) {
      Json item(Json::Object{});
      item.Set("name", RepairUtf8(entry.name));
      item.Set("template", RepairUtf8(entry.source));
      list.push_back(std::move(item));
    }
    config.Set("chat_template", Json(std::move(list)));
  }
  return config;
}

}  // namespace nunspark::text
